//! Killed at every point: the former checkpoint is intact, and the next one is right.
//!
//! The process that takes checkpoints is this same test binary, started again with a point at which it
//! aborts. That proves what survives the process; what survives the machine is up to fsync.

use std::path::Path;
use std::process::{Command, Stdio};

use outlast_core::Timestamp;
use outlast_engine::checkpoints::{Checkpoints, FAULT_POINTS, Keep};
use tokio_util::sync::CancellationToken;

use crate::folders::{Folders, conversation, picture, restore, take};

/// Whether the process came to its end.
fn run(folder: &Path, what: &str, fault: &str) -> bool {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "crash::the_process", "--ignored", "--quiet"]);
    process.env("OUTLAST_CRASH_FOLDER", folder).env("OUTLAST_CRASH_WHAT", what).env("OUTLAST_FAULT", fault);
    process.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
}

#[tokio::test]
#[ignore = "started by the tests of crashes, as a process of its own"]
async fn the_process() {
    let folder = std::env::var("OUTLAST_CRASH_FOLDER").unwrap();
    let folder = Path::new(&folder);
    let checkpoints = Checkpoints::in_folder(&folder.join("checkpoints")).unwrap();
    match std::env::var("OUTLAST_CRASH_WHAT").unwrap().as_str() {
        "take" => drop(checkpoints.take(&take(&folder.join("workspace"), "two")).await.unwrap()),
        "restore" => drop(checkpoints.restore(&restore(&folder.join("restored"), "one")).await.unwrap()),
        "keep" => {
            let (conversation, ids) = (conversation(), ["three".to_owned()]);
            let keep = Keep {
                conversation: &conversation,
                ids: &ids,
                now: Timestamp(i64::MAX),
                stop: CancellationToken::new(),
            };
            checkpoints.keep(&keep).await.unwrap();
        }
        other => panic!("{other}"),
    }
}

fn fill(folders: &Folders, round: usize) {
    for file in 0..100 {
        let changed = if file % 3 == 0 { round } else { 0 };
        folders.put(&format!("{}/{file}", file % 7), format!("file {file} of {changed}"));
    }
    folders.put(&format!("only {round}"), "one round");
}

#[tokio::test]
async fn p1_a_crash_while_taking_leaves_the_former_checkpoint_and_the_next_one_is_right() {
    for point in FAULT_POINTS.iter().filter(|point| point.starts_with("take.")) {
        let folders = Folders::new();
        fill(&folders, 1);
        let one = picture(&folders.workspace());
        folders.take("one").await;
        fill(&folders, 2);
        let two = picture(&folders.workspace());
        assert!(!run(folders.temporary.path(), "take", point), "{point} was reached");
        assert_eq!(picture(&folders.restore("one", "after the crash").await), one, "{point}");

        fill(&folders, 3);
        let three = picture(&folders.workspace());
        folders.take("three").await;
        assert_eq!(picture(&folders.restore("one", "one").await), one, "{point}");
        assert_eq!(picture(&folders.restore("three", "three").await), three, "{point}");
        if folders.try_restore("two", "two").await.is_ok() {
            assert_eq!(picture(&folders.temporary.path().join("two")), two, "all of it or nothing: {point}");
        }
    }
}

#[tokio::test]
async fn p1_a_crash_while_removing_checkpoints_takes_nothing_that_is_kept() {
    for point in FAULT_POINTS.iter().filter(|point| point.starts_with("keep.")) {
        let folders = Folders::new();
        let mut last = Default::default();
        for (round, id) in ["one", "two", "three"].into_iter().enumerate() {
            fill(&folders, round);
            last = picture(&folders.workspace());
            folders.take(id).await;
        }
        for time in 0..3 {
            assert!(!run(folders.temporary.path(), "keep", point), "{point} was reached");
            let name = format!("after {time}");
            assert_eq!(picture(&folders.restore("three", &name).await), last, "{point}");
        }
        assert!(run(folders.temporary.path(), "keep", "none"), "a run without a fault ends well");
        assert_eq!(picture(&folders.restore("three", "at the end").await), last, "{point}");
        assert!(folders.try_restore("one", "one").await.is_err());
    }
}

#[tokio::test]
async fn p1_a_crash_while_restoring_harms_no_checkpoint_and_can_be_repeated() {
    use outlast_engine::checkpoints::Workspace;
    for point in FAULT_POINTS.iter().filter(|point| point.starts_with("restore.")) {
        let folders = Folders::new();
        fill(&folders, 1);
        let one = picture(&folders.workspace());
        folders.take("one").await;
        let into = folders.temporary.path().join("restored");
        std::fs::create_dir(&into).unwrap();
        assert!(!run(folders.temporary.path(), "restore", point), "{point} was reached");
        crate::folders::open(&into).clear().unwrap();
        assert_eq!(picture(&folders.restore("one", "restored").await), one, "{point}");
    }
}
