//! Checkpoints that nobody took: written by hand into the storage, each to do harm when it is restored.

use std::fs;
use std::path::Path;

use outlast_engine::checkpoints::{CheckpointError, Limits};
use serde_json::{Value, json};

use crate::folders::{Between, Folders, conversation, picture};

impl Folders {
    fn forge_blob(&self, content: &[u8]) -> String {
        let hash = blake3::hash(content).to_hex().to_string();
        self.forge_blob_as(&hash, &zstd::bulk::compress(content, 1).unwrap());
        hash
    }

    fn forge_blob_as(&self, hash: &str, stored: &[u8]) {
        let folder = self.storage().join("blobs").join(&hash[..2]);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(hash), stored).unwrap();
    }

    fn forge_file(&self, name: impl Into<Value>, content: &str) -> Value {
        let hash = self.forge_blob(content.as_bytes());
        let file = json!({"size": content.len(), "hash": hash});
        json!({"name": name.into(), "mode": 0o644, "modified": 0, "node": {"file": file}})
    }

    fn forge_listing(&self, entries: &Value) -> Value {
        let listing = entries.to_string();
        json!({"hash": self.forge_blob(listing.as_bytes()), "size": listing.len()})
    }

    fn forge(&self, root: Value, files: u64, bytes: u64) {
        let record = json!({"version": 1, "root": root, "files": files, "bytes": bytes,
            "takenAt": "2026-01-01T00:00:00.000Z"});
        self.forge_record(&record);
    }

    fn forge_record(&self, record: &Value) {
        let folder = self.storage().join("checkpoints");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("forged"), record.to_string()).unwrap();
    }

    async fn assert_refused(&self, what: &str, message: &str) {
        let outside = picture(self.temporary.path()).len();
        let error = self.try_restore("forged", "victim").await.unwrap_err();
        assert!(error.to_string().contains(message), "{what}: {error}");
        assert_eq!(picture(&self.temporary.path().join("victim")).len(), 0, "{what}: nothing is left");
        fs::remove_dir(self.temporary.path().join("victim")).unwrap();
        assert_eq!(picture(self.temporary.path()).len(), outside, "{what}: nothing outside");
    }
}

#[tokio::test]
async fn a_forged_checkpoint_that_is_harmless_is_restored() {
    let folders = Folders::new();
    let root = folders.forge_listing(&json!([folders.forge_file("a", "text")]));
    folders.forge(root, 1, 4);
    assert_eq!(fs::read_to_string(folders.restore("forged", "restored").await.join("a")).unwrap(), "text");
}

#[tokio::test]
async fn names_that_are_not_plain_names_are_refused() {
    let long = "x".repeat(256);
    let names = [
        json!(""),
        json!("."),
        json!(".."),
        json!("/etc/passwd"),
        json!("../outside"),
        json!("a/b"),
        json!("a/"),
        json!("a\0b"),
        json!([46, 46]),
        json!([47]),
        json!(long),
    ];
    for name in names {
        let folders = Folders::new();
        let root = folders.forge_listing(&json!([folders.forge_file(name.clone(), "text")]));
        folders.forge(root, 1, 4);
        folders.assert_refused(&name.to_string(), "is not a plain file name").await;
    }
}

#[tokio::test]
async fn links_that_leave_the_workspace_are_refused() {
    for target in ["/etc/passwd", "..", "../outside", "a/../..", "b/..", "", "a\0"] {
        let folders = Folders::new();
        let link =
            json!({"name": "link", "mode": 0o777, "modified": 0, "node": {"link": {"target": target}}});
        let root = folders.forge_listing(&json!([folders.forge_file("a", "text"), link]));
        folders.forge(root, 2, 4);
        folders.assert_refused(target, "is a link that leaves the workspace").await;
    }
}

#[tokio::test]
async fn a_name_listed_twice_cannot_put_a_file_behind_a_link() {
    let folders = Folders::new();
    let link = json!({"name": "a", "mode": 0o777, "modified": 0, "node": {"link": {"target": "b"}}});
    for entries in [
        json!([link, folders.forge_file("a", "text")]),
        json!([folders.forge_file("a", "text"), folders.forge_file(vec![97], "other")]),
        json!([folders.forge_file("b", "text"), folders.forge_file("a", "text")]),
    ] {
        folders.forge(folders.forge_listing(&entries), 2, 8);
        folders.assert_refused("twice", "is listed twice or out of order").await;
    }
}

#[tokio::test]
async fn devices_and_modes_that_grant_more_than_permissions_are_refused() {
    let folders = Folders::new();
    let device =
        json!({"name": "sda", "mode": 0o600, "modified": 0, "node": {"device": {"major": 8, "minor": 0}}});
    folders.forge(folders.forge_listing(&json!([device])), 1, 0);
    folders.assert_refused("device", "unknown variant `device`").await;
    let mut file = folders.forge_file("root", "#!/bin/sh");
    file["mode"] = json!(0o4755);
    folders.forge(folders.forge_listing(&json!([file])), 1, 9);
    folders.assert_refused("set-user-id", "more than permission bits").await;
}

#[tokio::test]
async fn a_blob_that_unfolds_to_more_than_declared_is_never_unpacked() {
    let folders = Folders::new();
    let bomb = vec![0; 64 << 20];
    let mut entry = folders.forge_file("small", "text");
    let hash = entry["node"]["file"]["hash"].as_str().unwrap().to_owned();
    folders.forge_blob_as(&hash, &zstd::bulk::compress(&bomb, 1).unwrap());
    folders.forge(folders.forge_listing(&json!([entry])), 1, 4);
    folders.assert_refused("bomb", "is larger than declared").await;

    // Declares what it has, with one blob where there must be chunks.
    entry["node"]["file"] = json!({"size": bomb.len(), "hash": folders.forge_blob(&bomb)});
    folders.forge(folders.forge_listing(&json!([entry])), 1, bomb.len() as u64);
    folders.assert_refused("no chunks", "has chunks that do not fit its size").await;

    entry["node"]["file"] = json!({"size": u64::MAX, "hash": hash});
    folders.forge(folders.forge_listing(&json!([entry])), 1, 0);
    folders.assert_refused("endless", "exceeds the limit").await;
}

#[tokio::test]
async fn listings_that_name_each_other_a_thousand_times_are_not_followed_to_the_end() {
    let mut folders = Folders::new();
    // As with the default of 200,000, only sooner.
    folders.checkpoints = folders.checkpoints.with_limits(Limits { entries: 5_000, ..Limits::default() });
    let mut listing = folders.forge_listing(&json!([folders.forge_file("a", "text")]));
    for _ in 0..20 {
        let entries: Vec<Value> = (0..100)
            .map(|n| json!({"name": format!("{n:02}"), "mode": 0o755, "modified": 0, "node": {"directory": listing}}))
            .collect();
        listing = folders.forge_listing(&json!(entries));
    }
    folders.forge(listing, 1, 4);
    folders.assert_refused("wide", "the number of files exceeds the limit").await;
    let compared =
        folders.checkpoints.compare(&conversation(), Between { before: None, after: "forged" }).await;
    assert!(matches!(compared, Err(CheckpointError::Limit { .. })));
    let listed = folders.checkpoints.list(&conversation(), "forged").await;
    assert!(matches!(listed, Err(CheckpointError::Limit { .. })));

    let mut listing = folders.forge_listing(&json!([]));
    for _ in 0..200 {
        let entry = json!({"name": "d", "mode": 0o755, "modified": 0, "node": {"directory": listing}});
        listing = folders.forge_listing(&json!([entry]));
    }
    folders.forge(listing, 0, 0);
    folders.assert_refused("deep", "the depth of the tree exceeds the limit").await;
}

#[tokio::test]
async fn records_that_lie_or_cannot_be_read_are_refused() {
    let folders = Folders::new();
    let root = folders.forge_listing(&json!([folders.forge_file("a", "text")]));
    for (files, bytes) in [(0, 4), (2, 4), (1, 3), (1, 5)] {
        folders.forge(root.clone(), files, bytes);
        folders.assert_refused("counts", "its record and its tree disagree about the number of files").await;
    }
    let good =
        json!({"version": 1, "root": root, "files": 1, "bytes": 4, "takenAt": "2026-01-01T00:00:00.000Z"});
    let spoiled = |key: &str, value: Value| {
        let mut record = good.clone();
        record[key] = value;
        record
    };
    let cases = [
        (spoiled("version", json!(2)), "unknown version 2"),
        (spoiled("extra", json!(1)), "unknown field `extra`"),
        (spoiled("root", json!({"hash": "../../etc/passwd", "size": 1})), "not a BLAKE3 hash"),
        (spoiled("root", json!({"hash": "0".repeat(64), "size": 1})), "is missing"),
        (spoiled("root", json!({"hash": root["hash"], "size": 1u64 << 40})), "the size of a listing exceeds"),
        (spoiled("padding", json!("x".repeat(2 << 20))), "the record of a checkpoint exceeds"),
    ];
    for (record, message) in cases {
        folders.forge_record(&record);
        folders.assert_refused(message, message).await;
    }
}

/// Every byte of every blob, one at a time.
#[tokio::test]
async fn a_flipped_bit_anywhere_is_found() {
    let folders = Folders::new();
    let entries = json!([folders.forge_file("a", "some text"), folders.forge_file("b", "some more text")]);
    folders.forge(folders.forge_listing(&entries), 2, 23);
    folders.restore("forged", "before").await;
    let mut flipped = 0;
    for blob in blobs(&folders.storage()) {
        let good = fs::read(&blob).unwrap();
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            fs::write(&blob, &bad).unwrap();
            let restored = folders.try_restore("forged", "victim").await;
            let victim = folders.temporary.path().join("victim");
            if restored.is_ok() {
                // A bit of the compressed form that does not matter to what it unfolds to.
                assert_eq!(picture(&victim).len(), 2);
                assert_eq!(fs::read_to_string(victim.join("a")).unwrap(), "some text");
                assert_eq!(fs::read_to_string(victim.join("b")).unwrap(), "some more text");
                fs::remove_dir_all(&victim).unwrap();
                continue;
            }
            assert_eq!(picture(&victim).len(), 0);
            flipped += 1;
        }
        fs::write(&blob, &good).unwrap();
    }
    assert!(flipped > 100, "{flipped}");
}

fn blobs(storage: &Path) -> Vec<std::path::PathBuf> {
    let inside =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    inside(&storage.join("blobs")).iter().flat_map(|folder| inside(folder)).collect()
}

#[tokio::test]
async fn a_damaged_checkpoint_does_not_spoil_the_next_one() {
    let folders = Folders::new();
    folders.put("a/one", "1");
    folders.put("b/two", "2");
    folders.take("one").await;
    for blob in blobs(&folders.storage()) {
        fs::remove_file(blob).unwrap();
    }
    folders.put("a/one", "changed");
    folders.take("two").await;
    assert_eq!(picture(&folders.restore("two", "two").await), picture(&folders.workspace()));
}

/// A program in the sandbox swaps directories for links while checkpoints are taken.
#[test]
fn a_link_swapped_in_during_the_walk_never_leads_outside() {
    let folders = Folders::new();
    let secret = folders.temporary.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("file"), "the canary").unwrap();
    folders.put("flips/file", "harmless");
    let workspace = folders.workspace();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::rename(workspace.join("flips"), workspace.join("away")).unwrap();
                std::os::unix::fs::symlink(&secret, workspace.join("flips")).unwrap();
                fs::remove_file(workspace.join("flips")).unwrap();
                fs::rename(workspace.join("away"), workspace.join("flips")).unwrap();
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            for round in 0..200 {
                folders.take(&format!("{}", round % 2)).await;
            }
        });
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for blob in blobs(&folders.storage()) {
        let content = zstd::stream::decode_all(&*fs::read(blob).unwrap()).unwrap();
        assert!(!String::from_utf8_lossy(&content).contains("canary"));
    }
}
