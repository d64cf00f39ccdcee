//! What users have used: tokens of a day, and bytes on disk.
//!
//! Events are counted in memory, and every few seconds each account that changed is added to its item in the store. So
//! an event costs the same however much there is, counts survive a restart, and several instances share them. They are
//! approximate: a crash forgets what was counted since the accounts were last saved.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use outlast_core::{Timestamp, UserId};
use outlast_store::{Item, PutError, StoreError};
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Shared};

const ACCOUNT: &str = "account";
/// How much a crash may forget. Shorter would write more often than anybody looks.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// How many accounts are written at the same time: enough to share commits of the store.
const SAVES_AT_ONCE: usize = 64;
/// How often a write is tried again because another instance was faster.
const WRITE_TRIES: usize = 20;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// Whose use is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Account {
    Everyone,
    User(UserId),
    /// An API key, by its id.
    Key(String),
}

/// What an account has used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Used {
    /// Days since 1970, in UTC. Tokens are those of this day.
    day: i64,
    pub tokens: u64,
    /// What its conversations take up.
    pub bytes: u64,
}

/// What has been used since the account was saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Delta {
    day: i64,
    tokens: u64,
    bytes: i64,
}

/// The use that is not saved yet. It has an entry for each account that changed since the last save; while the store
/// accepts nothing, nothing can be recorded either.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    unsaved: Mutex<HashMap<Account, Delta>>,
}

/// What one conversation has used.
pub(crate) struct Use<'a> {
    pub(crate) user: &'a UserId,
    /// The API key that asked for it.
    pub(crate) key: Option<&'a str>,
    pub(crate) tokens: u64,
    /// Negative if something was deleted.
    pub(crate) bytes: i64,
}

impl Ledger {
    pub(crate) fn charge(&self, used: &Use<'_>, now: Timestamp) {
        if used.tokens == 0 && used.bytes == 0 {
            return;
        }
        let delta = Delta { day: day(now), tokens: used.tokens, bytes: used.bytes };
        let mut unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut add = |account| unsaved.entry(account).or_default().add(delta);
        add(Account::User(used.user.clone()));
        if used.tokens > 0 {
            add(Account::Everyone);
            if let Some(key) = used.key {
                add(Account::Key(key.to_owned()));
            }
        }
    }

    fn unsaved(&self) -> Vec<(Account, Delta)> {
        let unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        unsaved.iter().map(|(account, delta)| (account.clone(), *delta)).collect()
    }

    fn of(&self, account: &Account) -> Delta {
        let unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        unsaved.get(account).copied().unwrap_or_default()
    }

    /// Forgets what was saved, and keeps what came meanwhile.
    fn saved(&self, account: &Account, saved: Delta) {
        let mut unsaved = self.unsaved.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(delta) = unsaved.get_mut(account) else { return };
        delta.bytes -= saved.bytes;
        if delta.day == saved.day {
            delta.tokens -= saved.tokens;
        }
        if delta.tokens == 0 && delta.bytes == 0 {
            unsaved.remove(account);
        }
    }
}

impl Delta {
    fn add(&mut self, more: Delta) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        if more.tokens > 0 && more.day > self.day {
            (self.day, self.tokens) = (more.day, 0);
        }
        if more.day == self.day {
            self.tokens = self.tokens.saturating_add(more.tokens);
        }
    }
}

impl Used {
    fn add(&mut self, delta: Delta) {
        self.bytes = self.bytes.saturating_add_signed(delta.bytes);
        if delta.tokens > 0 && delta.day > self.day {
            (self.day, self.tokens) = (delta.day, 0);
        }
        if delta.day == self.day {
            self.tokens = self.tokens.saturating_add(delta.tokens);
        }
    }
}

impl Account {
    fn item_id(&self) -> String {
        match self {
            Account::Everyone => "all".to_owned(),
            Account::User(user) => format!("user:{}", user.as_str()),
            Account::Key(id) => format!("key:{id}"),
        }
    }

    fn user(&self) -> UserId {
        match self {
            Account::User(user) => user.clone(),
            Account::Everyone | Account::Key(_) => UserId::from(""),
        }
    }
}

impl Engine {
    /// What an account has used: tokens today, and bytes. One read, however much there is.
    pub async fn used(&self, account: &Account) -> Result<Used, StoreError> {
        let mut used = read(self.shared.store.get_item(ACCOUNT, &account.item_id()).await?.as_ref());
        used.add(self.shared.ledger.of(account));
        let today = day(self.now());
        Ok(if used.day == today { used } else { Used { day: today, tokens: 0, ..used } })
    }

    /// When the count of tokens starts over: at midnight, UTC.
    pub fn day_ends_in(&self) -> Duration {
        let left = DAY_MS - self.now().0.rem_euclid(DAY_MS);
        Duration::from_millis(left.unsigned_abs())
    }

    /// Saves the accounts now and then, until the engine stops.
    pub(crate) async fn keep_accounts(self) {
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = tokio::time::sleep(SAVE_EVERY) => self.shared.save_accounts().await,
            }
        }
    }
}

impl Shared {
    pub(crate) async fn save_accounts(&self) {
        let saves = stream::iter(self.ledger.unsaved()).map(async |(account, delta)| {
            match self.save_account(&account, delta).await {
                Ok(()) => self.ledger.saved(&account, delta),
                Err(error) => tracing::warn!(%error, "cannot save what was used; will retry"),
            }
        });
        saves.buffer_unordered(SAVES_AT_ONCE).collect::<()>().await;
    }

    async fn save_account(&self, account: &Account, delta: Delta) -> Result<(), StoreError> {
        for _ in 0..WRITE_TRIES {
            let item = self.store.get_item(ACCOUNT, &account.item_id()).await?;
            let mut used = read(item.as_ref());
            used.add(delta);
            let new = || Item {
                kind: ACCOUNT.to_owned(),
                id: account.item_id(),
                user: account.user(),
                order: self.clock.now().0,
                due: None,
                version: 0,
                body: String::new(),
            };
            let body = serde_json::to_string(&used).expect("our own types have string keys");
            match self.store.put_item(Item { body, ..item.unwrap_or_else(new) }).await {
                // Unconfirmed: counting it once or not at all is better than counting it twice.
                Ok(_) | Err(PutError::Unconfirmed(_)) => return Ok(()),
                Err(PutError::Conflict) => {}
                Err(PutError::Unavailable(reason)) => return Err(StoreError::Unavailable(reason)),
            }
        }
        Err(StoreError::Unavailable("an account keeps changing".to_owned()))
    }
}

fn read(item: Option<&Item>) -> Used {
    let read = |item: &Item| {
        serde_json::from_str(&item.body)
            .inspect_err(|error| tracing::error!(id = item.id, %error, "skipped an unreadable account"))
            .ok()
    };
    item.and_then(read).unwrap_or_default()
}

fn day(now: Timestamp) -> i64 {
    now.0.div_euclid(DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp(20_000 * DAY_MS + DAY_MS / 2);
    const NEXT_DAY: Timestamp = Timestamp(NOON.0 + DAY_MS);

    fn charge(ledger: &Ledger, tokens: u64, bytes: i64, now: Timestamp) {
        ledger.charge(&Use { user: &"ann".into(), key: Some("k"), tokens, bytes }, now);
    }

    #[test]
    fn b4_tokens_start_over_every_day_and_bytes_do_not() {
        let (ledger, ann) = (Ledger::default(), Account::User("ann".into()));
        charge(&ledger, 10, 100, NOON);
        charge(&ledger, 5, -30, NOON);
        assert_eq!(ledger.of(&ann), Delta { day: 20_000, tokens: 15, bytes: 70 });
        charge(&ledger, 7, 1, NEXT_DAY);
        assert_eq!(ledger.of(&ann), Delta { day: 20_001, tokens: 7, bytes: 71 });
        charge(&ledger, 9, 0, NOON);
        assert_eq!(ledger.of(&ann).tokens, 7, "a clock that went back adds nothing to today");
        assert_eq!(ledger.of(&Account::Key("k".to_owned())).tokens, 7);
        assert_eq!(ledger.of(&Account::Everyone).tokens, 7);
    }

    #[test]
    fn b4_what_comes_while_an_account_is_saved_is_kept() {
        let (ledger, ann) = (Ledger::default(), Account::User("ann".into()));
        charge(&ledger, 10, 100, NOON);
        let saved = ledger.of(&ann);
        charge(&ledger, 1, 5, NOON);
        ledger.saved(&ann, saved);
        assert_eq!(ledger.of(&ann), Delta { day: 20_000, tokens: 1, bytes: 5 });
        ledger.saved(&ann, ledger.of(&ann));
        assert!(!ledger.unsaved.lock().unwrap().contains_key(&ann), "nothing is left behind");
    }

    #[test]
    fn b4_an_account_never_falls_below_zero() {
        let mut used = Used { day: 20_000, tokens: 5, bytes: 10 };
        used.add(Delta { day: 20_001, tokens: 0, bytes: -50 });
        assert_eq!(used, Used { day: 20_000, tokens: 5, bytes: 0 });
    }
}
