//! Wake-ups from and to other instances. They carry names only, and a slow poll makes up for lost ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use outlast_core::{ConversationId, Seq};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_postgres::AsyncMessage;

use super::Shared;
use super::connect::{Backoff, Source, store_error};
use crate::StoreError;

/// The payload of one notification may have 7,999 bytes.
const PAYLOAD_BYTES: usize = 7_900;
/// Wake-ups about logs leave this far apart; those that wait are merged.
const NOTIFY_EVERY: Duration = Duration::from_millis(5);
/// Addressed to every instance.
pub(super) const EVERYBODY: &str = "*";

/// What other instances are to be told.
#[derive(Default)]
pub(super) struct Notices {
    waiting: Mutex<WaitingNotices>,
    more: Notify,
    /// Whether another instance may be listening. Telling nobody would cost as much.
    pub(super) heard: AtomicBool,
}

#[derive(Default)]
struct WaitingNotices {
    log: BTreeMap<ConversationId, Seq>,
    mail: BTreeSet<String>,
}

impl Notices {
    pub(super) fn log<'a>(&self, grown: impl Iterator<Item = (&'a ConversationId, Seq)>) {
        if !self.heard.load(Ordering::Relaxed) {
            return;
        }
        self.lock().log.extend(grown.map(|(conversation, last)| (conversation.clone(), last)));
        self.more.notify_one();
    }

    pub(super) fn mail(&self, instances: Vec<String>) {
        if instances.is_empty() {
            return;
        }
        self.lock().mail.extend(instances);
        self.more.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, WaitingNotices> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> (Vec<String>, Vec<String>) {
        let WaitingNotices { log, mail } = std::mem::take(&mut *self.lock());
        let mut payloads = vec![String::new()];
        for (conversation, last) in log {
            let line = format!("{conversation} {last}\n");
            let fits = payloads.last().is_some_and(|payload| payload.len() + line.len() <= PAYLOAD_BYTES);
            match payloads.last_mut().filter(|_| fits) {
                Some(payload) => payload.push_str(&line),
                None => payloads.push(line),
            }
        }
        payloads.retain(|payload| !payload.is_empty());
        (payloads, mail.into_iter().collect())
    }
}

/// Tells other instances what has changed here, after it was committed.
pub(super) async fn notify(source: Source, shared: Arc<Shared>) {
    loop {
        shared.notices.more.notified().await;
        let (log, mail) = shared.notices.take();
        let told = async {
            let client = source.shared().await?;
            let sql = "SELECT pg_notify('outlast_log', l) FROM unnest($1::text[]) AS l UNION ALL \
                       SELECT pg_notify('outlast_mail', m) FROM unnest($2::text[]) AS m";
            client.session().query(sql, &[&log, &mail]).await.map_err(store_error)?;
            Ok::<(), StoreError>(())
        };
        if let Err(error) = told.await {
            tracing::warn!(%error, "other instances were not woken; they will find out by polling");
        }
        tokio::time::sleep(NOTIFY_EVERY).await;
    }
}

/// Listens for what other instances have changed.
pub(super) async fn listen(source: Source, shared: Arc<Shared>, instance: String) {
    let mut backoff = Backoff::new();
    loop {
        match listen_once(&source, &shared, &instance).await {
            Ok(()) => {
                tracing::warn!("the connection that listens to PostgreSQL was lost; will reconnect");
                backoff = Backoff::new();
            }
            Err(error) => tracing::warn!(%error, "cannot listen to PostgreSQL; will retry"),
        }
        backoff.wait().await;
    }
}

/// Returns when the connection was lost, or why there was none.
async fn listen_once(source: &Source, shared: &Arc<Shared>, instance: &str) -> Result<(), StoreError> {
    let (client, mut connection) = source.connect().await?;
    let (shared, instance) = (Arc::clone(shared), instance.to_owned());
    let woken = Arc::clone(&shared);
    let mut driving = JoinSet::new();
    driving.spawn(async move {
        let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                woken.hear(notification.channel(), notification.payload(), &instance);
            }
        }
    });
    client.batch_execute("LISTEN outlast_log; LISTEN outlast_mail").await.map_err(store_error)?;
    // What was said while nobody listened.
    shared.arrived.send_replace(());
    driving.join_next().await;
    Ok(())
}

impl Shared {
    fn hear(&self, channel: &str, payload: &str, instance: &str) {
        match channel {
            "outlast_mail" if payload == instance => {
                self.arrived.send_replace(());
            }
            "outlast_mail" if payload == EVERYBODY => {
                self.notices.heard.store(true, Ordering::Relaxed);
                self.arrived.send_replace(());
            }
            "outlast_log" => {
                for (conversation, last) in payload.lines().filter_map(|line| line.rsplit_once(' ')) {
                    let Ok(last) = last.parse() else { continue };
                    self.wakes.wake(&ConversationId::from(conversation), Seq(last));
                }
            }
            _ => {}
        }
    }
}

/// Looks for what no wake-up told.
pub(super) async fn poll(source: Source, shared: Arc<Shared>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        shared.arrived.send_replace(());
        let watched = shared.wakes.watched();
        if watched.is_empty() {
            continue;
        }
        let looked = async {
            let client = source.shared().await?;
            let sql = "SELECT w.id, (SELECT last_seq FROM log WHERE conversation = w.id \
                       ORDER BY first_seq DESC LIMIT 1) FROM unnest($1::text[]) AS w(id)";
            let ids: Vec<&str> = watched.iter().map(|(conversation, _)| conversation.as_str()).collect();
            client.session().query(sql, &[&ids]).await.map_err(store_error)
        };
        match looked.await {
            Ok(rows) => {
                for (row, (conversation, known)) in rows.iter().zip(&watched) {
                    let last = Seq(row.get::<_, Option<i64>>(1).unwrap_or(0).cast_unsigned());
                    if last != *known {
                        shared.wakes.wake(conversation, last);
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "cannot look for what other instances have written"),
        }
    }
}
