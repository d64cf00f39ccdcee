//! `outlast config show`: the settings that a server would use, each with its origin. Secrets are not shown.

use toml::{Table, Value};

use super::Config;
use super::documented::rows;

/// Shown instead of a secret.
const REDACTED: &str = "[redacted]";
/// A text below one of these is a secret, whatever its own name is.
const SECRET_TABLES: [&str; 2] = ["headers", "env"];
/// A text whose name contains one of these is a secret, unless it only names the place of one.
const SECRET_WORDS: [&str; 4] = ["secret", "password", "token", "key"];
const PLACES: [&str; 2] = ["_env", "_file"];

impl Config {
    /// One line for every setting: first what was given, then the defaults in the order of the documentation.
    pub(crate) fn show(&self) -> String {
        let mut lines = Vec::new();
        for row in rows() {
            if find(&self.given.0, row.name).is_none()
                && let Some(value) = row.value()
            {
                lines.push((row.name.to_owned(), value.to_string(), "default".to_owned()));
            }
        }
        let defaults = lines.len();
        self.collect("", &self.given.0, &mut lines);
        let given = lines.split_off(defaults);
        let width =
            lines.iter().chain(&given).map(|(name, value, _)| name.len() + value.len()).max().unwrap_or(0);
        let width = width.min(80);
        let mut text = String::new();
        for (name, value, origin) in given.into_iter().chain(lines) {
            let space = " ".repeat(width.saturating_sub(name.len() + value.len()));
            text.push_str(&format!("{name} = {value}{space}  # {origin}\n"));
        }
        text
    }

    fn collect(&self, above: &str, table: &Table, lines: &mut Vec<(String, String, String)>) {
        for (key, value) in table {
            let name = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
            match value {
                Value::Table(below) if !below.is_empty() => self.collect(&name, below, lines),
                value => {
                    let origin = self.origins.of(&name).map(ToString::to_string).unwrap_or_default();
                    lines.push((name.clone(), redacted(&name, value).to_string(), origin));
                }
            }
        }
    }
}

fn find<'a>(tree: &'a Table, name: &str) -> Option<&'a Value> {
    let mut levels = name.split('.');
    let first = tree.get(levels.next()?)?;
    levels.try_fold(first, |value, level| value.get(level))
}

fn redacted(name: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if is_secret(name) && !text.is_empty() => Value::String(REDACTED.to_owned()),
        Value::String(text) => Value::String(without_password(text)),
        Value::Array(items) => Value::Array(items.iter().map(|item| redacted(name, item)).collect()),
        Value::Table(table) => {
            let below =
                table.iter().map(|(key, value)| (key.clone(), redacted(&format!("{name}.{key}"), value)));
            Value::Table(below.collect())
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) => value.clone(),
    }
}

fn is_secret(name: &str) -> bool {
    let mut levels = name.split('.').rev();
    let last = levels.next().unwrap_or_default();
    let below = levels.any(|level| SECRET_TABLES.contains(&level));
    let named = SECRET_WORDS.iter().any(|word| last.contains(word));
    below || named && !PLACES.iter().any(|place| last.ends_with(place))
}

/// A URL may have a password before its host, and a key in its query.
fn without_password(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let (rest, query) = rest.split_once('?').map_or((rest, ""), |(rest, _)| (rest, "?[redacted]"));
    let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{user}:{REDACTED}@{host}")
        }
        None => authority.to_owned(),
    };
    format!("{scheme}://{host}{path}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i14_a_password_in_a_url_is_not_shown() {
        for (url, shown) in [
            (
                "postgres://ann:sk@db:5432/outlast?sslmode=x",
                "postgres://ann:[redacted]@db:5432/outlast?[redacted]",
            ),
            ("postgres://ann@db/outlast", "postgres://ann:[redacted]@db/outlast"),
            ("https://a@b:sk@db", "https://a@b:[redacted]@db"),
            ("https://example.com/v1", "https://example.com/v1"),
            ("sqlite:", "sqlite:"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn i14_texts_with_the_name_of_a_secret_are_not_shown() {
        for secret in
            ["models.a.headers.X-Title", "mcp.x.env.HOME", "x.api_key", "push.private_key", "a.token"]
        {
            assert!(is_secret(secret), "{secret}");
        }
        for shown in ["models.a.api_key_env", "models.a.api_key_file", "jwt.secret_env", "store.url"] {
            assert!(!is_secret(shown), "{shown}");
        }
    }
}
