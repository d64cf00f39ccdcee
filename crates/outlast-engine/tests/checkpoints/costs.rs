//! A checkpoint costs what has changed. Counts, not times: other tests run beside. The figures of this machine
//! come from `cargo run --release --example checkpoint_costs`.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_engine::checkpoints::{Attributes, Found, LocalWorkspace, NewFile, OpenFile, Take, Workspace};

use crate::folders::{Folders, open, take};

#[tokio::test]
async fn i18_ten_changed_files_among_ten_thousand_store_ten_files_and_their_directories() {
    let folders = Folders::new();
    for file in 0..10_000 {
        folders.put(&format!("{}/{file}", file / 100), format!("file {file}"));
    }
    folders.take("one").await;
    for file in 0..10 {
        folders.put(&format!("{file}/{}", file * 100), format!("changed {file}"));
    }
    let begun = std::time::Instant::now();
    let second = folders.take("two").await;
    println!(
        "10 of 10,000 changed, all of them read again: {:?}, {} blobs, {} bytes",
        begun.elapsed(),
        second.new_blobs,
        second.new_bytes
    );
    // Ten files, ten directories, the root.
    assert_eq!(second.new_blobs, 21);
    assert!(second.new_bytes < 100_000, "{}", second.new_bytes);
    let nothing = folders.take("three").await;
    assert_eq!((nothing.new_blobs, nothing.new_bytes), (0, 0));
}

#[tokio::test]
async fn i18_a_file_that_has_not_changed_is_not_read_again() {
    let folders = Folders::new();
    folders.put("file", "old content");
    let opened = Arc::new(AtomicUsize::new(0));
    let counting = || Arc::new(Later { workspace: open(&folders.workspace()), opened: opened.clone() });
    for (id, opens) in [("one", 1), ("two", 1), ("three", 2), ("four", 2)] {
        if id == "three" {
            folders.put("file", "new content");
        }
        let request = Take { workspace: counting(), ..take(&folders.workspace(), id) };
        assert_eq!(folders.checkpoints.take(&request).await.unwrap().files, 1);
        assert_eq!(opened.load(Ordering::Relaxed), opens, "{id}");
    }
    assert_eq!(folders.compare("one", "three").await.len(), 1);
    assert!(folders.compare("three", "four").await.is_empty());
}

/// Counts how many files are opened, and looks at them a minute later. Nobody can set the time of a change, so
/// the clock is moved instead.
struct Later {
    workspace: Arc<LocalWorkspace>,
    opened: Arc<AtomicUsize>,
}

impl Workspace for Later {
    fn now(&self) -> i64 {
        self.workspace.now() + 60_000_000_000
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn OpenFile>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.workspace.open(file)
    }

    fn list(&self, directory: &Path, max: usize) -> io::Result<Vec<Found>> {
        self.workspace.list(directory, max)
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.workspace.make_directory(path)
    }

    fn make_file(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        self.workspace.make_file(path)
    }

    fn make_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.workspace.make_link(path, target)
    }

    fn set_attributes(&self, path: &Path, attributes: Attributes) -> io::Result<()> {
        self.workspace.set_attributes(path, attributes)
    }

    fn put_file(&self, path: &Path, content: &[u8]) -> io::Result<bool> {
        self.workspace.put_file(path, content)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.workspace.remove_file(path)
    }

    fn clear(&self) -> io::Result<()> {
        self.workspace.clear()
    }

    fn index(&self) -> io::Result<Option<Vec<u8>>> {
        self.workspace.index()
    }

    fn keep_index(&self, index: &[u8]) -> io::Result<()> {
        self.workspace.keep_index(index)
    }
}
