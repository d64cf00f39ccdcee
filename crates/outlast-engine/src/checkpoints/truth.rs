//! The state of the workspace when a checkpoint was taken.

use std::path::Path;

use outlast_core::ChangedFile;
use serde::{Deserialize, Serialize};

use super::Difference;
use crate::file_names::shown;

/// How much of git's output is kept: about two screens. The model can ask for more.
const GIT_BYTES_MAX: usize = 16 << 10;
/// Paths that are named; the rest are counted.
const PATHS_MAX: usize = 200;
/// How long the named paths may be together. They are part of an event.
const PATHS_BYTES_MAX: usize = 64 << 10;
/// Names of things left out of a checkpoint that are kept as examples.
const EXAMPLES_MAX: usize = 20;
/// How many of them a sentence names.
const EXAMPLES_NAMED_MAX: usize = 5;

/// Recorded with a checkpoint, and given to the model after a crash.
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
        let mut room = PATHS_BYTES_MAX;
        let fits = |file: &ChangedFile| room.checked_sub(file.path.len()).map(|left| room = left).is_some();
        let named = differences.iter().take(PATHS_MAX).map(Difference::changed_file);
        let files: Vec<ChangedFile> = named.take_while(fits).collect();
        let more = differences.len().saturating_sub(files.len()) as u64;
        Changes { files, more }
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

    /// For people and models: how many of each kind, and some of them. `None` if nothing was left out.
    pub fn in_words(&self) -> Option<String> {
        let kinds = [
            (self.links, "links that leave the workspace"),
            (self.special, "devices, sockets and pipes"),
            (self.unreadable, "unreadable files and folders"),
        ];
        let counted = kinds.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counted.map(|(count, kind)| format!("{count} {kind}")).collect();
        let examples = self.examples.iter().take(EXAMPLES_NAMED_MAX);
        let examples: Vec<String> = examples.map(|example| example.escape_debug().to_string()).collect();
        (!counts.is_empty()).then(|| format!("{} (such as {})", counts.join(", "), examples.join("; ")))
    }

    pub(super) fn special(&mut self, path: &Path) {
        self.special += 1;
        self.example(path, "a device, socket or pipe");
    }

    pub(super) fn link(&mut self, path: &Path) {
        self.links += 1;
        self.example(path, "a link that leaves the workspace");
    }

    /// A file that no longer exists need not be mentioned.
    pub(super) fn unreadable(&mut self, path: &Path, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::NotFound {
            self.unreadable += 1;
            self.example(path, &error.to_string());
        }
    }

    fn example(&mut self, path: &Path, why: &str) {
        if self.examples.len() < EXAMPLES_MAX {
            let path: String = shown(path).chars().take(200).collect();
            self.examples.push(format!("{path}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_left_out_is_said_in_one_line_of_bounded_length() {
        assert_eq!(LeftOut::default().in_words(), None);
        let mut left_out = LeftOut::default();
        left_out.link(Path::new("venv/bin/python"));
        assert_eq!(
            left_out.in_words().unwrap(),
            "1 links that leave the workspace (such as venv/bin/python: a link that leaves the workspace)"
        );
        for _ in 0..1_000 {
            left_out.special(Path::new(&"a\n".repeat(2_000)));
        }
        let said = left_out.in_words().unwrap();
        assert!(said.contains("1000 devices") && said.len() < 4_096 && !said.contains('\n'), "{said}");
    }

    #[test]
    fn named_changes_are_limited_by_bytes_and_the_rest_are_counted() {
        let long = |n: usize| Difference { path: format!("{n:0>4096}").into(), before: None, after: None };
        let differences: Vec<Difference> = (0..100).map(long).collect();
        let changes = Changes::of(&differences);
        assert_eq!((changes.files.len(), changes.more), (16, 84));
    }
}
