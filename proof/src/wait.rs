//! Waiting for conditions. There are no fixed sleeps: a wait ends when its condition holds, and an error says what
//! did not happen in time.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep, timeout};

/// Longer than a working server ever needs, even on a busy machine with two cores.
pub const LONG: Duration = Duration::from_secs(60);

/// How often a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Calls the function until it returns something.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() >= deadline {
            bail!("{what} did not happen within {within:?}");
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Waits for a future, at most this long.
pub async fn bounded<T>(what: &str, within: Duration, task: impl Future<Output = T>) -> anyhow::Result<T> {
    match timeout(within, task).await {
        Ok(done) => Ok(done),
        Err(_) => bail!("{what} took longer than {within:?}"),
    }
}
