//! The layout of sandboxes on disk, and the records of their executions.
//!
//! ```text
//! <root>/<sandbox>/workspace, home, tmp           bound into the sandbox
//!                  output/<execution>/stdout, stderr   bound read-only, so that later commands can read them
//!                  executions/<execution>/…       never visible inside: a program that could lock or write these
//!                                                 files could pretend to be running, or to have ended
//!                  label                          to whom it belongs
//!                  paused                         exists while the sandbox is paused
//! <root>/.running/<sandbox>/<execution>           every execution that may be alive
//! <root>/.killed/<sandbox>                        being removed
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use outlast_core::{ExecutionId, SandboxId};

use super::super::{Output, SandboxError, is_file_name};

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) root: PathBuf,
}

impl Place {
    pub(super) fn new(root: PathBuf) -> io::Result<Place> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        let place = Place { root: root.canonicalize()? };
        for folder in [place.markers(), place.killed()] {
            private_folder(&folder)?;
        }
        Ok(place)
    }

    /// The folder of a sandbox, whether or not it exists.
    pub(super) fn sandbox(&self, id: &SandboxId) -> Result<Folder, SandboxError> {
        checked(id.as_str())?;
        Ok(Folder { path: self.root.join(id.as_str()) })
    }

    pub(super) fn killed(&self) -> PathBuf {
        self.root.join(".killed")
    }

    fn markers(&self) -> PathBuf {
        self.root.join(".running")
    }

    pub(super) fn mark(&self, id: &SandboxId, execution: &ExecutionId) -> io::Result<()> {
        let folder = self.markers().join(id.as_str());
        loop {
            private_folder(&folder)?;
            match File::create(folder.join(execution.as_str())) {
                // Somebody removed the empty folder meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => return result.map(drop),
            }
        }
    }

    pub(super) fn unmark(&self, id: &SandboxId, execution: &ExecutionId) -> io::Result<()> {
        let folder = self.markers().join(id.as_str());
        gone_is_ok(fs::remove_file(folder.join(execution.as_str())))?;
        match fs::remove_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            result => gone_is_ok(result),
        }
    }

    /// The sandboxes that have a label, with it.
    pub(super) fn labels(&self) -> io::Result<Vec<(SandboxId, String)>> {
        self.labelled(names(&self.root)?.into_iter().map(SandboxId::from).collect())
    }

    /// Those of these sandboxes that have a label, with it.
    pub(super) fn labelled(&self, sandboxes: Vec<SandboxId>) -> io::Result<Vec<(SandboxId, String)>> {
        let mut labels = Vec::new();
        for id in sandboxes {
            let folder = Folder { path: self.root.join(id.as_str()) };
            if let Some(label) = small_text(&folder.label())? {
                labels.push((id, label));
            }
        }
        Ok(labels)
    }

    /// The sandboxes in which something may be alive.
    pub(super) fn marked(&self) -> io::Result<Vec<SandboxId>> {
        Ok(names(&self.markers())?.iter().map(SandboxId::from).collect())
    }

    pub(super) fn marked_in(&self, id: &SandboxId) -> io::Result<Vec<ExecutionId>> {
        Ok(names(&self.markers().join(id.as_str()))?.iter().map(ExecutionId::from).collect())
    }
}

/// The names in a folder that may be missing.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[derive(Clone, Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    pub(super) fn create(&self, label: &str) -> io::Result<()> {
        private_folder(&self.path)?;
        if !self.exists() {
            // Before anything else, so that nothing is left that nobody can assign. It needs no sync: after a crash of the
            // machine nothing runs here, and the conversation still knows its sandbox.
            fs::write(self.label(), label)?;
        }
        for folder in [
            self.home(),
            self.tmp(),
            self.output(),
            self.path.join("executions"),
            self.workspace(), // last: a sandbox without one was not finished, and is created again
        ] {
            private_folder(&folder)?;
        }
        Ok(())
    }

    /// Keeps others from pausing, resuming, killing or starting something in this sandbox until it is dropped, also those in
    /// other processes. `None` if there is no folder.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        match File::open(&self.path) {
            Ok(folder) => folder.lock().map(|()| Some(folder)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn exists(&self) -> bool {
        self.workspace().is_dir()
    }

    /// Says to whom the sandbox belongs.
    fn label(&self) -> PathBuf {
        self.path.join("label")
    }

    pub(super) fn workspace(&self) -> PathBuf {
        self.path.join("workspace")
    }

    pub(super) fn home(&self) -> PathBuf {
        self.path.join("home")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.path.join("tmp")
    }

    pub(super) fn output(&self) -> PathBuf {
        self.path.join("output")
    }

    /// The index that checkpoints keep about the workspace.
    pub(super) fn index(&self) -> PathBuf {
        self.path.join("index")
    }

    pub(super) fn paused(&self) -> PathBuf {
        self.path.join("paused")
    }

    /// Those of every execution of this sandbox.
    pub(super) fn executions(&self) -> io::Result<Vec<Records>> {
        let names = names(&self.path.join("executions"))?;
        names.iter().map(|name| self.execution(&name.into()).map_err(io::Error::other)).collect()
    }

    pub(super) fn execution(&self, id: &ExecutionId) -> Result<Records, SandboxError> {
        checked(id.as_str())?;
        Ok(Records {
            control: self.path.join("executions").join(id.as_str()),
            output: self.output().join(id.as_str()),
        })
    }
}

/// The files of one execution.
#[derive(Clone, Debug)]
pub(super) struct Records {
    control: PathBuf,
    output: PathBuf,
}

impl Records {
    pub(super) fn create(&self) -> io::Result<()> {
        private_folder(&self.control)?;
        private_folder(&self.output)
    }

    pub(super) fn known(&self) -> bool {
        self.control.is_dir()
    }

    /// Written by the outer bwrap process, which keeps it open and locked until it has recorded how the program ended.
    pub(super) fn status(&self) -> PathBuf {
        self.control.join("status")
    }

    /// Empty, and locked by the first process inside, which lives until nothing else in there does.
    pub(super) fn alive(&self) -> PathBuf {
        self.control.join("alive")
    }

    /// Why we are ending it, written before we do.
    pub(super) fn ending(&self) -> PathBuf {
        self.control.join("ending")
    }

    pub(super) fn request(&self) -> PathBuf {
        self.control.join("request")
    }

    pub(super) fn stdin(&self) -> PathBuf {
        self.control.join("stdin")
    }

    pub(super) fn folder(&self) -> &Path {
        &self.control
    }

    pub(super) fn output(&self, output: Output) -> PathBuf {
        self.output.join(match output {
            Output::Stdout => "stdout",
            Output::Stderr => "stderr",
        })
    }
}

/// Opens a file that only this user can read, and creates it if it is missing.
pub(super) fn private_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Creates a folder that only this user can enter, unless it exists. It never creates parents, because they may just have
/// been removed on purpose.
fn private_folder(path: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        result => result,
    }
}

/// Whether another process, or another part of this one, holds the lock.
pub(super) fn is_locked(path: &Path) -> io::Result<bool> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// The whole text of a small file; absent if there is none.
pub(super) fn small_text(path: &Path) -> io::Result<Option<String>> {
    /// Far more than we or bwrap write.
    const BYTES_MAX: u64 = 64 * 1024;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(Some(text))
}

pub(super) fn gone_is_ok(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Ids become names of folders.
fn checked(id: &str) -> Result<(), SandboxError> {
    if !is_file_name(id) {
        return Err(SandboxError::Refused(format!("invalid id {id:?}")));
    }
    Ok(())
}
