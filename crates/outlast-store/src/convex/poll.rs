//! Looks for what other instances have written.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::deployment::Deployment;
use super::{Shared, seq};
use crate::StoreError;
use crate::contract::InstanceId;

/// How long others may not notice a change. Each look is a call that hosted Convex charges for.
const POLL: Duration = Duration::from_millis(500);
/// Conversations that one question asks about, far fewer than the rows that Convex reads at once.
const POLL_STEP: usize = 512;

#[derive(Deserialize)]
struct News {
    ends: Vec<String>,
    mail: bool,
}

/// Runs as long as the store.
pub(super) async fn poll(deployment: Deployment, shared: Arc<Shared>, instance: InstanceId) {
    let mut failing = false;
    loop {
        tokio::time::sleep(POLL).await;
        let looked = poll_once(&deployment, &shared, &instance).await;
        // Said once, because every call that fails meanwhile says it, too.
        if let (Err(error), false) = (&looked, failing) {
            tracing::warn!(%error, "cannot look for what other instances have written; will retry");
        }
        failing = looked.is_err();
    }
}

async fn poll_once(
    deployment: &Deployment,
    shared: &Shared,
    instance: &InstanceId,
) -> Result<(), StoreError> {
    let watched = shared.wakes.watched();
    let mut from = 0;
    loop {
        let step = &watched[from..watched.len().min(from + POLL_STEP)];
        let names: Vec<&str> = step.iter().map(|(conversation, _)| conversation.as_str()).collect();
        let args = json!({ "conversations": names, "instance": instance.0 });
        let news: News = deployment.query("log:news", &args).await?;
        for (end, (conversation, known)) in news.ends.iter().zip(step) {
            shared.wakes.wake_from(conversation, *known, seq(end)?);
        }
        if news.mail && from == 0 {
            shared.arrived.send_replace(());
        }
        from += POLL_STEP;
        if from >= watched.len() {
            return Ok(());
        }
    }
}
