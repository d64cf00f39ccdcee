//! The one task that writes for this instance: gathers appends, flushes them together, answers.

mod judged;
mod refusal;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{ConversationId, Seq};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use judged::Judged;
use refusal::CloneRefusal;

use super::batch::{self, Flushed, Guard};
use super::connect::{Backoff, Source, store_error};
use super::session::Pooled;
use super::{Shared, batch::trim};
use crate::contract::{Append, AppendError, Fence, StoreError};

/// A flush is closed when it holds this many bytes, ...
const BATCH_BYTES: usize = 4 << 20;
/// ... or this many appends.
const BATCH_APPENDS: usize = 4096;
/// A flush that takes longer is given up; whether it was committed is looked up on another connection.
const FLUSH_WITHIN: Duration = Duration::from_secs(10);
/// For this long the writer tries to find out what became of a flush, while those who wait for it wait.
const RESOLVE_WITHIN: Duration = Duration::from_secs(5);

pub(super) enum Command {
    Append { append: Append, answer: oneshot::Sender<Result<(), AppendError>> },
    Trim(Trim),
}

pub(super) struct Trim {
    pub(super) conversation: ConversationId,
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) answer: oneshot::Sender<Result<(), StoreError>>,
}

struct Waiting {
    append: Append,
    answer: oneshot::Sender<Result<(), AppendError>>,
}

impl Waiting {
    fn answer(self, result: Result<(), AppendError>) {
        // A caller that has gone away does not need its answer.
        self.answer.send(result).ok();
    }
}

pub(super) struct Writer {
    pub(super) source: Source,
    pub(super) shared: Arc<Shared>,
    pub(super) instance: String,
    pub(super) frame: Duration,
    link: Option<Link>,
    /// The number of the last flush that was begun.
    flush: i64,
}

struct Link {
    client: Pooled,
    /// How often anything was taken from this instance; `None` if it must be looked up, and what is still held with it.
    claims: Option<i64>,
}

/// What the instance's own row says after it was claimed again.
struct Claimed {
    link: Link,
    /// The last flush that was committed.
    flushed: i64,
}

impl Writer {
    /// Connects at once, so that a database that cannot be used is found at the start.
    pub(super) async fn new(
        source: Source,
        shared: Arc<Shared>,
        instance: String,
        frame: Duration,
    ) -> Result<Self, StoreError> {
        let mut writer = Self { source, shared, instance, frame, link: None, flush: 0 };
        let Claimed { link, flushed } = writer.claim().await?;
        (writer.link, writer.flush) = (Some(link), flushed);
        Ok(writer)
    }

    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut last: Option<Instant> = None;
        let mut backoff = Backoff::new();
        loop {
            let first = tokio::select! {
                first = commands.recv() => first,
                // Claims wait until it is certain that nothing of before is on its way.
                () = backoff.wait(), if self.link.is_none() => {
                    match self.linked().await {
                        Ok(_) => backoff = Backoff::new(),
                        Err(error) => tracing::warn!(%error, "cannot use PostgreSQL; will retry"),
                    }
                    continue;
                }
            };
            let Some(first) = first else { return };
            let mut gathered = Gathered::default();
            gathered.add(first);
            let due = last.map(|last| last + self.frame);
            gathered.wait(&mut commands, due).await;
            last = Some(Instant::now());
            self.batch(gathered.appends).await;
            for Trim { conversation, first, last, answer } in gathered.trims {
                answer.send(self.trim(&conversation, first, last).await).ok();
            }
        }
    }

    async fn trim(&mut self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        let link = self.linked().await?;
        let trimmed = trim(&mut link.client, conversation, first, last).await;
        if trimmed.is_err() {
            self.drop_link();
        }
        trimmed.map_err(store_error)
    }

    /// Writes what waits, and answers everybody.
    async fn batch(&mut self, mut waiting: Vec<Waiting>) {
        if waiting.is_empty() {
            return;
        }
        let number = {
            let mut ownership = self.shared.ownership();
            ownership.judged += 1;
            ownership.judged
        };
        if let Err(error) = self.linked().await {
            // A flush of before may still be on its way; claims go on waiting for the connection.
            for one in waiting {
                one.answer(Err(AppendError::Unavailable(error.to_string())));
            }
            self.shared.wait_until_resolved(number);
            return;
        }
        while !waiting.is_empty() {
            if self.is_unsure(&waiting)
                && let Err(error) = self.reload().await
            {
                self.drop_link();
                let refused = Err(AppendError::Unavailable(error.to_string()));
                waiting.into_iter().for_each(|one| one.answer(refused.clone_refusal()));
                break;
            }
            let judged = self.judge(&mut waiting);
            if judged.accepted.is_empty() {
                judged.answer(&Ok(()));
                break;
            }
            match self.flush(&judged).await {
                Flushed::Done { answered } => {
                    self.done(judged, answered);
                    break;
                }
                Flushed::Fenced => {
                    waiting = judged.back();
                    self.link.iter_mut().for_each(|link| link.claims = None);
                }
                Flushed::Wrong { append, why } => waiting = judged.without(append, why),
                Flushed::Refused(why) => {
                    tracing::error!(why, appends = judged.accepted.len(), "appends could not be written");
                    judged.answer(&Err(AppendError::Unavailable(why)));
                    break;
                }
                Flushed::Unknown(why) => {
                    self.drop_link();
                    match self.resolve().await {
                        Some(true) => self.done(judged, Vec::new()),
                        Some(false) => judged.answer(&Err(AppendError::Unavailable(why))),
                        None => {
                            judged.answer(&Err(AppendError::Unconfirmed(why)));
                            self.shared.wait_until_resolved(number);
                            return;
                        }
                    }
                    break;
                }
            }
        }
        self.shared.finish(number);
    }

    async fn flush(&mut self, judged: &Judged) -> Flushed {
        self.flush += 1;
        let Some(Link { client, claims: Some(claims) }) = &mut self.link else {
            return Flushed::Refused("not connected".to_owned());
        };
        let guard = Guard { instance: &self.instance, claims: *claims, flush: self.flush };
        let appends: Vec<&Append> = judged.accepted.iter().map(|one| &one.append).collect();
        let flushing = batch::flush(client, guard, &appends);
        match tokio::time::timeout(FLUSH_WITHIN, flushing).await {
            Ok(flushed) => flushed,
            Err(_) => Flushed::Unknown("PostgreSQL does not respond".to_owned()),
        }
    }

    fn done(&self, judged: Judged, answered: Vec<String>) {
        {
            let mut ownership = self.shared.ownership();
            for one in &judged.accepted {
                let Append { conversation, fence, .. } = &one.append;
                ownership.owners.advance(conversation, *fence, judged.ends[conversation]);
            }
        }
        let grown = judged.accepted.iter().filter(|one| !one.append.records.is_empty());
        let grown = grown.map(|one| (&one.append.conversation, judged.ends[&one.append.conversation]));
        self.shared.wakes.wake_all(grown.clone());
        self.shared.notices.log(grown);
        self.shared.notices.mail(answered);
        judged.answer(&Ok(()));
    }

    /// Fences first, all under one lock, then where the logs end.
    fn judge(&self, waiting: &mut Vec<Waiting>) -> Judged {
        let ownership = self.shared.ownership();
        let mut judged = Judged::default();
        for one in waiting.drain(..) {
            let conversation = &one.append.conversation;
            let last = match ownership.owners.admit(conversation, one.append.fence) {
                Ok(last) => last.expect("a claim knows where the log ends"),
                Err(refusal) => {
                    one.answer(Err(refusal));
                    continue;
                }
            };
            if let Err(refusal) = batch::check(&one.append) {
                one.answer(Err(refusal));
                continue;
            }
            let last = judged.ends.get(conversation).copied().unwrap_or(last);
            if one.append.expected != last {
                judged.conflicting.push((one, last));
                continue;
            }
            judged.ends.insert(conversation.clone(), last.plus(one.append.records.len()));
            judged.accepted.push(one);
        }
        judged
    }

    /// Whether somebody may have taken one of these conversations since it was known to be held here. That is so after
    /// a flush was refused, and after a new connection, which raises the count of claims itself.
    fn is_unsure(&self, waiting: &[Waiting]) -> bool {
        let Some(claims) = self.link.as_ref().and_then(|link| link.claims) else { return true };
        let ownership = self.shared.ownership();
        waiting.iter().any(|one| ownership.owners.is_unsure(&one.append.conversation, claims))
    }

    /// Learns the count of claims, and forgets what is no longer held as of it. Both are from one moment, so whatever is
    /// taken later raises the count again.
    async fn reload(&mut self) -> Result<(), StoreError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let sql = "SELECT w.claims, o.conversation, o.fence FROM writers AS w LEFT JOIN owners AS o \
                   ON o.instance = w.instance WHERE w.instance = $1";
        let rows = link.client.session().query(sql, &[&self.instance]).await.map_err(store_error)?;
        let first = rows.first().ok_or_else(|| {
            StoreError::Unavailable("this instance was away for so long that it was forgotten".to_owned())
        })?;
        let claims = first.get(0);
        let held = |row: &tokio_postgres::Row| {
            let conversation = row.get::<_, Option<&str>>(1)?;
            Some((ConversationId::from(conversation), Fence(row.get::<_, i64>(2).cast_unsigned())))
        };
        let held = rows.iter().filter_map(held).collect();
        self.shared.ownership().owners.confirm(&held, claims);
        link.claims = Some(claims);
        Ok(())
    }

    /// What became of the last flush; `None` if the database cannot be reached. Raising the own count of claims
    /// waits for the flush if it is still on its way, or shuts it out.
    async fn resolve(&mut self) -> Option<bool> {
        let until = Instant::now() + RESOLVE_WITHIN;
        let mut backoff = Backoff::new();
        loop {
            match self.claim().await {
                Ok(Claimed { link, flushed }) => {
                    self.link = Some(link);
                    return Some(flushed == self.flush);
                }
                Err(error) if Instant::now() >= until => {
                    tracing::error!(%error, "cannot find out whether appends were written");
                    return None;
                }
                Err(_) => backoff.wait().await,
            }
        }
    }

    /// The connection; makes a new one if it broke. After that nothing of before is on its way any more.
    async fn linked(&mut self) -> Result<&mut Link, StoreError> {
        if self.link.is_none() {
            self.link = Some(self.claim().await?.link);
            self.shared.resolved();
        }
        Ok(self.link.as_mut().expect("just made"))
    }

    async fn claim(&self) -> Result<Claimed, StoreError> {
        let client = self.source.shared().await?;
        // The row of an instance that was away for a very long time was removed. Its count must not start over, or what is
        // known from before would seem to be up to date.
        let sql = "INSERT INTO writers (instance, claims) \
                   VALUES ($1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ON CONFLICT (instance) \
                   DO UPDATE SET claims = writers.claims + 1 RETURNING claims, flush";
        let row = client.session().query_opt(sql, &[&self.instance]).await.map_err(store_error)?;
        let row = row.ok_or_else(|| StoreError::Broken("a writer's row was not returned".to_owned()))?;
        let (claims, flushed) = (row.get(0), row.get(1));
        Ok(Claimed { link: Link { client, claims: Some(claims) }, flushed })
    }

    fn drop_link(&mut self) {
        if let Some(link) = self.link.take() {
            link.client.discard();
        }
    }
}

/// What is flushed together, and what is done between two flushes.
#[derive(Default)]
struct Gathered {
    appends: Vec<Waiting>,
    trims: Vec<Trim>,
    bytes: usize,
    /// Whether somebody waits for more than text to be shown.
    prompt: bool,
}

impl Gathered {
    fn add(&mut self, command: Command) {
        match command {
            Command::Append { append, answer } => {
                self.bytes += append.records.iter().map(|record| record.bytes.len()).sum::<usize>();
                self.prompt |= !append.changes.is_empty() || !append.replies.is_empty();
                self.appends.push(Waiting { append, answer });
            }
            Command::Trim(trim) => {
                self.prompt = true;
                self.trims.push(trim);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES || self.appends.len() >= BATCH_APPENDS
    }

    /// Adds what arrives until it is time to flush. Text waits for the frame to be over; what a command changes
    /// does not.
    async fn wait(&mut self, commands: &mut mpsc::Receiver<Command>, due: Option<Instant>) {
        loop {
            while !self.is_full() {
                let Ok(command) = commands.try_recv() else { break };
                self.add(command);
            }
            let Some(due) = due.filter(|due| *due > Instant::now() && !self.prompt && !self.is_full()) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => {}
                command = commands.recv() => match command {
                    Some(command) => self.add(command),
                    None => return,
                },
            }
        }
    }
}
