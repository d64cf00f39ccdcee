//! Reads the settings: the file, then the environment, then `--set`. Later ones override earlier ones.
//!
//! With an unknown key or an invalid value the server does not start, and one line names the key. That line
//! does not repeat a value of the wrong type, because it may be an API key in the wrong place.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use toml::{Table, Value};

use super::origins::{Origin, Origins};
use super::{Config, Given};

/// The prefix of our variables; `__` separates the levels.
const ENVIRONMENT: &str = "OUTLAST_";

/// Settings that were renamed: old name, new name.
const RENAMED: &[(&str, &str)] = &[
    ("limits.subscribers_per_generation", "limits.followers_per_conversation"),
    ("timeouts.producer_silence", "timeouts.worker_silence"),
];

/// Shown to operators instead of a Rust type.
const NUMBER: &str = "expected a whole number";

/// Where settings come from, in the order in which they are applied.
#[derive(Default)]
pub(crate) struct Sources<'a> {
    pub(crate) file: Option<&'a Path>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// `KEY=VALUE`, as given to `--set`.
    pub(crate) flags: &'a [String],
    /// Flags of single settings: the flag, its setting and the value.
    pub(crate) named: Vec<(&'static str, &'static str, String)>,
}

#[cfg(test)]
impl<'a> Sources<'a> {
    pub(crate) fn of_file(file: &'a Path) -> Sources<'a> {
        Sources { file: Some(file), ..Sources::default() }
    }
}

impl Config {
    pub(crate) fn load(sources: Sources<'_>) -> anyhow::Result<Config> {
        let (mut tree, mut origins) = (Table::new(), Origins::default());
        if let Some(file) = sources.file {
            tree = read(file, &mut origins)?;
        }
        let mut add = |given: Table, origin: Origin| {
            origins.note(&given, &origin);
            merge(&mut tree, given).with_context(|| format!("{origin} cannot be used"))
        };
        for (name, value) in sources.environment {
            let Some(name) = name.to_str() else { continue }; // all our names are valid UTF-8
            if let Some(path) = name.strip_prefix(ENVIRONMENT).filter(|path| path.contains("__")) {
                let value = value.to_str().with_context(|| format!("{name} is not valid UTF-8"))?;
                let keys: Vec<String> = path.split("__").map(str::to_lowercase).collect();
                add(nested(keys, parse_value(value)), Origin::Environment(name.to_owned()))?;
            }
        }
        for flag in sources.flags {
            add(parse_flag(flag)?, Origin::Flag("--set".to_owned()))?;
        }
        for (flag, setting, value) in sources.named {
            let keys = setting.split('.').map(str::to_owned).collect();
            add(nested(keys, Value::String(value)), Origin::Flag(flag.to_owned()))?;
        }
        for (old, new) in RENAMED {
            if find(&tree, old).is_some() {
                bail!("{}the setting {old} is now called {new}", at(&origins, old));
            }
        }
        let given = Given(tree.clone());
        let config: Result<Config, _> = serde_path_to_error::deserialize(Value::Table(tree));
        let config = config.map_err(|error| {
            let place = at(&origins, &error.path().to_string());
            anyhow!("{place}{}", describe(&error))
        })?;
        Ok(Config { given, origins, ..config })
    }

    /// Adds where a setting came from to what is wrong with it.
    pub(crate) fn blame(&self, setting: &str) -> String {
        format!("{}the setting {setting} cannot be used", at(&self.origins, setting))
    }
}

/// Where to look, in front of a message.
fn at(origins: &Origins, setting: &str) -> String {
    origins.near(setting).map(|origin| format!("{origin}: ")).unwrap_or_default()
}

fn read(file: &Path, origins: &mut Origins) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the settings in {}", file.display()))?;
    origins.note_file(file, &text);
    text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|letter| *letter != '\n').count() + 1;
        // Without the line itself, which the parser would show and which may contain a key.
        anyhow!("{} is not TOML: line {line}, column {column}: {}", file.display(), one_line(error.message()))
    })
}

/// `KEY=VALUE`, where the key is written as in the file.
fn parse_flag(flag: &str) -> anyhow::Result<Table> {
    let Some((key, value)) = flag.split_once('=') else {
        bail!("--set takes KEY=VALUE, like --set limits.body_bytes=65536");
    };
    let keys = parse_key(key).with_context(|| format!("--set {key:?}: not a key like limits.body_bytes"))?;
    Ok(nested(keys, parse_value(value)))
}

/// The levels of a key. TOML reads it, quotes included: `models."gpt-4.1".kind`.
fn parse_key(text: &str) -> Option<Vec<String>> {
    let mut keys = Vec::new();
    let mut value = Value::Table(format!("{text} = 0").parse().ok()?);
    while let Value::Table(table) = value {
        let mut entries = table.into_iter();
        let (key, below) = entries.next()?;
        if entries.next().is_some() {
            return None;
        }
        keys.push(key);
        value = below;
    }
    Some(keys)
}

/// A value from the environment or a flag: parsed as TOML if that gives a single value, otherwise a string.
pub(super) fn parse_value(text: &str) -> Value {
    let document = format!("value = {text}").parse::<Table>().ok().filter(|table| table.len() == 1);
    let value = document.and_then(|mut table| table.remove("value"));
    value.filter(|value| !value.is_datetime()).unwrap_or_else(|| Value::String(text.to_owned()))
}

fn nested(keys: Vec<String>, mut value: Value) -> Table {
    for key in keys.into_iter().rev() {
        value = Value::Table(Table::from_iter([(key, value)]));
    }
    match value {
        Value::Table(table) => table,
        _ => Table::new(), // no keys, nothing to set
    }
}

fn merge(into: &mut Table, from: Table) -> anyhow::Result<()> {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Table(known)), Value::Table(more)) => merge(known, more)?,
            (Some(_), Value::Table(_)) => bail!("{key} is a value, not a section"),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
    Ok(())
}

fn find<'a>(tree: &'a Table, path: &str) -> Option<&'a Value> {
    let (section, key) = path.split_once('.')?;
    tree.get(section)?.get(key)
}

fn describe(error: &serde_path_to_error::Error<toml::de::Error>) -> String {
    let path = error.path().to_string();
    let message = error.inner().message();
    let message = match (message.split_once("string \""), message.rsplit_once("\", expected")) {
        (Some((before, _)), Some((_, after))) => format!("{before}text, expected{after}"),
        _ => message.to_owned(),
    };
    let message = one_line(&message);
    let message = message
        .replace("expected usize", NUMBER)
        .replace("expected u32", NUMBER)
        .replace("expected u64", NUMBER)
        .replace("expected a nonzero u32", "expected a whole number of at least 1")
        .replace("expected a nonzero u64", "expected a whole number of at least 1");
    if message.starts_with("unknown field") && !path.starts_with("models.") {
        let known = message.split_once(", ").map_or("", |(_, known)| known);
        return format!("unknown setting {path}: {known}");
    }
    format!("the setting {path} cannot be used: {message}")
}

fn one_line(text: &str) -> String {
    text.trim().replace('\n', " ")
}
