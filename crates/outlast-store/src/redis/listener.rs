//! Wake-ups from other instances. They carry names only, and a slow poll makes up for lost ones.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use outlast_core::{ConversationId, Seq};
use redis::cmd;

use super::Shared;
use super::link::Link;
use super::reads::seq;
use super::server::Server;
use crate::StoreError;

/// The wait before a lost connection is made again.
const RECONNECT_WAIT: Duration = Duration::from_millis(500);
/// Conversations that one question of the poll asks about.
const POLL_STEP: usize = 512;
/// Addressed to every instance.
const EVERYBODY: &str = "*";

/// Listens for what other instances have changed.
pub(super) async fn listen(server: Server, shared: Arc<Shared>, instance: String) {
    loop {
        if let Err(error) = listen_once(&server, &shared, &instance).await {
            tracing::warn!(%error, "cannot listen to Redis; will retry");
        }
        tokio::time::sleep(RECONNECT_WAIT).await;
    }
}

async fn listen_once(server: &Server, shared: &Shared, instance: &str) -> Result<(), StoreError> {
    let (log, mail) = (format!("{}log", server.root), format!("{}mail", server.root));
    let mut listening = server.listen().await?;
    let subscribed = listening.subscribe(&[&log, &mail]).await;
    subscribed.map_err(|error| StoreError::Unavailable(error.to_string()))?;
    // What was said while nobody listened.
    shared.arrived.send_replace(());
    let mut messages = listening.on_message();
    while let Some(message) = messages.next().await {
        let Ok(payload) = std::str::from_utf8(message.get_payload_bytes()) else { continue };
        if message.get_channel_name() == log {
            shared.hear_log(payload, instance);
        } else if payload == instance || payload == EVERYBODY {
            shared.arrived.send_replace(());
        }
    }
    Err(StoreError::Unavailable("the connection was lost".to_owned()))
}

impl Shared {
    /// Who wrote, where the log ends now, and whose log it is.
    fn hear_log(&self, payload: &str, instance: &str) {
        let mut parts = payload.splitn(3, ' ');
        let (Some(writer), Some(last), Some(conversation)) = (parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        // What this instance wrote, its watchers know already.
        if writer != instance
            && let Ok(last) = seq(last)
        {
            self.wakes.wake(&ConversationId::from(conversation), last);
        }
    }
}

/// Looks for what no wake-up told, and notices a connection that broke while nobody used it.
pub(super) async fn poll(link: Link, shared: Arc<Shared>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        shared.arrived.send_replace(());
        if let Err(error) = poll_once(&link, &shared).await {
            tracing::warn!(%error, "cannot look for what other instances have written");
        }
    }
}

async fn poll_once(link: &Link, shared: &Shared) -> Result<(), StoreError> {
    let watched = shared.wakes.watched();
    if watched.is_empty() {
        return Ok(link.ask::<()>(&cmd("PING")).await?);
    }
    for step in watched.chunks(POLL_STEP) {
        let mut command = cmd("HMGET");
        command.arg(link.key("ends"));
        for (conversation, _) in step {
            command.arg(conversation.as_str());
        }
        let ends: Vec<Option<String>> = link.ask(&command).await?;
        for (end, (conversation, known)) in ends.iter().zip(step) {
            let last = end.as_deref().map_or(Ok(Seq::ZERO), seq)?;
            if last != *known {
                shared.wakes.wake(conversation, last);
            }
        }
    }
    Ok(())
}
