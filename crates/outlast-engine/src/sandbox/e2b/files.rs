//! The workspace of a sandbox that is elsewhere, for checkpoints.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use outlast_core::SandboxId;
use tokio::runtime::Handle;

use super::super::inside::{Answer, FilesAnswer, FilesQuestion, HOME, Question, encode};
use super::asking::Repeat;
use super::{Inner, SandboxError, unexpected};
use crate::checkpoints::{Attributes, Found, NewFile, OpenFile, Stat, Workspace};

/// How many entries come with a listing of a directory: those of the directories below it, which are asked for next.
const AHEAD: usize = 20_000;
/// How much of a file is fetched or sent at a time.
const PART_BYTES: usize = 4 << 20;
/// How long one question about files may take.
const FILES_MAX: Duration = Duration::from_secs(120);
/// All indexes together. One of them has about a hundred bytes for each file.
const INDEX_BYTES_MAX: usize = 256 << 20;

/// The indexes of workspaces, which no program inside can reach.
#[derive(Default)]
pub(super) struct Indexes(Mutex<HashMap<SandboxId, Arc<[u8]>>>);

impl Indexes {
    fn get(&self, id: &SandboxId) -> Option<Arc<[u8]>> {
        self.0.lock().expect("nobody panics while holding this").get(id).cloned()
    }

    fn keep(&self, id: &SandboxId, index: &[u8]) {
        let mut all = self.0.lock().expect("nobody panics while holding this");
        if all.values().map(|index| index.len()).sum::<usize>() + index.len() > INDEX_BYTES_MAX {
            all.clear();
        }
        all.insert(id.clone(), index.into());
    }

    pub(super) fn remove(&self, id: &SandboxId) {
        self.0.lock().expect("nobody panics while holding this").remove(id);
    }
}

pub(super) struct RemoteWorkspace {
    remote: Remote,
    /// Listings that came with others. Each is used once.
    ahead: Mutex<HashMap<PathBuf, Vec<Found>>>,
}

#[derive(Clone)]
struct Remote {
    inner: Arc<Inner>,
    id: SandboxId,
    handle: Handle,
}

impl RemoteWorkspace {
    pub(super) fn new(inner: Arc<Inner>, id: SandboxId) -> RemoteWorkspace {
        let remote = Remote { inner, id, handle: Handle::current() };
        RemoteWorkspace { remote, ahead: Mutex::default() }
    }
}

impl Remote {
    /// Blocks. Wakes a sandbox that is paused: its files are to be saved before it is killed.
    fn ask(&self, question: FilesQuestion) -> io::Result<(FilesAnswer, Vec<u8>)> {
        // Whoever restores a checkpoint begins again after an error, so a change need not be safe to repeat.
        let repeat = match question {
            FilesQuestion::List { .. } | FilesQuestion::Read { .. } | FilesQuestion::Clear => Repeat::Yes,
            _ => Repeat::No,
        };
        let question = Question::Files(question);
        let asked = self.handle.block_on(async {
            match self.inner.ask(&self.id, &question, FILES_MAX, repeat).await {
                Err(SandboxError::Paused(_)) => {
                    let found = self.inner.existing(&self.id).await?;
                    self.inner.connect(&self.id, &found.id).await?;
                    self.inner.set_up(&self.id).await?;
                    self.inner.ask(&self.id, &question, FILES_MAX, repeat).await
                }
                answer => answer,
            }
        });
        match asked.map_err(as_io)? {
            (Answer::Files(answer), bytes) => Ok((answer, bytes)),
            (other, _) => Err(as_io(unexpected(&other))),
        }
    }

    fn done(&self, question: FilesQuestion) -> io::Result<()> {
        self.ask(question).map(drop)
    }

    /// Sends a part of a file, and returns its name there. Blocks.
    fn upload(&self, content: Bytes) -> io::Result<String> {
        let name = uuid::Uuid::now_v7().to_string();
        let path = format!("{HOME}/incoming/{name}");
        self.handle.block_on(self.inner.upload(&self.id, &path, content)).map_err(as_io)?;
        Ok(name)
    }
}

impl Workspace for RemoteWorkspace {
    fn now(&self) -> i64 {
        match self.remote.ask(FilesQuestion::List { path: String::new(), max: 0, ahead: 0 }) {
            Ok((FilesAnswer::Listed { now, .. }, _)) => now,
            _ => 0, // every file counts as changed since then
        }
    }

    fn list(&self, directory: &Path, max: usize) -> io::Result<Vec<Found>> {
        let mut ahead = self.ahead.lock().expect("nobody panics while holding this");
        if let Some(found) = ahead.remove(directory) {
            return Ok(found);
        }
        drop(ahead);
        let read_ahead = if max > 1 { AHEAD } else { 0 };
        let question = FilesQuestion::List { path: encode(directory), max, ahead: read_ahead };
        let (FilesAnswer::Listed { directories, .. }, _) = self.remote.ask(question)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut ahead = self.ahead.lock().expect("nobody panics while holding this");
        ahead.clear();
        for listing in directories {
            let (path, found) = listing.decoded()?;
            ahead.insert(path, found);
        }
        ahead.remove(directory).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn OpenFile>> {
        let mut file = RemoteFile {
            remote: self.remote.clone(),
            path: encode(file),
            stat: None,
            fetched: Vec::new(),
            taken: 0,
            offset: 0,
            ended: false,
        };
        file.fetch()?;
        Ok(Box::new(file))
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        self.remote.done(FilesQuestion::MakeDirectory { path: encode(path) })
    }

    fn make_file(&self, path: &Path) -> io::Result<Box<dyn NewFile>> {
        let (remote, path) = (self.remote.clone(), encode(path));
        Ok(Box::new(RemoteNewFile { remote, path, parts: Vec::new(), pending: Vec::new() }))
    }

    fn make_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.remote.done(FilesQuestion::MakeLink { path: encode(path), target: encode(target) })
    }

    fn set_attributes(&self, path: &Path, attributes: Attributes) -> io::Result<()> {
        let Attributes { mode, modified } = attributes;
        self.remote.done(FilesQuestion::SetAttributes { path: encode(path), mode, modified })
    }

    fn put_file(&self, path: &Path, content: &[u8]) -> io::Result<bool> {
        let part = self.remote.upload(Bytes::copy_from_slice(content))?;
        match self.remote.ask(FilesQuestion::PutFile { path: encode(path), part })?.0 {
            FilesAnswer::Put { replaced } => Ok(replaced),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.remote.done(FilesQuestion::RemoveFile { path: encode(path) })
    }

    fn clear(&self) -> io::Result<()> {
        self.remote.done(FilesQuestion::Clear)
    }

    fn index(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.remote.inner.indexes.get(&self.remote.id).map(|index| index.to_vec()))
    }

    fn keep_index(&self, index: &[u8]) -> io::Result<()> {
        self.remote.inner.indexes.keep(&self.remote.id, index);
        Ok(())
    }
}

/// A file that is fetched in parts. If it is replaced meanwhile, reading fails; if it changes, its attributes do.
struct RemoteFile {
    remote: Remote,
    path: String,
    stat: Option<Stat>,
    fetched: Vec<u8>,
    taken: usize,
    /// Where the next part begins.
    offset: u64,
    ended: bool,
}

impl RemoteFile {
    fn fetch(&mut self) -> io::Result<()> {
        let question = FilesQuestion::Read { path: self.path.clone(), offset: self.offset, max: PART_BYTES };
        let (FilesAnswer::Read { stat, .. }, bytes) = self.remote.ask(question)? else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let stat = Stat::from(stat);
        if self.stat.is_some_and(|before| before.node != stat.node) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.ended = bytes.len() < PART_BYTES;
        self.offset += bytes.len() as u64;
        (self.stat, self.fetched, self.taken) = (Some(stat), bytes, 0);
        Ok(())
    }
}

impl Read for RemoteFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.fetched.len() && !self.ended {
            self.fetch()?;
        }
        let rest = &self.fetched[self.taken..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        self.taken += length;
        Ok(length)
    }
}

impl OpenFile for RemoteFile {
    fn stat(&self) -> io::Result<Stat> {
        self.stat.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

struct RemoteNewFile {
    remote: Remote,
    path: String,
    /// What was sent already.
    parts: Vec<String>,
    pending: Vec<u8>,
}

impl RemoteNewFile {
    fn send(&mut self) -> io::Result<()> {
        let content = std::mem::take(&mut self.pending);
        self.parts.push(self.remote.upload(content.into())?);
        Ok(())
    }
}

impl Write for RemoteNewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PART_BYTES {
            self.send()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for RemoteNewFile {
    fn finish(&mut self, attributes: Attributes) -> io::Result<()> {
        if !self.pending.is_empty() {
            self.send()?;
        }
        let (path, parts) = (self.path.clone(), std::mem::take(&mut self.parts));
        let Attributes { mode, modified } = attributes;
        self.remote.done(FilesQuestion::MakeFile { path, parts, mode, modified })
    }
}

fn as_io(error: SandboxError) -> io::Error {
    match error {
        SandboxError::Io { error, .. } if error.raw_os_error().is_some() => error,
        error => io::Error::other(error.to_string()),
    }
}
