//! The documentation of the settings, which is written once: in the table of `docs/settings.md`. A test compares its
//! names and defaults with the code.

use std::fmt::Write as _;

use toml::Value;

use super::load::parse_value;

const PAGE: &str = include_str!("../../../../docs/settings.md");

/// The width of a comment.
const COLUMNS: usize = 100;

/// One setting, as documented.
pub(super) struct Row {
    /// With `<name>` where an operator chooses a name.
    pub(super) name: &'static str,
    /// The cell of the table: a value in backticks, or words.
    pub(super) default: &'static str,
    meaning: &'static str,
}

impl Row {
    /// The default, if it is one value.
    pub(super) fn value(&self) -> Option<Value> {
        let text = self.default.strip_prefix('`')?.strip_suffix('`')?;
        let single = !self.name.contains('<') && !text.contains('`');
        single.then(|| parse_value(text))
    }

    /// The table that the setting is in, and its name there.
    fn place(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
    }
}

/// Every setting, in the order of the page.
pub(super) fn rows() -> Vec<Row> {
    let lines = PAGE.lines().filter(|line| line.starts_with("| `"));
    let rows = lines.filter_map(|line| {
        let mut cells = line.trim_start_matches("| ").trim_end_matches(" |").splitn(3, '|').map(str::trim);
        let name = cells.next()?.trim_matches('`');
        Some(Row { name, default: cells.next()?, meaning: cells.next()? })
    });
    rows.collect()
}

/// A settings file that says what every setting means, with all defaults.
pub(crate) fn default_file() -> String {
    let mut text = String::from(
        "# The settings of Outlast with their defaults, as printed by 'outlast config default'. Every line may be\n\
         # left out. The environment (OUTLAST_STORE__URL=memory:) and flags (--set store.url=memory:) override this file.\n",
    );
    let mut written = Vec::new();
    let rows = rows();
    for row in &rows {
        let (table, _) = row.place();
        if written.contains(&table) || row.name.ends_with('>') {
            continue; // a name like models.<name> has its settings in rows of their own
        }
        written.push(table);
        let is_optional = rows.iter().filter(|row| row.place().0 == table).all(|row| row.value().is_none());
        let mark = if is_optional { "# " } else { "" };
        writeln!(text, "\n{mark}[{}]", table.replace("<name>", "NAME")).expect("writing to a String");
        for row in rows.iter().filter(|row| row.place().0 == table) {
            write_setting(&mut text, row);
        }
    }
    text
}

fn write_setting(text: &mut String, row: &Row) {
    let (_, name) = row.place();
    for line in wrapped(&plain(row.meaning)) {
        writeln!(text, "# {line}").expect("writing to a String");
    }
    let written = match row.value() {
        Some(value) => writeln!(text, "{name} = {value}"),
        None if row.default.is_empty() => writeln!(text, "# {name} = …"),
        None => writeln!(text, "# {name} = …  (default: {})", plain(row.default)),
    };
    written.expect("writing to a String");
}

/// Without the markup of links and code.
fn plain(markdown: &str) -> String {
    let mut text = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once("](") {
        text.push_str(&before.replace('[', ""));
        rest = link.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.replace('`', "")
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if !line.is_empty() && line.chars().count() + word.chars().count() >= COLUMNS {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}
