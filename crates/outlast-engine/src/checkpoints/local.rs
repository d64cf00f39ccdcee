//! A workspace in a directory of this machine.
//!
//! Every path is resolved by the kernel from one directory handle, beneath it and without following links
//! (`openat2`). A link that replaces a directory between two calls makes the second call fail.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat,
    futimens, mkdirat, open, openat2, readlinkat, renameat, statat, symlinkat, unlinkat, utimensat,
};

use super::workspace::{Attributes, Found, FoundKind, NewFile, OpenFile, Stat, Workspace};

const NANOS: i64 = 1_000_000_000;
/// Modes of what a person puts there: what most systems give new files and folders.
const FILE_MODE: u32 = 0o644;
const FOLDER_MODE: u32 = 0o755;

pub struct LocalWorkspace {
    root: OwnedFd,
    index: PathBuf,
}

impl LocalWorkspace {
    /// `index` is a file beside the workspace, where nothing that runs in the sandbox can reach it.
    pub fn open(root: &Path, index: PathBuf) -> io::Result<LocalWorkspace> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(LocalWorkspace { root: open(root, flags, Mode::empty())?, index })
    }

    fn resolve(&self, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        Ok(openat2(&self.root, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, mode, beneath)?)
    }

    fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
    }

    /// The directory above `path`, and the last name of `path`.
    fn above<'p>(&self, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok((self.directory(path.parent().unwrap_or(Path::new("")))?, name))
    }
}

impl Workspace for LocalWorkspace {
    fn now(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    }

    fn list(&self, directory: &Path, max: usize) -> io::Result<Vec<Found>> {
        let mut entries = Dir::new(self.directory(directory)?)?;
        let mut found = Vec::new();
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let stat = match statat(entries.fd()?, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) => continue, // removed since the directory was read
                Err(error) => return Err(error.into()),
            };
            let kind = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => FoundKind::File,
                FileType::Directory => FoundKind::Directory,
                FileType::Symlink => match readlinkat(entries.fd()?, name, Vec::new()) {
                    Ok(target) => FoundKind::Link { target: target.into_bytes() },
                    Err(_) => continue, // removed or replaced since
                },
                _ => FoundKind::Special,
            };
            found.push(Found { name: name.to_bytes().to_vec(), kind, stat: stat_of(&stat) });
            if found.len() > max {
                break;
            }
        }
        Ok(found)
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn OpenFile>> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.resolve(file, flags, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&fd)?.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Box::new(LocalFile(File::from(fd))))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let (above, name) = self.above(path)?;
        Ok(mkdirat(above, name, Mode::RWXU)?)
    }

    fn make_file(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(Box::new(LocalFile(File::from(self.resolve(path, flags, Mode::RUSR | Mode::WUSR)?))))
    }

    fn make_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        let (above, name) = self.above(path)?;
        Ok(symlinkat(target, above, name)?)
    }

    fn set_attributes(&self, path: &Path, attributes: Attributes) -> io::Result<()> {
        let (above, name) = self.above(path)?;
        let is_link = |mode| FileType::from_raw_mode(mode) == FileType::Symlink;
        if is_link(statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode) {
            return Ok(utimensat(above, name, &times(attributes.modified), AtFlags::SYMLINK_NOFOLLOW)?);
        }
        let fd = self.directory(path)?;
        fchmod(&fd, Mode::from_raw_mode(attributes.mode))?;
        Ok(futimens(&fd, &times(attributes.modified))?)
    }

    fn put_file(&self, path: &Path, content: &[u8]) -> io::Result<bool> {
        let folders: Vec<&Path> =
            path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).collect();
        for folder in folders.into_iter().rev() {
            match self.make_directory(folder) {
                Ok(()) => {
                    let (mode, modified) = (FOLDER_MODE, self.now());
                    self.set_attributes(folder, Attributes { mode, modified })?;
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        let (above, name) = self.above(path)?;
        let before = match statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Some(stat_of(&stat).mode)
            }
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(rustix::io::Errno::NOENT) => None,
            Err(error) => return Err(error.into()),
        };
        // Written beside the workspace, where no program can get at it, and then moved in as a whole.
        let draft = self.index.with_extension("put");
        std::fs::write(&draft, content)?;
        std::fs::set_permissions(&draft, Permissions::from_mode(before.unwrap_or(FILE_MODE)))?;
        renameat(CWD, &draft, above, name)?;
        Ok(before.is_some())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (above, name) = self.above(path)?;
        Ok(unlinkat(above, name, AtFlags::empty())?)
    }

    fn clear(&self) -> io::Result<()> {
        self.clear_directory(Path::new(""))
    }

    fn index(&self) -> io::Result<Option<Vec<u8>>> {
        match std::fs::read(&self.index) {
            Ok(index) => Ok(Some(index)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn keep_index(&self, index: &[u8]) -> io::Result<()> {
        let new = self.index.with_extension("new");
        std::fs::write(&new, index)?;
        std::fs::rename(new, &self.index)
    }
}

impl LocalWorkspace {
    fn clear_directory(&self, path: &Path) -> io::Result<()> {
        let fd = match self.directory(path) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                // Our own directory, but with a mode that keeps even its owner out. A path-only handle can still be opened;
                // changing the mode by name could follow a link.
                let named = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
                let handle = format!("/proc/self/fd/{}", named.as_raw_fd());
                std::fs::set_permissions(handle, Permissions::from_mode(0o700))?;
                self.directory(path)?
            }
            fd => fd?,
        };
        fchmod(&fd, Mode::RWXU)?;
        for found in self.list(path, usize::MAX)? {
            let name = OsStr::from_bytes(&found.name);
            match found.kind {
                FoundKind::Directory => {
                    self.clear_directory(&path.join(name))?;
                    unlinkat(&fd, name, AtFlags::REMOVEDIR)?;
                }
                FoundKind::File | FoundKind::Link { .. } | FoundKind::Special => {
                    unlinkat(&fd, name, AtFlags::empty())?;
                }
            }
        }
        Ok(())
    }
}

struct LocalFile(File);

impl Read for LocalFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for LocalFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl OpenFile for LocalFile {
    fn stat(&self) -> io::Result<Stat> {
        Ok(stat_of(&fstat(&self.0)?))
    }
}

impl NewFile for LocalFile {
    fn finish(&mut self, attributes: Attributes) -> io::Result<()> {
        fchmod(&self.0, Mode::from_raw_mode(attributes.mode))?;
        Ok(futimens(&self.0, &times(attributes.modified))?)
    }
}

fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(NANOS).saturating_add(nanos);
    Stat {
        mode: stat.st_mode & 0o777,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: nanos(stat.st_mtime, stat.st_mtime_nsec as i64),
        changed: nanos(stat.st_ctime, stat.st_ctime_nsec as i64),
        node: stat.st_ino,
    }
}

/// Sets the time of modification and leaves the time of access alone.
fn times(modified: i64) -> Timestamps {
    let modified = Timespec { tv_sec: modified.div_euclid(NANOS), tv_nsec: modified.rem_euclid(NANOS) as _ };
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: modified }
}
