//! `[mcp.<name>]`: a server that brings its own tools by the Model Context Protocol.

use std::collections::BTreeMap;
use std::time::Duration;

use outlast_engine::Secret;
use outlast_engine::outside::{Outside, Walls};
use outlast_engine::tools::{McpAddress, McpProgram, McpSettings};
use serde::Deserialize;

use super::duration;
use super::http_tools::HeaderSource;

/// How long a call may take if the settings do not say.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct McpSection {
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSource>,
    /// Whether it may be at a private address and use plain http.
    #[serde(default)]
    allow_private: bool,
    /// A program and its arguments, instead of a URL.
    command: Option<Vec<String>>,
    #[serde(default)]
    env: BTreeMap<String, HeaderSource>,
    /// Whether the program may run on this machine with the rights of the server.
    #[serde(default)]
    host: bool,
    #[serde(default = "timeout", deserialize_with = "duration::deserialize")]
    timeout: Duration,
    /// Its tools that change nothing, by the server's names for them.
    #[serde(default)]
    pub(super) read_only: Vec<String>,
    /// Its tools for which two calls with the same execution id have the effect of one.
    #[serde(default)]
    pub(super) idempotent: Vec<String>,
}

fn timeout() -> Duration {
    TIMEOUT
}

impl McpSection {
    pub(crate) fn settings(&self, name: &str, own_port: u16) -> Result<McpSettings, String> {
        let address = match (&self.url, &self.command) {
            (Some(url), None) => self.at_url(url, own_port)?,
            (None, Some(command)) => self.program(command)?,
            (Some(_), Some(_)) => return Err("give either url or command, not both".to_owned()),
            (None, None) => return Err("url or command is missing".to_owned()),
        };
        Ok(McpSettings { name: name.to_owned(), address, timeout: self.timeout })
    }

    fn at_url(&self, url: &str, own_port: u16) -> Result<McpAddress, String> {
        if self.host || !self.env.is_empty() {
            return Err("host and env are for a server with a command".to_owned());
        }
        let walls = Walls { allow_private: self.allow_private, own_ports: vec![own_port] };
        McpAddress::url(url, Outside::new(walls)?, &read(&self.headers, "headers")?)
    }

    fn program(&self, command: &[String]) -> Result<McpAddress, String> {
        if self.allow_private || !self.headers.is_empty() {
            return Err("headers and allow_private are for a server with a url".to_owned());
        }
        if !self.host {
            return Err(
                "the command would run on this machine, outside of every sandbox; set host = true to \
                        allow that"
                    .to_owned(),
            );
        }
        Ok(McpAddress::Program(McpProgram { command: command.to_vec(), env: read(&self.env, "env")? }))
    }
}

fn read(sources: &BTreeMap<String, HeaderSource>, what: &str) -> Result<BTreeMap<String, Secret>, String> {
    let mut values = BTreeMap::new();
    for (name, source) in sources {
        let value = source.read().map_err(|error| format!("{what}: {name}: {error}"))?;
        values.insert(name.clone(), value);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use outlast_core::{Place, Policy, rule_of};

    use crate::config::{Config, Sources};

    fn load(settings: &str) -> Config {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(settings.as_bytes()).unwrap();
        Config::load(Sources::of_file(file.path())).unwrap()
    }

    #[test]
    fn x4_the_tools_of_a_server_ask_a_person_unless_the_settings_say_otherwise() {
        let config = load(
            "[mcp.files]\nurl = \"https://a.test/mcp\"\nread_only = [\"read\", \"look.up\"]\nidempotent = [\"put\"]\n\
             [tools.files__read]\npolicy = \"allow\"\n\
             [mcp.other]\ncommand = [\"server\"]\nhost = true\nenv = { KEY = { env = \"PATH\" } }\n\
             [tools.other]\npolicy = \"allow\"\nrules = [{ match = { path = \"x\" }, policy = \"deny\" }]\n\
             [tools.other__remove]\npolicy = \"deny\"",
        );
        config.check().unwrap();
        let rules = config.engine().unwrap().rules.tools;
        let said = |name: &str| {
            let rule = rule_of(&rules, name).unwrap();
            assert_eq!(rule.place, Place::Elsewhere);
            (rule.policy, rule.read_only, rule.idempotent, rule.rules.len())
        };
        assert_eq!(said("files__read"), (Policy::Allow, true, false, 0));
        assert_eq!(said("files__look_up"), (Policy::Ask, true, false, 0));
        assert_eq!(said("files__put"), (Policy::Ask, false, true, 0));
        assert_eq!(said("files__write"), (Policy::Ask, false, false, 0));
        assert_eq!(said("other__anything"), (Policy::Allow, false, false, 1));
        assert_eq!(said("other__remove"), (Policy::Deny, false, false, 1));
    }

    #[test]
    fn x4_a_server_that_cannot_work_stops_the_start_and_no_key_is_shown() {
        let url = "url = \"https://a.test/\"";
        for (settings, said) in [
            ("[mcp.a]".to_owned(), "url or command is missing"),
            (format!("[mcp.a]\n{url}\ncommand = [\"x\"]"), "not both"),
            ("[mcp.a]\ncommand = [\"x\"]".to_owned(), "host = true"),
            ("[mcp.a]\ncommand = []\nhost = true".to_owned(), "must name a program"),
            ("[mcp.a]\nurl = \"http://a.test/\"".to_owned(), "https://"),
            ("[mcp.a]\nurl = \"https://127.0.0.1/\"".to_owned(), "not allowed"),
            (format!("[mcp.a]\n{url}\nhost = true"), "for a server with a command"),
            (format!("[mcp.a]\n{url}\nheaders = {{ Mcp-Session-Id = \"1\" }}"), "set by the server itself"),
            (format!("[mcp.a]\n{url}\nheaders = {{ X = \"sk-canary\\n\" }}"), "X is not a valid header"),
            (format!("[mcp.a]\n{url}\nheaders = {{ X = {{ env = \"NOT_SET_canary\" }} }}"), "not set"),
            (format!("[mcp.a]\n{url}\ntimeout = \"0s\""), "timeout"),
            (format!("[mcp.a__b]\n{url}"), "a server's name"),
            (format!("[mcp.bash]\n{url}"), "already has this name"),
            (format!("[http_tools.a__b]\n{url}\n[mcp.a]\n{url}"), "already has this name"),
            (format!("[mcp.a]\n{url}\n[tools.\"a__*\"]\npolicy = \"allow\""), "unknown tool"),
            (format!("[mcp.a]\n{url}\n[tools.b__c]\npolicy = \"allow\""), "unknown tool"),
        ] {
            let error = format!("{:#}", load(&settings).check().unwrap_err());
            assert!(error.contains(said) && !error.contains("canary"), "{settings}: {error}");
        }
    }
}
