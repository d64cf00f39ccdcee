//! `outlast keys`: creates, lists and revokes API keys, whether or not a server is running.

use std::time::Duration;

use clap::{Args, Subcommand};
use outlast_core::Timestamp;
use outlast_engine::Clock;
use outlast_store::Items;

use super::keys::{self, KeySpec};
use super::scopes::{Scopes, ScopesError};
use crate::audit::{Action, Audit};
use crate::config::parse_duration;

#[derive(Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and print it. It is shown only once.
    Create(Create),
    /// List all keys, newest first. Secrets are not stored and cannot be shown.
    List,
    /// Revoke a key: requests with it fail at once, and its streams end within 5 seconds.
    Revoke {
        /// The key's id, as `list` shows it; the key itself works too
        id: String,
    },
}

#[derive(Args)]
pub(crate) struct Create {
    /// The key's user. Users need not be created first; each sees only their own data
    #[arg(long)]
    user: String,
    /// What the key allows, separated by commas: read, write, approve, produce, admin
    #[arg(long, default_value = Scopes::USUAL, value_parser = parse_scopes)]
    scopes: Scopes,
    /// How long the key is valid, such as 90d; by default it never expires
    #[arg(long, value_name = "DURATION", value_parser = parse_expiry)]
    expires: Option<Duration>,
}

fn parse_scopes(text: &str) -> Result<Scopes, ScopesError> {
    Scopes::parse(text)
}

fn parse_expiry(text: &str) -> Result<Duration, &'static str> {
    parse_duration(text).ok_or("not a duration like 90d, 12h or 30m")
}

impl KeysCommand {
    pub(crate) async fn run(self, items: &dyn Items, audit: &Audit) -> anyhow::Result<()> {
        let now = Clock::System.now();
        match self {
            KeysCommand::Create(Create { user, scopes, expires }) => {
                let expires_at = expires.map(|expires| now.after(expires));
                let key = keys::create(items, KeySpec { user, scopes, expires_at }, now).await?;
                let id = keys::PresentedKey::parse(&key).map(|key| key.id().to_owned()).unwrap_or_default();
                audit.record(&Action { object: id, ..Action::here(now, "keys create".to_owned()) });
                say(&key);
                eprintln!(
                    "This key is shown only once. From now on, the server needs a key for every request."
                );
            }
            KeysCommand::List => {
                say("ID                USER  SCOPES  CREATED  STATUS");
                for key in keys::list(items).await? {
                    let status = status(&key, now);
                    let created = key.created_at;
                    say(&format!("{}  {:?}  {}  {created}  {status}", key.id, key.user.as_str(), key.scopes));
                }
            }
            KeysCommand::Revoke { id } => {
                let id = keys::PresentedKey::parse(&id).map_or(id.as_str(), |key| key.id());
                keys::revoke(items, id, now).await?;
                audit
                    .record(&Action { object: id.to_owned(), ..Action::here(now, "keys revoke".to_owned()) });
                eprintln!("revoked {id}");
            }
        }
        Ok(())
    }
}

fn status(key: &keys::Key, now: Timestamp) -> String {
    match (key.revoked_at, key.expires_at) {
        (Some(revoked), _) => format!("revoked {revoked}"),
        (None, Some(expires)) if expires <= now => format!("expired {expires}"),
        (None, Some(expires)) => format!("expires {expires}"),
        (None, None) => "active".to_owned(),
    }
}

#[expect(clippy::print_stdout, reason = "the output of the command")]
fn say(line: &str) {
    println!("{line}");
}
