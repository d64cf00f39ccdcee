//! How much may be used: tokens in a day, and disk. The engine counts; here the counts are compared with the settings.
//!
//! The limits are compared when something starts. What already runs may go beyond them, by at most what the other limits
//! allow: `limits.live_generations_per_user` answers of `limits.answer_bytes`.

use std::num::NonZeroU64;
use std::time::Duration;

use outlast_engine::{Account, Engine};

use super::error::Problem;
use crate::auth::{Principal, Source};

/// When to try again after the disk was full. Only deleting something helps, which takes a person a while.
const DISK_RETRY: Duration = Duration::from_secs(60 * 60);

/// Tokens without a number have no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quotas {
    pub(crate) tokens_per_user: Option<NonZeroU64>,
    pub(crate) tokens_per_key: Option<NonZeroU64>,
    pub(crate) tokens: Option<NonZeroU64>,
    pub(crate) disk_per_user: u64,
}

impl Quotas {
    /// Whether the caller may start a generation. At most three reads, by id.
    pub(super) async fn start(&self, engine: &Engine, principal: &Principal) -> Result<(), Problem> {
        self.disk(engine, principal).await?;
        if let (Some(limit), Source::Key(id)) = (self.tokens_per_key, principal.credential()) {
            let key = Account::Key(id.clone());
            tokens(engine, &key, limit, "limits.tokens_per_day_per_key").await?;
        }
        if let Some(limit) = self.tokens_per_user {
            let user = Account::User(principal.user().clone());
            tokens(engine, &user, limit, "limits.tokens_per_day_per_user").await?;
        }
        if let Some(limit) = self.tokens {
            let all = tokens(engine, &Account::Everyone, limit, "limits.tokens_per_day").await;
            all.map_err(Problem::of_everybody)?;
        }
        Ok(())
    }

    /// Whether the caller may store more. The one user of a server without keys owns its disk.
    pub(super) async fn disk(&self, engine: &Engine, principal: &Principal) -> Result<(), Problem> {
        if principal.is_local() {
            return Ok(());
        }
        let used = engine.used(&Account::User(principal.user().clone())).await?.bytes;
        if used < self.disk_per_user {
            return Ok(());
        }
        let detail = format!(
            "your conversations take up about {used} bytes: limits.disk_per_user is reached; delete some of them"
        );
        Err(Problem::limited("limits.disk_per_user", detail).retry_after(DISK_RETRY))
    }
}

async fn tokens(
    engine: &Engine,
    account: &Account,
    limit: NonZeroU64,
    name: &'static str,
) -> Result<(), Problem> {
    let used = engine.used(account).await?.tokens;
    if used < limit.get() {
        return Ok(());
    }
    let detail = format!("{used} tokens were used today: {name} is reached; it starts over at midnight UTC");
    Err(Problem::limited(name, detail).retry_after(engine.day_ends_in()))
}
