//! A workspace and a folder of checkpoints, and pictures of what is in them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use outlast_core::{ConversationId, Timestamp};
use outlast_engine::checkpoints::{
    Between, CheckpointError, Checkpoints, Difference, LocalWorkspace, Restore, Restored, Take, Taken,
};
use tempfile::TempDir;

pub(crate) const NOW: Timestamp = Timestamp(1_767_225_600_000);

pub(crate) struct Folders {
    pub(crate) temporary: TempDir,
    pub(crate) checkpoints: Checkpoints,
}

impl Folders {
    /// In memory where there is such a file system: thousands of syncs would be most of the time.
    pub(crate) fn new() -> Folders {
        let memory = Path::new("/dev/shm");
        let temporary = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let temporary = temporary.unwrap();
        let checkpoints = Checkpoints::in_folder(&temporary.path().join("checkpoints")).unwrap();
        fs::create_dir_all(temporary.path().join("workspace")).unwrap();
        Folders { temporary, checkpoints }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.temporary.path().join("workspace")
    }

    pub(crate) fn storage(&self) -> PathBuf {
        self.temporary.path().join("checkpoints").join("c1")
    }

    pub(crate) fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.workspace().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) async fn try_take(&self, id: &str) -> Result<Taken, CheckpointError> {
        self.checkpoints.take(&take(&self.workspace(), id)).await
    }

    pub(crate) async fn take(&self, id: &str) -> Taken {
        self.try_take(id).await.unwrap()
    }

    /// Into `name`, a new folder beside the workspace.
    pub(crate) async fn try_restore(&self, id: &str, name: &str) -> Result<Restored, CheckpointError> {
        let into = self.temporary.path().join(name);
        fs::create_dir_all(&into).unwrap();
        self.checkpoints.restore(&restore(&into, id)).await
    }

    pub(crate) async fn restore(&self, id: &str, name: &str) -> PathBuf {
        self.try_restore(id, name).await.unwrap();
        self.temporary.path().join(name)
    }

    pub(crate) async fn compare(&self, before: &str, after: &str) -> Vec<Difference> {
        let between = Between { before: Some(before), after };
        self.checkpoints.compare(&conversation(), between).await.unwrap()
    }
}

pub(crate) fn conversation() -> ConversationId {
    ConversationId::from("c1")
}

pub(crate) fn open(folder: &Path) -> Arc<LocalWorkspace> {
    Arc::new(LocalWorkspace::open(folder, folder.with_extension("index")).unwrap())
}

pub(crate) fn take(workspace: &Path, id: &str) -> Take {
    Take { conversation: conversation(), id: id.to_owned(), workspace: open(workspace), git: None, now: NOW }
}

pub(crate) fn restore(into: &Path, id: &str) -> Restore {
    Restore { conversation: conversation(), id: id.to_owned(), workspace: open(into) }
}

/// Everything about a tree that a checkpoint keeps, by path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pictured {
    pub(crate) mode: u32,
    pub(crate) modified: (i64, i64),
    pub(crate) content: Content,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
}

pub(crate) fn picture(folder: &Path) -> BTreeMap<Vec<u8>, Pictured> {
    let mut pictures = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if meta.is_dir() {
                folders.push(path.clone());
                Content::Directory
            } else if meta.is_symlink() {
                Content::Link(fs::read_link(&path).unwrap())
            } else {
                Content::File(fs::read(&path).unwrap())
            };
            let name = path.strip_prefix(folder).unwrap().to_owned().into_os_string().into_vec();
            let pictured =
                Pictured { mode: meta.mode() & 0o777, modified: (meta.mtime(), meta.mtime_nsec()), content };
            pictures.insert(name, pictured);
        }
    }
    pictures
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}
