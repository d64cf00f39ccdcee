//! What is removed, and what is not.

use std::path::Path;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_engine::checkpoints::{CheckpointError, Keep, Swept};
use tokio_util::sync::CancellationToken;

use crate::folders::{Folders, conversation, picture};

fn now() -> Timestamp {
    Timestamp(jiff::Timestamp::now().as_millisecond())
}

async fn keep(folders: &Folders, ids: &[&str], now: Timestamp) -> Swept {
    let ids: Vec<String> = ids.iter().map(|&id| id.to_owned()).collect();
    folders
        .checkpoints
        .keep(&Keep { conversation: &conversation(), ids: &ids, now, stop: CancellationToken::new() })
        .await
        .unwrap()
}

fn files_in(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let count = |path: &Path| if path.is_dir() { files_in(path) } else { 1 };
    entries.map(|entry| count(&entry.unwrap().path())).sum()
}

#[tokio::test]
async fn x9_blobs_that_no_kept_checkpoint_needs_are_removed_once_they_are_old() {
    let folders = Folders::new();
    folders.put("shared", "in all of them");
    folders.put("a/first", "only in the first");
    folders.take("one").await;
    std::fs::remove_dir_all(folders.workspace().join("a")).unwrap();
    folders.put("second", "only in the second");
    folders.take("two").await;
    let two = picture(&folders.workspace());

    assert_eq!(keep(&folders, &["two"], now()).await, Swept::default(), "everything is young");
    let later = now().after(Duration::from_secs(2 * 60 * 60));
    let swept = keep(&folders, &["two"], later).await;
    // The file, the listing of `a` and the listing of the root.
    assert_eq!((swept.checkpoints, swept.blobs), (1, 3));
    assert_eq!(keep(&folders, &["two"], later).await, Swept::default());
    assert!(matches!(folders.try_restore("one", "one").await, Err(CheckpointError::NotFound(_))));
    assert_eq!(picture(&folders.restore("two", "two").await), two);
    // A listing, two files and a record.
    assert_eq!(files_in(&folders.storage()), 4);
}

#[tokio::test]
async fn x9_a_checkpoint_whose_base_was_removed_is_taken_from_scratch() {
    let folders = Folders::new();
    folders.put("file", "the same all the time");
    folders.take("one").await;
    let later = now().after(Duration::from_secs(2 * 60 * 60));
    assert_eq!(keep(&folders, &[], later).await.checkpoints, 1);
    assert_eq!(files_in(&folders.storage()), 0);
    let taken = folders.take("two").await;
    assert_eq!(taken.new_blobs, 2);
    assert_eq!(picture(&folders.restore("two", "two").await), picture(&folders.workspace()));
}

/// Files get contents again that former checkpoints had, and retention runs beside, with a clock that makes
/// everything old that was there when the round began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x9_checkpoints_taken_while_others_are_removed_are_whole() {
    let folders = Folders::new();
    for round in 0..40 {
        for file in 0..20 {
            folders.put(&format!("{}/{file}", file % 4), format!("{file} {}", (round + file) % 3));
        }
        let former = if round == 0 { "none yet".to_owned() } else { format!("{}", round - 1) };
        let id = format!("{round}");
        let clock = now().after(Duration::from_secs(60 * 60));
        let ids = [former];
        let conversation = conversation();
        let request =
            Keep { conversation: &conversation, ids: &ids, now: clock, stop: CancellationToken::new() };
        let take = crate::folders::take(&folders.workspace(), &id);
        let (taken, kept) = tokio::join!(folders.checkpoints.take(&take), folders.checkpoints.keep(&request));
        taken.unwrap();
        kept.unwrap();
        let restored = folders.restore(&id, &format!("restored {round}")).await;
        assert_eq!(picture(&restored), picture(&folders.workspace()), "round {round}");
    }
}

#[tokio::test]
async fn i13_a_forgotten_conversation_leaves_nothing_and_takes_nothing_from_others() {
    let folders = Folders::new();
    for file in 0..1_100 {
        folders.put(&format!("{file}"), format!("file {file}"));
    }
    folders.take("one").await;
    let mut other = crate::folders::take(&folders.workspace(), "one");
    for id in ["c1/../c2", "c10", "."] {
        other.conversation = id.into();
        folders.checkpoints.take(&other).await.unwrap();
    }
    let before = files_in(&folders.temporary.path().join("checkpoints"));
    let leftover = folders.storage().join("blobs/00/half#1");
    std::fs::create_dir_all(leftover.parent().unwrap()).unwrap();
    std::fs::write(&leftover, "a crash left this").unwrap();

    assert!(!folders.checkpoints.forget(&conversation()).await.unwrap(), "bounded steps");
    assert!(folders.checkpoints.forget(&conversation()).await.unwrap());
    assert!(!folders.storage().exists());
    assert!(folders.checkpoints.forget(&conversation()).await.unwrap(), "again: nothing to do");
    assert_eq!(files_in(&folders.temporary.path().join("checkpoints")), before / 4 * 3);
    folders.checkpoints.list(&other.conversation, "one").await.unwrap();
}
