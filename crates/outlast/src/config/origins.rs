//! Remembers where each setting came from, for messages and for `outlast config show`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;
use toml::de::{DeTable, DeValue};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A line of the settings file.
    File(PathBuf, usize),
    /// The name of a variable.
    Environment(String),
    /// The name of a flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(file, line) => write!(f, "{}, line {line}", file.display()),
            Origin::Environment(name) | Origin::Flag(name) => f.write_str(name),
        }
    }
}

/// The origin of every key that was given, by its dotted name: `limits.body_bytes`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins(BTreeMap<String, Origin>);

impl Origins {
    /// Notes the lines of a file that was already parsed.
    pub(super) fn note_file(&mut self, file: &Path, text: &str) {
        let Ok(table) = DeTable::parse(text) else { return };
        let lines = Lines { file, text };
        self.note_lines(&lines, "", table.get_ref());
    }

    fn note_lines(&mut self, lines: &Lines<'_>, above: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name = join(above, key.get_ref());
            self.0.insert(name.clone(), lines.origin(key.span().start));
            match value.get_ref() {
                DeValue::Table(table) => self.note_lines(lines, &name, table),
                DeValue::Array(items) => {
                    let tables = items.iter().enumerate();
                    for (index, item) in tables {
                        if let DeValue::Table(table) = item.get_ref() {
                            self.note_lines(lines, &format!("{name}[{index}]"), table);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Notes every key in a tree that came from one place.
    pub(super) fn note(&mut self, tree: &toml::Table, origin: &Origin) {
        self.note_below("", tree, origin);
    }

    fn note_below(&mut self, above: &str, tree: &toml::Table, origin: &Origin) {
        for (key, value) in tree {
            let name = join(above, key);
            match value {
                Value::Table(below) => self.note_below(&name, below, origin),
                _ => drop(self.0.insert(name, origin.clone())),
            }
        }
    }

    /// Where a setting came from; `None` if it has its default.
    pub(crate) fn of(&self, name: &str) -> Option<&Origin> {
        self.0.get(name)
    }

    /// The place to look at if something is wrong with a setting: its own, the one of the section that it is missing
    /// from, or the one of the first setting in it.
    pub(super) fn near(&self, name: &str) -> Option<&Origin> {
        let mut above = name;
        loop {
            if let Some(origin) = self.of(above) {
                return Some(origin);
            }
            match above.rfind(['.', '[']) {
                Some(end) => above = &above[..end],
                None => break,
            }
        }
        let below = format!("{name}.");
        self.0
            .range(below.clone()..)
            .next()
            .filter(|(key, _)| key.starts_with(&below))
            .map(|(_, origin)| origin)
    }
}

struct Lines<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Lines<'_> {
    fn origin(&self, at: usize) -> Origin {
        let before = self.text.get(..at).unwrap_or_default();
        Origin::File(self.file.to_owned(), before.matches('\n').count() + 1)
    }
}

fn join(above: &str, key: &str) -> String {
    if above.is_empty() { key.to_owned() } else { format!("{above}.{key}") }
}
