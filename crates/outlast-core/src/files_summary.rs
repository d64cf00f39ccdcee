//! What an assistant changed in the workspace: the block at the end of its message.
//!
//! ```text
//! <files_summary>
//! - app/page.tsx: Landing page with a hero section
//! - old.css: deleted
//! </files_summary>
//! ```
//!
//! Models write this block too, each in its own way, so parsing is lenient and writing is exact. Text that was sent cannot
//! be changed, so an incorrect block is followed by a correct one, and the last block counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

const OPEN: &str = "<files_summary>";
const CLOSE: &str = "</files_summary>";
/// The maximum number of lines. An agent that installs packages changes thousands of files; nobody wants to read them
/// all, and the block must fit into one event.
const LINES_BYTES_MAX: usize = 64 << 10;
/// The maximum length of a description; models can be verbose.
const DESCRIPTION_MAX: usize = 500;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

impl Change {
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        }
    }
}

/// A path below the workspace, and what happened to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedFile {
    pub path: String,
    pub change: Change,
}

/// A line of the block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DescribedFile {
    pub path: String,
    /// Empty if nobody described it.
    pub description: String,
}

/// What to append to `said` so that it ends with a summary of every change. Empty if it already does.
///
/// Descriptions by the model are kept. Files that it left out are described by the kind of change, and files that did
/// not change are dropped. Changes inside `.git` do not count.
pub fn files_summary_to_append(said: &str, changes: &[ChangedFile]) -> String {
    let mut changes: Vec<&ChangedFile> = changes.iter().filter(|file| !is_of_git(&file.path)).collect();
    changes.dedup_by(|a, b| a.path == b.path);
    if changes.is_empty() {
        return String::new();
    }
    let given: BTreeMap<String, String> =
        parse_files_summary(said).into_iter().map(|file| (file.path, file.description)).collect();
    let described: Vec<DescribedFile> = changes
        .into_iter()
        .map(|file| {
            let given = given.get(&file.path).filter(|description| !description.is_empty());
            let description = given.map_or(file.change.as_str(), String::as_str).to_owned();
            DescribedFile { path: file.path.clone(), description }
        })
        .collect();
    let is_given = |file: &DescribedFile| given.get(&file.path) == Some(&file.description);
    let is_complete = said.trim_end().ends_with(CLOSE) && described.iter().all(is_given);
    if is_complete {
        return String::new();
    }
    let gap = if said.is_empty() { "" } else { "\n\n" };
    format!("{gap}{}", files_summary(&described))
}

fn is_of_git(path: &str) -> bool {
    path.split('/').any(|step| step == ".git")
}

/// The block for these files, in this order.
pub fn files_summary(files: &[DescribedFile]) -> String {
    let mut block = format!("{OPEN}\n");
    for (place, file) in files.iter().enumerate() {
        let description = one_line(&file.description);
        let path = escape_path(&file.path);
        let line = if description.is_empty() {
            format!("- {path}\n")
        } else {
            format!("- {path}: {}\n", escape(&description))
        };
        if block.len() + line.len() > LINES_BYTES_MAX {
            block.push_str(&format!("… and {} more\n", files.len() - place));
            break;
        }
        block.push_str(&line);
    }
    block.push_str(CLOSE);
    block
}

fn one_line(description: &str) -> String {
    let words = description.split_whitespace().collect::<Vec<_>>().join(" ");
    words.chars().take(DESCRIPTION_MAX).collect::<String>().trim_end().to_owned()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Also escapes what would end the path or be taken for decoration around it.
fn escape_path(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let last = path.chars().count().saturating_sub(1);
    for (place, letter) in path.chars().enumerate() {
        let at_edge = place == 0 || place == last;
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            ':' | '`' | '*' | '"' => text.push_str(&format!("&#{};", u32::from(letter))),
            letter if letter.is_control() || (letter.is_whitespace() && (letter != ' ' || at_edge)) => {
                text.push_str(&format!("&#{};", u32::from(letter)));
            }
            letter => text.push(letter),
        }
    }
    text
}

/// The files of the last block in a text. A block that was not closed goes to the end of the text.
pub fn parse_files_summary(text: &str) -> Vec<DescribedFile> {
    // Changing the case of ASCII letters keeps every byte position.
    let lower = text.to_ascii_lowercase();
    let Some(start) = lower.rfind(OPEN).map(|start| start + OPEN.len()) else { return Vec::new() };
    let end = lower[start..].find(CLOSE).map_or(text.len(), |end| start + end);
    let mut files: Vec<DescribedFile> = Vec::new();
    for line in text[start..end].lines().map(str::trim) {
        if line.starts_with('…') {
            break;
        }
        match (bullet(line), files.last_mut()) {
            (Some(item), _) => files.extend(parse_item(item)),
            // A description that continues on the next line.
            (None, Some(file)) if !line.is_empty() => {
                let description = format!("{} {}", file.description, unescape(line));
                file.description = one_line(&description);
            }
            (None, _) => {}
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    files.retain(|file| seen.insert(file.path.clone())); // the first one counts
    files
}

/// The text after the bullet of a list item.
fn bullet(line: &str) -> Option<&str> {
    let item = line.strip_prefix(['-', '*', '•', '+'])?;
    item.starts_with([' ', '\t']).then(|| item.trim())
}

fn parse_item(item: &str) -> Option<DescribedFile> {
    let (path, description) = match item.find(": ").or_else(|| item.find(":\t")) {
        Some(colon) => (&item[..colon], &item[colon + 2..]),
        None => (item.strip_suffix(':').unwrap_or(item), ""),
    };
    let path = unescape(undecorated(path.trim()));
    let path = path.strip_prefix("./").map(str::to_owned).unwrap_or(path);
    let description = one_line(&unescape(description));
    (!path.is_empty()).then_some(DescribedFile { path, description })
}

/// A path without the marks that models put around it: `path`, **path**, "path".
fn undecorated(path: &str) -> &str {
    let mut path = path;
    for mark in ["**", "`", "\""] {
        path = path.strip_prefix(mark).and_then(|path| path.strip_suffix(mark)).unwrap_or(path);
    }
    path
}

/// Anything that is not an escape stays as it is, because a model may write a plain `&`.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let escape = rest.find(';').and_then(|end| Some((unescaped(&rest[1..end])?, end + 1)));
        let (letter, length) = escape.unwrap_or(('&', 1));
        out.push(letter);
        rest = &rest[length..];
    }
    out.push_str(rest);
    out
}

fn unescaped(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        _ => char::from_u32(name.strip_prefix('#')?.parse().ok()?),
    }
}

#[cfg(test)]
mod tests;
