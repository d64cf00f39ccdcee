//! Waiting for conditions. Nobody here sleeps for luck: a wait ends when its condition holds, and an error
//! says what did not happen in time.

use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep, timeout};

/// What a healthy server never needs, even on a busy machine with two cores.
pub const LONG: Duration = Duration::from_secs(60);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Looks again and again until there is something.
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

/// Waits for something that ends by itself, for so long.
pub async fn bounded<T>(what: &str, within: Duration, task: impl Future<Output = T>) -> anyhow::Result<T> {
    match timeout(within, task).await {
        Ok(done) => Ok(done),
        Err(_) => bail!("{what} took longer than {within:?}"),
    }
}
