//! The files of a sandbox as checkpoints, and people who change them, see them.

use std::io::{self, Read, Write};
use std::path::Path;

/// A workspace that can be walked and filled. Paths are relative to it; the empty path is the workspace.
///
/// All methods block and are called on the pool for blocking work. No method follows a symbolic link, even
/// one that was put there a moment ago: whoever writes in the workspace may be hostile.
pub trait Workspace: Send + Sync {
    /// The clock that the times of files come from, in nanoseconds since 1970.
    fn now(&self) -> i64;

    /// What is in a directory, in any order; at most `max` entries and one more if there are more.
    fn list(&self, directory: &Path, max: usize) -> io::Result<Vec<Found>>;

    /// Opens a regular file. Anything else is `NotFound`, and opening a pipe does not block.
    fn open(&self, file: &Path) -> io::Result<Box<dyn OpenFile>>;

    /// The directory above exists.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// The directory above exists, and the file does not.
    fn make_file(&self, path: &Path) -> io::Result<Box<dyn NewFile>>;

    fn make_link(&self, path: &Path, target: &Path) -> io::Result<()>;

    /// Of a directory or, except for the mode, of a link.
    fn set_attributes(&self, path: &Path, attributes: Attributes) -> io::Result<()>;

    /// Creates a file or replaces it as a whole, with the folders above it. Programs in the sandbox never see a part of
    /// it. A file that is replaced keeps its mode. `false`: there was none before. Something else than a file by that
    /// name is `AlreadyExists`. One call at a time.
    fn put_file(&self, path: &Path, content: &[u8]) -> io::Result<bool>;

    /// Removes a file, or a link itself. A folder is `IsADirectory`.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes everything in the workspace, whatever its mode.
    fn clear(&self) -> io::Result<()>;

    /// What `keep_index` was last given. The index lives as long as the workspace and is out of reach of
    /// whatever runs in it.
    fn index(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces the index as a whole. It need not survive a power failure.
    fn keep_index(&self, index: &[u8]) -> io::Result<()>;
}

pub trait OpenFile: Read + Send {
    fn stat(&self) -> io::Result<Stat>;
}

pub trait NewFile: Write + Send {
    /// Called once, after the last byte.
    fn finish(&mut self, attributes: Attributes) -> io::Result<()>;
}

#[derive(Clone, Debug)]
pub struct Found {
    pub name: Vec<u8>,
    pub kind: FoundKind,
    pub stat: Stat,
}

#[derive(Clone, Debug)]
pub enum FoundKind {
    File,
    Directory,
    Link {
        target: Vec<u8>,
    },
    /// A device, a socket or a pipe.
    Special,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Permission bits.
    pub mode: u32,
    pub size: u64,
    /// When the content changed, as the program that wrote it says (mtime), in nanoseconds since 1970.
    pub modified: i64,
    /// When the content or an attribute changed, as the system says (ctime). Programs cannot set it.
    pub changed: i64,
    /// Names the file for as long as it exists (the inode number).
    pub node: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    pub mode: u32,
    pub modified: i64,
}
