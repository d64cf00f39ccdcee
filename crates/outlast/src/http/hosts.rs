//! The host names of this server.
//!
//! An attacker can point a host name at this machine by DNS, and a page under that name is then "same origin".
//! The browser still sends that name in `Host`, so only names that belong to this server are accepted there.
//! `Host` is parsed strictly: whatever two parsers could read differently is refused.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// The names accepted in `Host`: this machine's own, and those in `server.allowed_hosts`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "Entries")]
pub(crate) struct Hosts {
    allowed: Vec<Pattern>,
    any_address: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exact(Name),
    /// Every name that ends with this suffix, which starts with a dot.
    Below(String),
}

/// A `Host` header or the part of an origin after its scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: Name,
    pub(crate) port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// In lower case.
    Dns(String),
    Address(IpAddr),
}

/// `server.allowed_hosts` as written: a list, or a string with commas for environment variables.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a list of names")]
enum Entries {
    Text(String),
    List(Vec<String>),
}

/// An invalid entry of `server.allowed_hosts`.
#[derive(Debug)]
struct NotAHost;

impl fmt::Display for NotAHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "each entry must be a name without scheme and port, like chat.example.com or *.example.com",
        )
    }
}

impl TryFrom<Entries> for Hosts {
    type Error = NotAHost;

    fn try_from(entries: Entries) -> Result<Hosts, NotAHost> {
        let entries = match entries {
            Entries::Text(text) => text.split(',').map(|entry| entry.trim().to_owned()).collect(),
            Entries::List(list) => list,
        };
        let allowed = entries.iter().map(|entry| Pattern::parse(entry)).collect::<Option<_>>();
        Ok(Hosts { allowed: allowed.ok_or(NotAHost)?, any_address: false })
    }
}

impl Hosts {
    #[cfg(test)]
    pub(crate) fn of(entries: &str) -> Hosts {
        Entries::Text(entries.to_owned()).try_into().expect("a test uses valid entries")
    }

    /// Also accepts any IP address. Unlike a name, an address cannot be pointed at another machine.
    pub(crate) fn with_any_address(self) -> Hosts {
        Hosts { any_address: true, ..self }
    }

    pub(crate) fn contains(&self, name: &Name) -> bool {
        let own = match name {
            // Browsers resolve these to this machine without DNS.
            Name::Dns(name) => name == "localhost" || name.ends_with(".localhost"),
            Name::Address(address) => self.any_address || address.is_loopback(),
        };
        own || self.allowed.iter().any(|pattern| pattern.matches(name))
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Pattern> {
        match text.strip_prefix("*.") {
            Some(parent) => match Name::parse(parent)? {
                Name::Dns(parent) => Some(Pattern::Below(format!(".{parent}"))),
                Name::Address(_) => None,
            },
            None => Name::parse(text).map(Pattern::Exact),
        }
    }

    fn matches(&self, name: &Name) -> bool {
        match (self, name) {
            (Pattern::Exact(exact), name) => exact == name,
            (Pattern::Below(parent), Name::Dns(name)) => name.ends_with(parent),
            (Pattern::Below(_), Name::Address(_)) => false,
        }
    }
}

impl Host {
    /// `name`, `name:port`, `[address]` or `[address]:port`, and nothing else.
    pub(crate) fn parse(text: &str) -> Option<Host> {
        let end = match text.strip_prefix('[') {
            Some(rest) => rest.find(']')? + 2,
            None => text.find(':').unwrap_or(text.len()),
        };
        let (name, port) = text.split_at(end);
        let port = match port.strip_prefix(':') {
            Some(port) => Some(parse_port(port)?),
            None if port.is_empty() => None,
            None => return None,
        };
        Some(Host { name: Name::parse(name)?, port })
    }
}

impl Name {
    fn parse(text: &str) -> Option<Name> {
        if let Some(address) = text.strip_prefix('[') {
            let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
            return Some(Name::Address(address.into()));
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Name::Address(address.into()));
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        // A last label of digits is an address to some parsers (`127.1`) and a name to others.
        let numeric = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        let plain = text.split('.').all(label) && !text.rsplit('.').next().is_some_and(numeric);
        plain.then(|| Name::Dns(text.to_ascii_lowercase()))
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()); // `parse` alone would accept `+80`
    text.parse().ok().filter(|port| digits && *port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(hosts: &Hosts, text: &str) -> bool {
        Host::parse(text).is_some_and(|host| hosts.contains(&host.name))
    }

    #[test]
    fn without_settings_only_names_of_this_machine_are_accepted() {
        let hosts = Hosts::default();
        for own in [
            "localhost",
            "LOCALHOST:8787",
            "app.localhost:5173",
            "127.0.0.1",
            "127.0.0.1:8787",
            "127.8.8.8:1",
            "[::1]",
            "[::1]:65535",
        ] {
            assert!(allows(&hosts, own), "{own}");
        }
        for foreign in [
            "",
            ":8787",
            "example.com",
            "localhost.evil",
            "localhost.evil:8787",
            "evil-localhost",
            "127.0.0.1.evil.com",
            "127.0.0.1.evil.com:8787",
            "[::1].evil",
            "[::1]evil:8787",
            "[::1",
            "::1",
            "[127.0.0.1]",
            "[fe80::1%lo]",
            "user@localhost",
            "localhost@evil.example",
            "localhost:8787@evil.example",
            "localhost:",
            "localhost:0",
            "localhost:+80",
            "localhost:80:80",
            "localhost:65536",
            "localhost:http",
            "localhost:8787/",
            "localhost/",
            "localhost#",
            "localhost?",
            "localhost\\evil",
            "localhost evil",
            "localhost,evil",
            "localhost.",
            ".localhost",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0127.0.0.1",
            "192.168.0.7:8787",
            "[fe80::1]",
            "0.0.0.0:8787",
            "*",
            "*.localhost",
        ] {
            assert!(!allows(&hosts, foreign), "{foreign}");
        }
    }

    #[test]
    fn allowed_names_are_accepted_exactly_or_below_a_star() {
        let hosts = Hosts::of("Chat.example.com, *.team.example,192.168.0.7,[fd00::7]");
        for name in [
            "chat.example.com",
            "CHAT.EXAMPLE.COM:8443",
            "a.team.example",
            "b.a.team.example:443",
            "192.168.0.7:8787",
            "[fd00::7]:8787",
            "localhost",
        ] {
            assert!(allows(&hosts, name), "{name}");
        }
        for name in [
            "example.com",
            "x.chat.example.com",
            "team.example",
            "evilteam.example",
            "chat.example.com.evil",
            "192.168.0.8",
        ] {
            assert!(!allows(&hosts, name), "{name}");
        }
    }

    #[test]
    fn an_exposed_server_accepts_its_address_but_no_foreign_name() {
        let hosts = Hosts::default().with_any_address();
        assert!(allows(&hosts, "192.168.0.7:8787") && allows(&hosts, "[fd00::7]:8787"));
        assert!(!allows(&hosts, "example.com"));
    }

    #[test]
    fn an_invalid_entry_is_refused() {
        for entry in
            ["", "*", "*.", "*.*.com", "a.*.com", "http://a.com", "a.com:80", "a.com/", "*.1.2.3.4", "a b"]
        {
            assert!(Hosts::try_from(Entries::List(vec![entry.to_owned()])).is_err(), "{entry:?}");
        }
    }
}
