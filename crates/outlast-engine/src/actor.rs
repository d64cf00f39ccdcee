//! The one owner of a conversation. Every change to it goes through here, one at a time.
//!
//! An owner runs while there is something to do: it folds the log, asks the core what should be under way,
//! starts or stops it accordingly, and ends when nothing is left. Recovery after a crash is the same as a
//! first start.

mod facts;
mod mail;
mod record;
mod retention;
mod serve;
mod world;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Conversation, ConversationId, Effect, Report, Seq, Surroundings, Timestamp, next};
use outlast_store::{ClaimError, Newest, StoreError, fault};
use tokio::sync::{mpsc, watch};

use crate::call::Call;
use crate::documents::to_state;
use crate::engine::Shared;
use crate::feed::Feed;
use crate::journal::{Journal, RecordError};
use crate::live::Share;

pub(crate) use mail::{Ask, Mail, Receipt};

/// The maximum number of commands that wait for one conversation. Further senders wait until there is room.
pub(crate) const MAILBOX: usize = 64;
/// Text that the durability setting holds back is saved when it reaches this size.
const UNSAVED_BYTES_MAX: usize = 1024 * 1024;
/// The state is written again when the log has grown by this much since it was last written, and also by the
/// next limit.
const UNFOLDED_BYTES_MIN: usize = 512 * 1024;
/// The log must also have grown by this many times the size of the state. So opening or polling a conversation
/// replays a bounded part of its log, and writing states costs a fraction of writing events, however long an
/// answer becomes.
const UNFOLDED_TIMES_MIN: usize = 4;
/// How long to wait before writing again to a store that cannot write.
const STORE_WAIT: Duration = Duration::from_millis(500);

/// Everything that can wake an owner.
enum Wake {
    Mail(Option<Mail>),
    Model,
    Watchers,
    Timer,
    Stop,
}

pub(crate) struct Actor {
    shared: Arc<Shared>,
    id: ConversationId,
    feed: Arc<Feed>,
    mailbox: mpsc::Receiver<Mail>,
    watchers: watch::Receiver<usize>,
    unwatched_since: Option<Timestamp>,
    /// When a worker last sent something, or when this owner took over.
    worker_heard: Timestamp,
    /// `None` if the conversation does not exist yet; the first command creates it.
    state: Option<Conversation>,
    journal: Journal,
    owned_after: Seq,
    /// Bytes in the log that are not in the stored state yet.
    unfolded: usize,
    /// The size of the stored state; `None` if none was stored yet.
    folded: Option<usize>,
    /// The `due` of the stored document.
    stored_due: Option<i64>,
    call: Option<Call>,
    /// This conversation's share of the live generations; `None` until its user is known.
    share: Option<Share>,
    /// A report that could not be recorded because the store was not available.
    owed: Option<Report>,
    /// When to try to write again.
    store_again: Option<Timestamp>,
    /// When text that is held back must be saved.
    save_at: Option<Timestamp>,
}

impl Actor {
    /// Claims the conversation and folds its log.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        id: ConversationId,
        feed: Arc<Feed>,
        mailbox: mpsc::Receiver<Mail>,
    ) -> Result<Actor, (StoreError, mpsc::Receiver<Mail>)> {
        let opened = async {
            let fence = shared.store.claim(&id).await.map_err(unclaimed)?;
            fault::point("recover.claimed");
            let loaded = shared.store.load(&id, Newest::NONE).await?;
            let state = loaded.as_ref().map(to_state).transpose()?;
            fault::point("recover.folded");
            Ok((fence, state, loaded))
        };
        let (fence, state, loaded) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return Err((error, mailbox)),
        };
        let seq = state.as_ref().map_or(Seq::ZERO, |state| state.seq);
        let unfolded = loaded.as_ref().map_or(0, |loaded| record::size(&loaded.records));
        let stored_due = loaded.as_ref().and_then(|loaded| loaded.conversation.due);
        let folded = loaded.and_then(|loaded| loaded.conversation.state).map(|state| state.len());
        feed.own_from(seq);
        let watchers = feed.watchers();
        let mut actor = Actor {
            journal: Journal::new(shared.store.clone(), id.clone(), fence, seq),
            worker_heard: shared.clock.now(),
            shared,
            id,
            feed,
            mailbox,
            watchers,
            unwatched_since: None,
            state,
            owned_after: seq,
            unfolded,
            folded,
            stored_due,
            call: None,
            share: None,
            owed: None,
            store_again: None,
            save_at: None,
        };
        actor.count_watchers();
        actor.count_live();
        Ok(actor)
    }

    /// Runs until nothing is left to do. Returns the mailbox if ownership was lost before that.
    pub(crate) async fn run(mut self) -> Result<(), mpsc::Receiver<Mail>> {
        match self.work().await {
            Ok(()) => {
                self.journal.release().await;
                Ok(())
            }
            Err(error) => {
                // Everything recorded is durable, so the next owner can continue from the log.
                tracing::warn!(conversation = ?self.id, %error, "stopped owning a conversation");
                Err(self.mailbox)
            }
        }
    }

    async fn work(&mut self) -> Result<(), RecordError> {
        loop {
            let timer = match self.catch_up().await? {
                Owed::Timer(timer) => timer,
                Owed::Nothing => {
                    self.correct_due().await?;
                    // A command may have arrived since `catch_up`. Then the owner does not retire but serves it.
                    if self.shared.slots.retire(&self.id, &mut self.mailbox) {
                        return Ok(());
                    }
                    None
                }
            };
            match self.wait(timer).await {
                Wake::Mail(Some(mail)) => self.serve(mail).await?,
                Wake::Mail(None) | Wake::Stop => return self.save().await,
                Wake::Model => self.read_model().await?,
                Wake::Watchers => self.count_watchers(),
                Wake::Timer => self.timer_rang().await?,
            }
        }
    }

    /// Discards the state after the conversation was deleted, so that nothing of it is written again.
    async fn start_over(&mut self) -> Result<(), RecordError> {
        let fence = self.shared.store.claim(&self.id).await;
        let fence = fence.map_err(|error| RecordError::Lost(error.to_string()))?;
        self.journal = Journal::new(self.shared.store.clone(), self.id.clone(), fence, Seq::ZERO);
        self.feed.deleted();
        self.state = None;
        (self.owned_after, self.unfolded, self.folded) = (Seq::ZERO, 0, None);
        self.stored_due = None;
        (self.call, self.share, self.owed, self.save_at) = (None, None, None, None);
        Ok(())
    }

    async fn wait(&mut self, timer: Option<Timestamp>) -> Wake {
        let Actor { shared, mailbox, watchers, call, owed, journal, .. } = self;
        // While nothing can be recorded, the text waits in the upstream's connection, not in memory here.
        let may_read = owed.is_none() && journal.unsaved_bytes() <= UNSAVED_BYTES_MAX;
        let sleep = async {
            match timer {
                Some(time) => shared.clock.sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        let gather = async {
            match call.as_mut().filter(|_| may_read) {
                Some(call) => call.gather().await,
                None => std::future::pending().await,
            }
        };
        // Biased, in this order: a cancel must not wait behind an endless stream.
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => Wake::Stop,
            mail = mailbox.recv() => Wake::Mail(mail),
            _ = watchers.changed() => Wake::Watchers,
            () = gather => Wake::Model,
            () = sleep => Wake::Timer,
        }
    }

    /// Starts and stops effects as the core wants, until there is only something to wait for.
    async fn catch_up(&mut self) -> Result<Owed, RecordError> {
        loop {
            if let Some(again) = self.store_again {
                return Ok(Owed::Timer(Some(again)));
            }
            if let Some(report) = self.owed.take() {
                self.report(report).await?;
                continue;
            }
            let Some(state) = &self.state else { return Ok(Owed::Nothing) };
            let around = Surroundings {
                now: self.shared.clock.now(),
                owned_after: self.owned_after,
                unwatched_since: self.unwatched_since,
                worker_heard: self.worker_heard,
                rules: &self.shared.settings.rules,
            };
            let next = next(state, &around);
            // Dropping a call that is no longer wanted closes its connection.
            self.call.take_if(|call| !next.effects.contains(&call.effect()));
            if let Some(report) = next.report {
                fault::point("recover.observed");
                self.report(report).await?;
                continue;
            }
            let under_way = self.call.as_ref().map(Call::effect);
            if let Some(missing) = next.effects.iter().find(|effect| Some(*effect) != under_way.as_ref()) {
                let Effect::CallModel { generation, .. } = missing;
                self.call_model(generation).await?;
                continue;
            }
            let timer = next.wake_at.into_iter().chain(self.save_at).min();
            let nothing = next.effects.is_empty() && timer.is_none();
            return Ok(if nothing { Owed::Nothing } else { Owed::Timer(timer) });
        }
    }
}

fn unclaimed(error: ClaimError) -> StoreError {
    match error {
        held @ ClaimError::HeldBy(_) => StoreError::Unavailable(held.to_string()),
        ClaimError::Store(error) => error,
    }
}

/// What is left after catching up.
enum Owed {
    /// Wait for a wake-up, at most until this time.
    Timer(Option<Timestamp>),
    /// Nothing is left, so the owner may end.
    Nothing,
}
