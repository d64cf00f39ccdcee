//! What was taken is what is restored.

use std::ffi::OsStr;
use std::fs::{self, File, FileTimes};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use outlast_core::Change;
use outlast_engine::checkpoints::{CheckpointError, Limits, Truth};
use proptest::prelude::*;

use crate::folders::{Content, Folders, conversation, picture, set_mode};

#[derive(Clone, Debug)]
enum Thing {
    File { content: Vec<u8>, mode: u32 },
    Directory { mode: u32 },
    Link { target: Vec<u8> },
}

/// Names that have broken archives before: spaces, newlines, quotes, leading dashes, bytes that are no text.
fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-c]{1,2}".prop_map(String::into_bytes),
        2 => prop::sample::select(vec![
            &b"-rf"[..], b"a b", b"new\nline", b"..data", b"quote\"'", b"caf\xc3\xa9", b"back\\slash", b"%2e%2e",
            b"\xff\xfe", b"tab\t", b"a#1", b"...", b"CON", b"\x01", b"<&>",
        ])
        .prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..255).prop_filter("a name", |name| {
            !name.iter().any(|&byte| byte == 0 || byte == b'/') && name != b"." && name != b".."
        }),
    ]
}

fn thing() -> impl Strategy<Value = Thing> {
    // Modes that keep out even the owner need root to be looked at.
    let mode = prop::sample::select(vec![0o644, 0o600, 0o755, 0o777, 0o400]);
    let directory_mode = prop::sample::select(vec![0o755, 0o700, 0o500]);
    prop_oneof![
        5 => (prop::collection::vec(any::<u8>(), 0..300), mode)
            .prop_map(|(content, mode)| Thing::File { content, mode }),
        2 => directory_mode.prop_map(|mode| Thing::Directory { mode }),
        1 => name().prop_map(|target| Thing::Link { target }),
    ]
}

type Plan = Vec<(Vec<Vec<u8>>, Thing, u64)>;

fn plan() -> impl Strategy<Value = Plan> {
    let time = prop_oneof![Just(0u64), 0..4_000_000_000_000_000_000u64];
    prop::collection::vec((prop::collection::vec(name(), 1..4), thing(), time), 0..25)
}

/// Makes what can be made of a plan: a path that is taken, or leads through a file, is skipped.
fn build(root: &Path, plan: &Plan) {
    let mut made: Vec<(PathBuf, u32, u64)> = Vec::new();
    for (path, thing, time) in plan {
        let path = path.iter().fold(root.to_owned(), |path, name| path.join(OsStr::from_bytes(name)));
        if fs::symlink_metadata(&path).is_ok() || fs::create_dir_all(path.parent().unwrap()).is_err() {
            continue;
        }
        let result = match thing {
            Thing::File { content, .. } => fs::write(&path, content),
            Thing::Directory { .. } => fs::create_dir(&path),
            Thing::Link { target } => symlink(OsStr::from_bytes(target), &path),
        };
        match (result, thing) {
            (Ok(()), Thing::File { mode, .. } | Thing::Directory { mode }) => made.push((path, *mode, *time)),
            (Ok(()), Thing::Link { .. }) | (Err(_), _) => {}
        }
    }
    for (path, mode, time) in made.iter().rev() {
        let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_nanos(*time));
        File::open(path).unwrap().set_times(times).unwrap();
        set_mode(path, *mode);
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Tests remove their folders also when they are not run by root.
fn open_up(folder: &Path) {
    for (path, pictured) in picture(folder) {
        if pictured.content == Content::Directory {
            set_mode(&folder.join(OsStr::from_bytes(&path)), 0o700);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p1_a_restored_tree_is_the_tree_that_was_taken(first in plan(), second in plan()) {
        runtime().block_on(async {
            let folders = Folders::new();
            build(&folders.workspace(), &first);
            let before = picture(&folders.workspace());
            let taken = folders.take("one").await;
            assert!(taken.left_out.is_empty(), "{:?}", taken.left_out);
            build(&folders.workspace(), &second);
            let after = picture(&folders.workspace());
            folders.take("two").await;

            let one = folders.restore("one", "first").await;
            assert_eq!(picture(&one), before);
            let two = folders.restore("two", "second").await;
            assert_eq!(picture(&two), after);
            let listed = folders.checkpoints.list(&conversation(), "one").await.unwrap();
            let files = before.values().filter(|pictured| pictured.content != Content::Directory).count();
            assert_eq!((listed.len(), taken.files), (files, files as u64));
            for folder in [folders.workspace(), one, two] {
                open_up(&folder);
            }
        });
    }
}

#[tokio::test]
async fn p1_changes_between_checkpoints_are_named_and_only_they_are_stored() {
    let folders = Folders::new();
    for file in 0..50 {
        folders.put(&format!("src/{}/{file}.txt", file % 5), format!("file {file}"));
    }
    folders.put("removed.txt", "gone soon");
    let first = folders.take("one").await;
    assert_eq!((first.files, first.truth), (51, None));
    folders.put("src/1/1.txt", "changed");
    folders.put("new dir/new.txt", "new");
    fs::remove_file(folders.workspace().join("removed.txt")).unwrap();
    set_mode(&folders.workspace().join("src/2/2.txt"), 0o755);
    let second = folders.take("two").await;
    // Two files; the listings of the root, `src`, `src/1`, `src/2` and `new dir`.
    assert_eq!(second.new_blobs, 7);

    let differences = folders.compare("one", "two").await;
    let changes: Vec<_> = differences.iter().map(|d| (d.path.to_str().unwrap(), d.change())).collect();
    let expected = [
        ("new dir/new.txt", Change::Added),
        ("removed.txt", Change::Deleted),
        ("src/1/1.txt", Change::Modified),
        ("src/2/2.txt", Change::Modified),
    ];
    assert_eq!(changes, expected);
    assert_eq!(differences[2].after.as_ref().unwrap().size, 7);
    let Some(Truth::Changes(truth)) = second.truth else { panic!("{:?}", second.truth) };
    assert_eq!(truth.files.len(), 4);
    assert!(folders.compare("two", "two").await.is_empty());
}

#[tokio::test]
async fn p1_a_directory_that_became_a_file_is_a_deletion_and_an_addition() {
    let folders = Folders::new();
    folders.put("thing/inside.txt", "inside");
    folders.take("one").await;
    fs::remove_dir_all(folders.workspace().join("thing")).unwrap();
    folders.put("thing", "a file now");
    folders.take("two").await;
    let changes: Vec<_> =
        folders.compare("one", "two").await.iter().map(|d| (d.path.clone(), d.change())).collect();
    assert_eq!(
        changes,
        [(PathBuf::from("thing"), Change::Added), (PathBuf::from("thing/inside.txt"), Change::Deleted)]
    );
}

#[tokio::test]
async fn x9_a_file_larger_than_a_chunk_is_stored_in_chunks_and_read_back() {
    let folders = Folders::new();
    let mut content = vec![7u8; 9 << 20];
    content.iter_mut().enumerate().for_each(|(place, byte)| *byte = (place / 4096) as u8);
    folders.put("big", &content);
    folders.take("one").await;
    content.extend_from_slice(b"appended");
    folders.put("big", &content);
    let second = folders.take("two").await;
    assert_eq!(second.new_blobs, 2, "the last chunk and the listing");

    let restored = folders.restore("two", "restored").await;
    assert!(fs::read(restored.join("big")).unwrap() == content);
    let mut file = folders.checkpoints.open(&conversation(), "two", Path::new("big")).await.unwrap();
    let mut read = Vec::new();
    while let Some(piece) = file.next().await.unwrap() {
        assert!(piece.len() <= 4 << 20);
        read.extend_from_slice(&piece);
    }
    assert!(read == content);
    assert_eq!(file.version.hash.to_string(), blake3::hash(&content).to_hex().as_str());
}

#[tokio::test]
async fn x9_only_paths_of_files_in_the_checkpoint_can_be_opened() {
    let folders = Folders::new();
    folders.put("a/b.txt", "text");
    folders.take("one").await;
    for path in ["", "a", "a/c.txt", "/a/b.txt", "../a/b.txt", "a/../a/b.txt", "a/b.txt/c"] {
        let opened = folders.checkpoints.open(&conversation(), "one", Path::new(path)).await;
        assert!(matches!(opened, Err(CheckpointError::NotFound(_))), "{path:?}");
    }
    let missing = folders.checkpoints.open(&conversation(), "../one", Path::new("a/b.txt")).await;
    assert!(matches!(missing, Err(CheckpointError::NotFound(_))));
    assert!(folders.checkpoints.open(&conversation(), "one", Path::new("a/b.txt")).await.is_ok());
}

#[tokio::test]
async fn what_cannot_be_in_a_checkpoint_is_left_out_and_named() {
    let folders = Folders::new();
    folders.put("kept", "kept");
    symlink("/etc/passwd", folders.workspace().join("absolute")).unwrap();
    symlink("../../outside", folders.workspace().join("relative")).unwrap();
    symlink("kept", folders.workspace().join("inside")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(folders.workspace().join("socket")).unwrap();
    let taken = folders.take("one").await;
    drop(socket);
    assert_eq!((taken.files, taken.left_out.links, taken.left_out.special), (2, 2, 1));
    assert_eq!(taken.left_out.examples[0], "absolute: a link that leaves the workspace");
    let restored = folders.restore("one", "restored").await;
    assert_eq!(fs::read_dir(restored).unwrap().count(), 2);
}

#[tokio::test]
async fn a_change_that_keeps_size_and_time_is_found() {
    let folders = Folders::new();
    folders.put("racy", "before");
    let path = folders.workspace().join("racy");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    folders.take("one").await;
    for (round, content) in ["after1", "after2"].into_iter().enumerate() {
        fs::write(&path, content).unwrap();
        File::open(&path).unwrap().set_times(FileTimes::new().set_modified(modified)).unwrap();
        let id = format!("round {round}");
        folders.take(&id).await;
        let restored = folders.restore(&id, &id).await;
        assert_eq!(fs::read_to_string(restored.join("racy")).unwrap(), content);
    }
}

#[tokio::test]
async fn a_workspace_beyond_a_limit_is_refused_with_the_limit() {
    let folders = Folders::new();
    folders.put("a/b/c/file", vec![0; 100]);
    folders.put("other", vec![0; 60]);
    let limits = Limits { entries: 5, bytes: 160, file_bytes: 100, path_bytes: 10, depth: 3 };
    folders
        .checkpoints
        .clone()
        .with_limits(limits)
        .take(&crate::folders::take(&folders.workspace(), "fits"))
        .await
        .unwrap();
    let tight = [
        (Limits { entries: 4, ..limits }, "the number of files exceeds the limit of 4"),
        (Limits { bytes: 159, ..limits }, "the size of all files exceeds the limit of 159"),
        (Limits { file_bytes: 99, ..limits }, "the size of a file exceeds the limit of 99"),
        (Limits { path_bytes: 9, ..limits }, "the length of a/b/c/file exceeds the limit of 9"),
        (Limits { depth: 2, ..limits }, "the depth of a/b/c exceeds the limit of 2"),
    ];
    fs::remove_file(folders.workspace().with_extension("index")).unwrap();
    for (limits, message) in tight {
        let checkpoints = folders.checkpoints.clone().with_limits(limits);
        let taken = checkpoints.take(&crate::folders::take(&folders.workspace(), "tight")).await;
        assert_eq!(taken.unwrap_err().to_string(), message);
        let restored = checkpoints.restore(&crate::folders::restore(&emptied(&folders), "fits")).await;
        assert!(matches!(restored, Err(CheckpointError::Limit { .. })), "{restored:?}");
        assert_eq!(picture(&emptied(&folders)).len(), 0);
    }
}

fn emptied(folders: &Folders) -> PathBuf {
    let folder = folders.temporary.path().join("emptied");
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn a_workspace_that_is_not_empty_is_not_restored_into() {
    let folders = Folders::new();
    folders.put("kept", "kept");
    folders.take("one").await;
    folders.put("mine", "mine");
    let refused = folders.try_restore("one", "workspace").await;
    assert!(matches!(refused, Err(CheckpointError::NotEmpty)));
    assert_eq!(picture(&folders.workspace()).len(), 2);
}

#[tokio::test]
async fn p1_the_first_checkpoint_after_a_restore_stores_only_what_changed() {
    let folders = Folders::new();
    for file in 0..100 {
        folders.put(&format!("{file}"), format!("file {file}"));
    }
    folders.take("one").await;
    let restored = folders.restore("one", "restored").await;
    fs::write(restored.join("5"), "changed").unwrap();
    let taken = folders.checkpoints.take(&crate::folders::take(&restored, "two")).await.unwrap();
    assert_eq!(taken.new_blobs, 2, "the file and the listing");
}
