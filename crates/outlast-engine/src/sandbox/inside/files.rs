//! The workspace, seen from inside: the same code that walks a workspace on the server's own machine.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{HOME, WORKSPACE, incoming};
use crate::checkpoints::{Attributes, Found, FoundKind, LocalWorkspace, Stat, Workspace};

/// Paths are base64: names of files are bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub(in super::super) enum FilesQuestion {
    /// A directory, and those below it until there are `ahead` entries: whoever lists one will ask for the others.
    List {
        path: String,
        max: usize,
        ahead: usize,
    },
    Read {
        path: String,
        offset: u64,
        max: usize,
    },
    MakeDirectory {
        path: String,
    },
    /// A new file from uploads.
    MakeFile {
        path: String,
        parts: Vec<String>,
        mode: u32,
        modified: i64,
    },
    MakeLink {
        path: String,
        target: String,
    },
    SetAttributes {
        path: String,
        mode: u32,
        modified: i64,
    },
    PutFile {
        path: String,
        part: String,
    },
    RemoveFile {
        path: String,
    },
    Clear,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "files", rename_all = "snake_case")]
pub(in super::super) enum FilesAnswer {
    Listed {
        now: i64,
        directories: Vec<Listing>,
    },
    /// `length` bytes follow.
    Read {
        stat: FoundStat,
        length: usize,
    },
    Put {
        replaced: bool,
    },
    Done,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) struct Listing {
    path: String,
    entries: Vec<FoundEntry>,
}

impl Listing {
    pub(in super::super) fn decoded(self) -> io::Result<(PathBuf, Vec<Found>)> {
        let found: io::Result<Vec<Found>> = self.entries.into_iter().map(Found::try_from).collect();
        Ok((decode(&self.path)?, found?))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct FoundEntry {
    name: String,
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    stat: FoundStat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    File,
    Directory,
    Link,
    Special,
}

/// Mode, size, modified, changed, node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in super::super) struct FoundStat(u32, u64, i64, i64, u64);

impl From<Stat> for FoundStat {
    fn from(stat: Stat) -> FoundStat {
        FoundStat(stat.mode, stat.size, stat.modified, stat.changed, stat.node)
    }
}

impl From<FoundStat> for Stat {
    fn from(FoundStat(mode, size, modified, changed, node): FoundStat) -> Stat {
        Stat { mode, size, modified, changed, node }
    }
}

impl From<Found> for FoundEntry {
    fn from(Found { name, kind, stat }: Found) -> FoundEntry {
        let (kind, target) = match kind {
            FoundKind::File => (Kind::File, None),
            FoundKind::Directory => (Kind::Directory, None),
            FoundKind::Link { target } => (Kind::Link, Some(STANDARD.encode(target))),
            FoundKind::Special => (Kind::Special, None),
        };
        FoundEntry { name: STANDARD.encode(name), kind, target, stat: stat.into() }
    }
}

impl TryFrom<FoundEntry> for Found {
    type Error = io::Error;

    fn try_from(entry: FoundEntry) -> io::Result<Found> {
        let kind = match (entry.kind, entry.target) {
            (Kind::File, _) => FoundKind::File,
            (Kind::Directory, _) => FoundKind::Directory,
            (Kind::Link, target) => FoundKind::Link { target: bytes(&target.unwrap_or_default())? },
            (Kind::Special, _) => FoundKind::Special,
        };
        Ok(Found { name: bytes(&entry.name)?, kind, stat: entry.stat.into() })
    }
}

pub(super) fn answer(question: FilesQuestion) -> io::Result<(FilesAnswer, Vec<u8>)> {
    let workspace = LocalWorkspace::open(Path::new(WORKSPACE), Path::new(HOME).join("index"))?;
    let done = |result: io::Result<()>| result.map(|()| (FilesAnswer::Done, Vec::new()));
    match question {
        FilesQuestion::List { path, max, ahead } => {
            let (now, directories) = (workspace.now(), list(&workspace, decode(&path)?, max, ahead)?);
            Ok((FilesAnswer::Listed { now, directories }, Vec::new()))
        }
        FilesQuestion::Read { path, offset, max } => read(&workspace, &decode(&path)?, offset, max),
        FilesQuestion::MakeDirectory { path } => done(workspace.make_directory(&decode(&path)?)),
        FilesQuestion::MakeFile { path, parts, mode, modified } => {
            let mut file = workspace.make_file(&decode(&path)?)?;
            for part in parts {
                let part = incoming(&part)?;
                io::copy(&mut File::open(&part)?, &mut file)?;
                fs::remove_file(part)?;
            }
            done(file.finish(Attributes { mode, modified }))
        }
        FilesQuestion::MakeLink { path, target } => {
            done(workspace.make_link(&decode(&path)?, &decode(&target)?))
        }
        FilesQuestion::SetAttributes { path, mode, modified } => {
            done(workspace.set_attributes(&decode(&path)?, Attributes { mode, modified }))
        }
        FilesQuestion::PutFile { path, part } => {
            let part = incoming(&part)?;
            let replaced = workspace.put_file(&decode(&path)?, &fs::read(&part)?)?;
            fs::remove_file(part)?;
            Ok((FilesAnswer::Put { replaced }, Vec::new()))
        }
        FilesQuestion::RemoveFile { path } => done(workspace.remove_file(&decode(&path)?)),
        FilesQuestion::Clear => done(workspace.clear()),
    }
}

fn list(workspace: &LocalWorkspace, path: PathBuf, max: usize, ahead: usize) -> io::Result<Vec<Listing>> {
    let (mut listed, mut entries) = (Vec::new(), 0);
    let mut directories = vec![path];
    while let Some(path) = directories.pop() {
        let found = match workspace.list(&path, max) {
            Ok(found) => found,
            Err(error) if listed.is_empty() => return Err(error),
            Err(_) => continue, // whoever asks for it hears why
        };
        entries += found.len();
        let below = found.iter().filter(|found| matches!(found.kind, FoundKind::Directory));
        directories.extend(below.map(|found| path.join(OsString::from_vec(found.name.clone()))));
        let entries_here = found.into_iter().map(FoundEntry::from).collect();
        listed.push(Listing { path: encode(&path), entries: entries_here });
        if entries >= ahead {
            break;
        }
    }
    Ok(listed)
}

/// The attributes are those of the moment before the first byte is read. A range that was read while somebody wrote is
/// noticed by the next one, or by the next look at the attributes.
fn read(
    workspace: &LocalWorkspace,
    path: &Path,
    offset: u64,
    max: usize,
) -> io::Result<(FilesAnswer, Vec<u8>)> {
    let mut file = workspace.open(path)?;
    let stat = file.stat()?;
    io::copy(&mut (&mut file).take(offset), &mut io::sink())?;
    let mut bytes = Vec::new();
    (&mut file).take(max as u64).read_to_end(&mut bytes)?;
    Ok((FilesAnswer::Read { stat: stat.into(), length: bytes.len() }, bytes))
}

pub(in super::super) fn encode(path: &Path) -> String {
    STANDARD.encode(path.as_os_str().as_bytes())
}

fn decode(text: &str) -> io::Result<PathBuf> {
    Ok(OsString::from_vec(bytes(text)?).into())
}

fn bytes(text: &str) -> io::Result<Vec<u8>> {
    STANDARD.decode(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
