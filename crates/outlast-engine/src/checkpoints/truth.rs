//! What was true of the workspace when a checkpoint was taken.

use std::path::Path;

use outlast_core::ChangedFile;
use serde::{Deserialize, Serialize};

use super::Difference;

/// Of what git printed. Two screens; the model asks again if it needs more.
const GIT_BYTES_MAX: usize = 16 << 10;
/// Paths that are named; the rest are counted.
const PATHS_MAX: usize = 200;
/// Names of things left out of a checkpoint that are kept as examples.
const EXAMPLES_MAX: usize = 20;

/// Recorded with a checkpoint and told to the model after a crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Truth {
    /// The workspace is a repository.
    Git(GitTruth),
    /// It is not: what changed since the checkpoint before.
    Changes(Changes),
}

/// What git said **inside the sandbox**. A repository can make git run programs (hooks, fsmonitor, filters), so
/// the server never runs git on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GitTruth {
    pub head: String,
    /// `git status --porcelain`
    pub status: String,
    /// `git diff --stat`
    pub stat: String,
}

impl GitTruth {
    pub(super) fn cut(self) -> GitTruth {
        GitTruth { head: cut(self.head), status: cut(self.status), stat: cut(self.stat) }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > GIT_BYTES_MAX {
        let end = (0..=GIT_BYTES_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let left = text.len() - end;
        text.truncate(end);
        text.push_str(&format!("\n[{left} more bytes]"));
    }
    text
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Changes {
    pub files: Vec<ChangedFile>,
    /// How many changed files are not in `files`.
    #[serde(default)]
    pub more: u64,
}

impl Changes {
    pub(super) fn of(differences: &[Difference]) -> Changes {
        let files = differences.iter().take(PATHS_MAX).map(Difference::changed_file).collect();
        Changes { files, more: differences.len().saturating_sub(PATHS_MAX) as u64 }
    }
}

/// What is in the workspace but not in the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeftOut {
    /// Devices, sockets and pipes.
    #[serde(default)]
    pub special: u64,
    /// Links that lead out of the workspace.
    #[serde(default)]
    pub links: u64,
    /// Files and directories that could not be read.
    #[serde(default)]
    pub unreadable: u64,
    /// Some of them, each with the reason.
    #[serde(default)]
    pub examples: Vec<String>,
}

impl LeftOut {
    pub fn is_empty(&self) -> bool {
        *self == LeftOut::default()
    }

    pub(super) fn special(&mut self, path: &Path) {
        self.special += 1;
        self.example(path, "a device, socket or pipe");
    }

    pub(super) fn link(&mut self, path: &Path) {
        self.links += 1;
        self.example(path, "a link that leaves the workspace");
    }

    /// Something that is gone by now needs no mention.
    pub(super) fn unreadable(&mut self, path: &Path, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::NotFound {
            self.unreadable += 1;
            self.example(path, &error.to_string());
        }
    }

    fn example(&mut self, path: &Path, why: &str) {
        if self.examples.len() < EXAMPLES_MAX {
            let path: String = path.to_string_lossy().chars().take(200).collect();
            self.examples.push(format!("{path}: {why}"));
        }
    }
}
