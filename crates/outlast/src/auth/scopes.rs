//! What a credential allows.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Read all data of the user.
    Read,
    /// Start, change, cancel and delete.
    Write,
    /// Decide about tool calls.
    Approve,
    /// Produce answers as a worker.
    Produce,
    /// Operate the server: see the generations of all users, but not their content.
    Admin,
}

impl Scope {
    const ALL: [Scope; 5] = [Scope::Read, Scope::Write, Scope::Approve, Scope::Produce, Scope::Admin];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Write => "write",
            Scope::Approve => "approve",
            Scope::Produce => "produce",
            Scope::Admin => "admin",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub(crate) struct Scopes(u8);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScopesError {
    #[error("unknown scope {0:?}: use read, write, approve, produce, admin")]
    Unknown(String),
    #[error("a worker's key can never approve: use two keys, one with produce and one with approve")]
    WorkerApproves,
    #[error("a key needs at least one scope")]
    Empty,
}

impl Scopes {
    /// The scopes of the one user of a server without keys, who owns the machine.
    pub(crate) const ALL: Scopes = Scopes(0b1_1111);

    /// The default scopes of a key.
    pub(crate) const USUAL: &str = "read,write,approve";

    /// The scopes of a new key, as they are given on the command line.
    pub(crate) fn parse(text: &str) -> Result<Scopes, ScopesError> {
        let scopes = Scopes::of(text.split(',').map(str::trim).filter(|name| !name.is_empty()))?;
        if scopes == Scopes::default() {
            return Err(ScopesError::Empty);
        }
        if scopes.contains(Scope::Produce) && scopes.contains(Scope::Approve) {
            return Err(ScopesError::WorkerApproves);
        }
        Ok(scopes)
    }

    pub(crate) fn usual() -> Scopes {
        Scopes::parse(Scopes::USUAL).expect("the usual scopes are scopes")
    }

    /// The `scope` of a token: other names may stand there too. A worker's token can never approve.
    pub(crate) fn of_token(text: &str) -> Scopes {
        let known = |name: &&str| Scope::ALL.iter().any(|scope| scope.name() == *name);
        let mut scopes = Scopes::of(text.split(' ').filter(known)).unwrap_or_default();
        if scopes.contains(Scope::Produce) {
            scopes.0 &= !Scope::Approve.bit();
        }
        scopes
    }

    fn of<'a>(names: impl Iterator<Item = &'a str>) -> Result<Scopes, ScopesError> {
        let mut scopes = Scopes::default();
        for name in names {
            let scope = Scope::ALL.into_iter().find(|scope| scope.name() == name);
            scopes.0 |= scope.ok_or_else(|| ScopesError::Unknown(name.to_owned()))?.bit();
        }
        Ok(scopes)
    }

    pub(crate) fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope)).map(Scope::name)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(","))
    }
}

impl TryFrom<Vec<String>> for Scopes {
    type Error = ScopesError;

    fn try_from(names: Vec<String>) -> Result<Scopes, ScopesError> {
        Scopes::of(names.iter().map(String::as_str))
    }
}

impl From<Scopes> for Vec<String> {
    fn from(scopes: Scopes) -> Vec<String> {
        scopes.names().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_a_list_of_known_names() {
        let scopes = Scopes::parse("write, read").unwrap();
        assert_eq!(scopes.to_string(), "read,write");
        assert!(scopes.contains(Scope::Read) && !scopes.contains(Scope::Admin));
        assert_eq!(Scopes::parse("read,root"), Err(ScopesError::Unknown("root".to_owned())));
        assert_eq!(Scopes::parse(" ,"), Err(ScopesError::Empty));
        assert!(Scopes::parse(Scopes::USUAL).unwrap().contains(Scope::Approve));
    }

    #[test]
    fn a_workers_key_can_never_approve() {
        assert_eq!(Scopes::parse("produce,approve"), Err(ScopesError::WorkerApproves));
        assert!(Scopes::parse("produce,read").is_ok());
        assert_eq!(Scopes::of_token("openid produce approve read").to_string(), "read,produce");
    }
}
