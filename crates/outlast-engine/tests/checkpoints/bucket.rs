//! The same in a bucket. `proof/s3/run` starts a server that speaks S3 and says in the environment where it is.

use std::fs;
use std::time::Duration;

use outlast_core::Timestamp;
use outlast_engine::checkpoints::{CheckpointError, Checkpoints, Keep};
use tokio_util::sync::CancellationToken;

use crate::folders::{Between, Folders, conversation, picture};

#[tokio::test]
#[ignore = "needs a server that speaks S3: run proof/s3/run"]
async fn x9_checkpoints_in_a_bucket_are_taken_restored_compared_and_removed() {
    let mut folders = Folders::new();
    folders.checkpoints = Checkpoints::in_bucket("s3://checkpoints/some/prefix").unwrap();
    for file in 0..200 {
        folders.put(&format!("{}/file {file}", file % 7), format!("file {file}"));
    }
    folders.put("big", vec![b'x'; 9 << 20]);
    assert_eq!(folders.take("one").await.files, 201);
    let one = picture(&folders.workspace());
    folders.put("3/file 3", "changed");
    folders.put("odd #name?", "new");
    let second = folders.take("two").await;
    assert_eq!(second.new_blobs, 4, "two files and two listings");
    assert_eq!(picture(&folders.restore("one", "one").await), one);
    assert_eq!(picture(&folders.restore("two", "two").await), picture(&folders.workspace()));
    assert_eq!(folders.compare("one", "two").await.len(), 2);
    let between = Between { before: Some("one"), after: "two" };
    assert!(folders.checkpoints.diff(&conversation(), between).await.unwrap().contains("+changed"));

    // Another conversation whose name begins like this one's.
    let mut other = crate::folders::take(&folders.workspace(), "one");
    other.conversation = "c10".into();
    folders.checkpoints.take(&other).await.unwrap();

    let now = Timestamp(jiff::Timestamp::now().as_millisecond()).after(Duration::from_secs(2 * 60 * 60));
    let (conversation, ids) = (conversation(), ["two".to_owned()]);
    let swept = folders
        .checkpoints
        .keep(&Keep { conversation: &conversation, ids: &ids, now, stop: CancellationToken::new() })
        .await
        .unwrap();
    assert_eq!((swept.checkpoints, swept.blobs), (1, 3), "a file and two listings");
    assert!(matches!(folders.try_restore("one", "gone").await, Err(CheckpointError::NotFound(_))));
    fs::remove_dir_all(folders.temporary.path().join("two")).unwrap();
    assert_eq!(picture(&folders.restore("two", "two").await), picture(&folders.workspace()));

    while !folders.checkpoints.forget(&conversation).await.unwrap() {}
    assert!(matches!(folders.try_restore("two", "gone").await, Err(CheckpointError::NotFound(_))));
    assert_eq!(folders.checkpoints.list(&other.conversation, "one").await.unwrap().len(), 202);
}

#[test]
fn a_url_that_names_no_bucket_is_refused() {
    for url in ["", "checkpoints", "file:///tmp", "s3://", "s3:///prefix", "s3://bucket/../other"] {
        assert!(Checkpoints::in_bucket(url).is_err(), "{url}");
    }
    Checkpoints::in_bucket("s3://bucket").map(drop).unwrap();
}
