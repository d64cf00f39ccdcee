//! Kills a process at every fault point, repeatedly in the same folder. Acknowledged records are there, byte
//! for byte, the log has no holes, and the next owner continues.
//!
//! The writer is this same test binary, started as a separate process that aborts itself. That proves what
//! survives the process. What survives the machine depends on fsync.
#![cfg(feature = "fault-points")]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use outlast_core::Seq;
use outlast_store::suite::{append, conversation};
use outlast_store::{
    Append, AppendError, Change, Newest, SqliteOptions, SqliteStore, Store, Table, fault, suite,
};

const CONVERSATIONS: usize = 4;
const APPENDS: usize = 60;
const DELETES: usize = 6;
const DOOMED: [&str; 3] = ["one", "two", "three"];

fn options() -> SqliteOptions {
    SqliteOptions {
        chunk_bytes: 300,
        hot_bytes: 1500,
        hot_rows: 24,
        unsettled_bytes: 1200,
        frame: Duration::ZERO,
        ..SqliteOptions::default()
    }
}

fn line(c: usize, seq: u64) -> String {
    format!("record {seq} of {c}, {}", "x".repeat((seq % 40) as usize))
}

#[test]
fn what_was_acknowledged_survives_a_crash_at_every_point() {
    for point in fault::POINTS {
        let folder = tempfile::tempdir().unwrap();
        let mut crashes = 0;
        for hit in [1, 2, 5] {
            // The points in `open` are reached once in each process.
            let hit = if point.starts_with("open.") { 1 } else { hit };
            crashes += usize::from(!run_writer(folder.path(), &format!("{point}:{hit}")));
            check(folder.path(), point);
        }
        assert_eq!(crashes, 3, "{point} was not reached in every run");
        assert!(run_writer(folder.path(), "none"), "a run without faults failed after {point}");
        check(folder.path(), point);
    }
}

/// Returns whether the writer finished.
fn run_writer(folder: &Path, fault: &str) -> bool {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    writer.args(["--exact", "the_writer_process", "--ignored", "--quiet"]);
    writer.env("OUTLAST_CRASH_FOLDER", folder).env("OUTLAST_FAULT", fault);
    writer.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

/// The file in which the writer notes each acknowledged record of a conversation.
fn acknowledged(folder: &Path, c: usize) -> PathBuf {
    folder.join(format!("acknowledged-{c}"))
}

fn check(folder: &Path, point: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open_with(&folder.join("outlast.db"), options()).unwrap();
        // All of it or nothing.
        let doomed = conversation("doomed");
        let (records, known) =
            (suite::all(&store, &doomed).await, store.load(&doomed, Newest::NONE).await.unwrap().is_some());
        let whole = records.len() == DOOMED.len() && known;
        assert!(whole || (records.is_empty() && !known), "after {point}: {records:?}, {known}");
        for c in 0..CONVERSATIONS {
            let id = conversation(&format!("c{c}"));
            let found = suite::all(&store, &id).await;
            let expected: Vec<_> = (1..=found.len() as u64).map(|seq| (seq, line(c, seq))).collect();
            assert_eq!(found, expected, "after {point}");
            let acknowledged = fs::metadata(acknowledged(folder, c)).map_or(0, |file| file.len());
            assert!(found.len() as u64 >= acknowledged, "after {point}: {acknowledged} were acknowledged");
            let document = store.get(Table::Conversations, id.as_str()).await.unwrap();
            let reflected = document.map_or(0, |document| document.seq.0);
            assert_eq!(reflected, found.len() as u64, "after {point}: document and log disagree");
        }
    });
}

#[test]
#[ignore = "started as a process by the test above"]
fn the_writer_process() {
    let Some(folder) = std::env::var_os("OUTLAST_CRASH_FOLDER").map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = SqliteStore::open_with(&folder.join("outlast.db"), options()).unwrap();
        for _ in 0..DELETES {
            create_and_delete(&store).await;
        }
        let mut writers = Vec::new();
        for c in 0..CONVERSATIONS {
            writers.push(write(&store, &folder, c));
        }
        let [a, b, c, d] = writers.try_into().ok().unwrap();
        tokio::join!(a, b, c, d);
    });
}

async fn create_and_delete(store: &SqliteStore) {
    let id = conversation("doomed");
    let fence = store.claim(&id).await.unwrap();
    let create =
        || Append { changes: vec![Change::Put(suite::head(&id, 0))], ..append(&id, fence, 0, &DOOMED) };
    loop {
        match store.append(create()).await {
            Ok(()) => break,
            // This start finishes a removal that a crashed process left behind.
            Err(AppendError::Unavailable(_)) => tokio::task::yield_now().await,
            Err(AppendError::Conflict { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    store.delete(&id).await.unwrap();
    assert!(suite::all(store, &id).await.is_empty());
}

async fn write(store: &SqliteStore, folder: &Path, c: usize) {
    let id = conversation(&format!("c{c}"));
    let fence = store.claim(&id).await.unwrap();
    let mut last = suite::all(store, &id).await.len() as u64;
    // One byte for each acknowledged record. Records that an earlier run wrote without a reply count too.
    let mut acknowledged = File::create(acknowledged(folder, c)).unwrap();
    acknowledged.write_all(&vec![b'.'; last as usize]).unwrap();
    for n in 0..APPENDS {
        let lines: Vec<String> = (1..=1 + n as u64 % 2).map(|k| line(c, last + k)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let next = last + lines.len() as u64;
        let changes = vec![Change::Put(suite::head(&id, next))];
        store.append(Append { changes, ..append(&id, fence, last, &lines) }).await.unwrap();
        acknowledged.write_all(&vec![b'.'; lines.len()]).unwrap();
        last = next;
    }
    assert_eq!(store.load(&id, Newest::NONE).await.unwrap().unwrap().last, Seq(last));
}
