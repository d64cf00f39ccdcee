//! Lists and searches the workspace, without what version control ignores.

use std::fmt::Write as _;
use std::path::Path;

use ignore::overrides::OverrideBuilder;
use ignore::{DirEntry, WalkBuilder};
use regex::RegexBuilder;

use super::super::input::{ListFiles, SearchFiles};
use super::{found, index, text_of};
use crate::file_names;

/// More do not help a model to choose.
const ENTRIES_MAX: usize = 1_000;
const MATCHES_MAX: usize = 200;
/// A longer line is generated code or data.
const LINE_CHARS_MAX: usize = 300;
const DEPTH_DEFAULT: u64 = 2;
/// Memory that a pattern from a model may take when it is compiled.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn list_files(input: ListFiles) -> Result<String, String> {
    let mut walk = walk(&found(input.path.as_deref().unwrap_or(".")))?;
    walk.max_depth(Some(index(input.depth.map_or(DEPTH_DEFAULT, u64::from))));
    let mut text = String::new();
    let mut count = 0;
    for entry in entries(&walk).filter(|entry| entry.depth() > 0) {
        count += 1;
        if count > ENTRIES_MAX {
            writeln!(text, "[more than {ENTRIES_MAX} entries: list a folder below]").expect("a string grows");
            break;
        }
        let folder = entry.file_type().is_some_and(|kind| kind.is_dir());
        let slash = if folder { "/" } else { "" };
        writeln!(text, "{}{slash}", shown(entry.path())).expect("a string grows");
    }
    Ok(text)
}

pub(super) fn search_files(input: SearchFiles) -> Result<String, String> {
    let pattern = RegexBuilder::new(&input.pattern).size_limit(PATTERN_BYTES_MAX).build();
    let pattern = pattern.map_err(|error| format!("invalid pattern: {error}"))?;
    let root = found(input.path.as_deref().unwrap_or("."));
    let mut walk = walk(&root)?;
    if let Some(glob) = &input.glob {
        let mut only = OverrideBuilder::new(&root);
        let only = only.add(glob).and_then(|only| only.build());
        walk.overrides(only.map_err(|error| format!("invalid glob: {error}"))?);
    }
    let mut text = String::new();
    let mut count = 0;
    for entry in entries(&walk).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file())) {
        // What cannot be read, or is not text, has no lines to find.
        let Ok(content) = text_of(entry.path()) else { continue };
        for (number, line) in content.lines().enumerate().filter(|(_, line)| pattern.is_match(line)) {
            count += 1;
            if count > MATCHES_MAX {
                writeln!(text, "[more than {MATCHES_MAX} matches: narrow the search]")
                    .expect("a string grows");
                return Ok(text);
            }
            let line: String = line.chars().take(LINE_CHARS_MAX).collect();
            writeln!(text, "{}:{}: {line}", shown(entry.path()), number + 1).expect("a string grows");
        }
    }
    if text.is_empty() {
        text.push_str("no matches\n");
    }
    Ok(text)
}

fn walk(root: &Path) -> Result<WalkBuilder, String> {
    if !root.exists() {
        return Err(format!("{} does not exist", file_names::shown(root)));
    }
    let mut walk = WalkBuilder::new(root);
    // Ignore files count in any folder; hidden files are files. Only the repository itself is left out.
    walk.hidden(false).require_git(false).parents(false).git_global(false);
    walk.filter_entry(|entry| entry.file_name() != ".git");
    walk.sort_by_file_name(|a, b| a.cmp(b));
    Ok(walk)
}

fn entries(walk: &WalkBuilder) -> impl Iterator<Item = DirEntry> {
    walk.build().filter_map(Result::ok) // a folder that cannot be read is left out
}

fn shown(path: &Path) -> String {
    file_names::shown(path.strip_prefix("./").unwrap_or(path))
}
