//! How long another instance needs for 1,000 conversations of one that is dead.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use outlast_core::{ConversationId, Seq};
use outlast_store::suite::postgres::Server;
use outlast_store::{Append, PostgresOptions, PostgresStore, Record, Store};
use tokio::time::sleep;

const CONVERSATIONS: usize = 1_000;
const ROUNDS: usize = 3;
/// Of the one that dies.
const LEASE: Duration = Duration::from_millis(500);
/// How often to look whether the lease has expired.
const LOOK: Duration = Duration::from_millis(2);

/// The longest of a few rounds, in milliseconds, from the end of the lease until all are claimed.
pub(super) async fn measure(server: &Server) -> anyhow::Result<f64> {
    let mut longest = Duration::ZERO;
    for _ in 0..ROUNDS {
        longest = longest.max(round(server).await?);
    }
    Ok(longest.as_secs_f64() * 1e3)
}

async fn round(server: &Server) -> anyhow::Result<Duration> {
    let url = server.url();
    let dying = PostgresStore::open(&url, PostgresOptions::default()).await?;
    let heir = PostgresStore::open(&url, PostgresOptions::default()).await?;
    let conversations: Vec<_> =
        (0..CONVERSATIONS).map(|n| ConversationId::from(format!("conversation {n}"))).collect();
    try_join_all(conversations.iter().map(|conversation| begin(&dying, conversation))).await?;
    heir.renew(LEASE * 100).await?;
    dying.renew(LEASE).await?;
    while !heir.others().await?.is_empty() {
        sleep(LOOK).await;
    }
    let expired = Instant::now();
    try_join_all(conversations.iter().map(|conversation| heir.claim(conversation))).await?;
    let took = expired.elapsed();
    heir.leave().await?;
    Ok(took)
}

async fn begin(store: &PostgresStore, conversation: &ConversationId) -> anyhow::Result<()> {
    let fence = store.claim(conversation).await?;
    let record = Record { seq: Seq(1), bytes: Bytes::from_static(br#"{"type":"chat.started"}"#) };
    store
        .append(Append {
            conversation: conversation.clone(),
            fence,
            expected: Seq::ZERO,
            records: vec![record],
            changes: Vec::new(),
            replies: Vec::new(),
            limits: Vec::new(),
        })
        .await?;
    Ok(())
}
