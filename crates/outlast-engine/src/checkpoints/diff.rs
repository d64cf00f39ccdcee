//! The difference between two checkpoints as a person reads it: a unified diff, in the form that `git apply`
//! takes.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use similar::TextDiff;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::CheckpointError;
use super::blobs::Area;
use super::compare::Difference;
use super::error::blocking;
use super::files::{FileContent, FileKind, FileVersion};

/// Files that are shown, each with two versions to read and compare.
const FILES_MAX: usize = 500;
/// Larger files are mentioned but not compared.
const FILE_BYTES_MAX: u64 = 512 << 10;
/// The maximum size of the diff of one file, so that a lock file does not hide the rest.
const FILE_DIFF_BYTES_MAX: usize = 128 << 10;
/// The maximum size of the whole diff, which a browser can still show easily.
const DIFF_BYTES_MAX: usize = 1 << 20;
/// After this time, comparing a file settles for a longer diff than necessary.
const FILE_TIME_MAX: Duration = Duration::from_millis(500);
/// After this time, the files that are left are only counted: 500 files that are hard to compare would take minutes.
const DIFF_TIME_MAX: Duration = Duration::from_secs(3);
/// How many diffs are made at the same time. The rest wait, so that they cannot take all processors.
static TURNS: Semaphore = Semaphore::const_new(4);

pub(super) async fn diff(area: &Area, differences: Vec<Difference>) -> Result<String, CheckpointError> {
    let _turn = TURNS.acquire().await.expect("the semaphore is never closed");
    let (mut text, begun) = (String::new(), Instant::now());
    let count = differences.len();
    for (shown, difference) in differences.into_iter().enumerate() {
        let is_large = shown == FILES_MAX || text.len() > DIFF_BYTES_MAX - FILE_DIFF_BYTES_MAX;
        if is_large || begun.elapsed() > DIFF_TIME_MAX {
            push(&mut text, format_args!("[{} more changed files are not shown]\n", count - shown));
            break;
        }
        let Difference { path, before, after } = difference;
        let (before, after) = (Side::load(area, before).await?, Side::load(area, after).await?);
        text.push_str(&blocking(move || Ok(diff_file(&path, before, after))).await?);
    }
    Ok(text)
}

/// One version of a file. For a link, the text is its target, as git has it.
struct Side {
    mode: u32,
    size: u64,
    is_link: bool,
    /// Missing if the file is too large.
    content: Option<Vec<u8>>,
}

impl Side {
    async fn load(area: &Area, version: Option<FileVersion>) -> Result<Option<Side>, CheckpointError> {
        let Some(version) = version else { return Ok(None) };
        let (size, permissions) = (version.size, version.mode);
        if let FileKind::Link { target } = &version.kind {
            let content = Some(target.as_os_str().as_encoded_bytes().to_vec());
            return Ok(Some(Side { mode: 0o120_000, size, is_link: true, content }));
        }
        let mode = 0o100_000 | permissions;
        if size > FILE_BYTES_MAX {
            return Ok(Some(Side { mode, size, is_link: false, content: None }));
        }
        let mut content = Vec::new();
        let mut file = FileContent::new(area.clone(), version);
        while let Some(piece) = file.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(Some(Side { mode, size, is_link: false, content: Some(content) }))
    }

    fn text(&self) -> Option<&str> {
        let text = self.content.as_deref().and_then(|content| std::str::from_utf8(content).ok());
        text.filter(|text| !text.contains('\0'))
    }
}

fn diff_file(path: &Path, before: Option<Side>, after: Option<Side>) -> String {
    match (&before, &after) {
        // A file that became a link, or a link that became a file.
        (Some(old), Some(new)) if old.is_link != new.is_link => {
            diff_file(path, before, None) + &diff_file(path, None, after)
        }
        _ => diff_sides(path, before.as_ref(), after.as_ref()),
    }
}

fn diff_sides(path: &Path, before: Option<&Side>, after: Option<&Side>) -> String {
    let mut text = String::new();
    let (old, new) = (quoted("a/", path), quoted("b/", path));
    push(&mut text, format_args!("diff --git {old} {new}\n"));
    match (before, after) {
        (None, Some(after)) => push(&mut text, format_args!("new file mode {:06o}\n", after.mode)),
        (Some(before), None) => push(&mut text, format_args!("deleted file mode {:06o}\n", before.mode)),
        (Some(before), Some(after)) if before.mode != after.mode => {
            push(&mut text, format_args!("old mode {:06o}\nnew mode {:06o}\n", before.mode, after.mode));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let is_shown = |side: Option<&Side>| side.is_none_or(|side| side.text().is_some());
    if !is_shown(before) || !is_shown(after) {
        let size = |side: Option<&Side>| side.map_or(0, |side| side.size);
        let (was, is) = (size(before), size(after));
        push(&mut text, format_args!("Binary or large files differ: {was} bytes before, {is} bytes after\n"));
        return text;
    }
    let lines = |side: Option<&Side>| side.and_then(Side::text).unwrap_or_default().to_owned();
    let (before_text, after_text) = (lines(before), lines(after));
    // Only \n ends a line, as in git; a lone \r must not split a line of the diff.
    let before_lines: Vec<&str> = before_text.split_inclusive('\n').collect();
    let after_lines: Vec<&str> = after_text.split_inclusive('\n').collect();
    let compared = TextDiff::configure()
        .timeout(FILE_TIME_MAX)
        .newline_terminated(true)
        .diff_slices(&before_lines, &after_lines);
    let old = if before.is_some() { old } else { "/dev/null".to_owned() };
    let new = if after.is_some() { new } else { "/dev/null".to_owned() };
    let header = text.len();
    push(&mut text, format_args!("{}", compared.unified_diff().header(&old, &new)));
    if text.len() - header > FILE_DIFF_BYTES_MAX {
        let end = header + FILE_DIFF_BYTES_MAX;
        let line_end = text.as_bytes()[..end].iter().rposition(|&byte| byte == b'\n');
        let cut = line_end.map_or(header, |line_end| line_end + 1);
        let left = text.len() - cut;
        text.truncate(cut);
        push(&mut text, format_args!("[{left} more bytes of this diff are not shown]\n"));
    }
    text
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a string cannot fail");
}

/// A path as git writes it: quoted and escaped if it contains special characters.
fn quoted(side: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let is_plain = |byte: &u8| (0x20..0x7f).contains(byte) && !b"\"\\".contains(byte);
    if bytes.iter().all(is_plain) {
        return format!("{side}{}", path.display());
    }
    let mut text = format!("\"{side}");
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(*byte)]),
            byte if is_plain(byte) => text.push(char::from(*byte)),
            byte => push(&mut text, format_args!("\\{byte:03o}")),
        }
    }
    text.push('"');
    text
}
