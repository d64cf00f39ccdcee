//! The file tools, as they run inside a sandbox: `outlast tool NAME`, with the arguments as JSON on stdin.

mod find;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::de::DeserializeOwned;

use super::Tool;
use super::input::{EditFile, ReadFile, WriteFile};
use crate::file_names::{named, shown};

/// The most that a call returns if it does not ask for a number of lines.
const LINES_MAX: u64 = 2_000;
/// Larger files are refused, because they would have to fit into memory.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Runs a tool. Its result goes to stdout and errors go to stderr; the model reads both.
pub fn main(name: &str) -> ExitCode {
    let result = match Tool::named(name) {
        Some(Tool::ReadFile) => input().and_then(read_file),
        Some(Tool::WriteFile) => input().and_then(write_file),
        Some(Tool::EditFile) => input().and_then(edit_file),
        Some(Tool::ListFiles) => input().and_then(find::list_files),
        Some(Tool::SearchFiles) => input().and_then(find::search_files),
        Some(Tool::Bash) | None => Err(format!("{name:?} is not a file tool")),
    };
    let written = match &result {
        Ok(text) => io::stdout().write_all(text.as_bytes()),
        Err(text) => io::stderr().write_all(format!("{text}\n").as_bytes()),
    };
    match (result, written) {
        (Ok(_), Ok(())) => ExitCode::SUCCESS,
        (Ok(_), Err(_)) | (Err(_), _) => ExitCode::FAILURE,
    }
}

fn input<T: DeserializeOwned>() -> Result<T, String> {
    let mut text = Vec::new();
    io::stdin().read_to_end(&mut text).map_err(|error| format!("cannot read the arguments: {error}"))?;
    serde_json::from_slice(&text).map_err(|error| format!("invalid arguments: {error}"))
}

fn read_file(input: ReadFile) -> Result<String, String> {
    let text = text_of(&found(&input.path))?;
    let first = input.offset.map_or(1, u64::from);
    let limit = input.limit.map_or(LINES_MAX, u64::from);
    let all = text.split_inclusive('\n').count() as u64;
    if first > all.max(1) {
        return Err(format!("{} has {all} lines", input.path));
    }
    let (skip, take) = (index(first - 1), index(limit));
    let mut shown: String = text.split_inclusive('\n').skip(skip).take(take).collect();
    let last = first.saturating_add(limit) - 1;
    if last < all {
        let next = last + 1;
        shown.push_str(&format!("[lines {first} to {last} of {all}; continue with offset {next}]\n"));
    }
    Ok(shown)
}

fn write_file(input: WriteFile) -> Result<String, String> {
    let path = found(&input.path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|error| cannot("create the folder of", &input.path, &error))?;
    }
    replace(&path, &input.content).map_err(|error| cannot("write", &input.path, &error))?;
    Ok(format!("wrote {} bytes to {}\n", input.content.len(), input.path))
}

fn edit_file(input: EditFile) -> Result<String, String> {
    if input.old.is_empty() {
        return Err("`old` is empty: use write_file to create a file".to_owned());
    }
    let text = text_of(&found(&input.path))?;
    let times = text.matches(&input.old).count();
    let edited = match (times, input.all) {
        (0, _) => return Err(format!("`old` does not occur in {}", input.path)),
        (1, _) | (_, true) => text.replace(&input.old, &input.new),
        (_, false) => {
            let path = &input.path;
            return Err(format!("`old` occurs {times} times in {path}: add lines around it, or set `all`"));
        }
    };
    replace(&found(&input.path), &edited).map_err(|error| cannot("write", &input.path, &error))?;
    Ok(format!("replaced {times} in {}\n", input.path))
}

/// The path that a model means: as it is, or with the escapes of a listing for names that are not UTF-8.
fn found(path: &str) -> PathBuf {
    let escaped = named(path);
    if !Path::new(path).exists() && escaped.exists() { escaped } else { PathBuf::from(path) }
}

/// The content of a text file that is not too large.
fn text_of(path: &Path) -> Result<String, String> {
    let name = shown(path);
    let metadata = fs::metadata(path).map_err(|error| cannot("read", &name, &error))?;
    if !metadata.is_file() {
        return Err(format!("{name} is not a file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("{name} has {} bytes: use bash to look at parts of it", metadata.len()));
    }
    let bytes = fs::read(path).map_err(|error| cannot("read", &name, &error))?;
    String::from_utf8(bytes).map_err(|_| format!("{name} is not a text file"))
}

/// Replaces the content atomically: if the tool is stopped, the file is either the old one or the new one. Permissions are
/// kept, and so is a link unless it is broken.
fn replace(path: &Path, content: &str) -> io::Result<()> {
    let target = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(error),
    };
    let before = match fs::metadata(&target) {
        Ok(metadata) if !metadata.is_file() => {
            return Err(io::Error::other("it is not a file"));
        }
        Ok(metadata) => Some(metadata.permissions()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let draft = draft_beside(&target);
    let written = fs::write(&draft, content)
        .and_then(|()| before.map_or(Ok(()), |permissions| fs::set_permissions(&draft, permissions)))
        .and_then(|()| fs::rename(&draft, &target));
    if written.is_err() {
        fs::remove_file(&draft).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        })?;
    }
    written
}

fn draft_beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name:.40}.outlast-{}", std::process::id()))
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn cannot(what: &str, path: &str, error: &io::Error) -> String {
    format!("cannot {what} {path}: {error}")
}
