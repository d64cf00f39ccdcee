//! The one owner of a conversation. Everything that changes it goes through here, one thing at a time.
//!
//! An actor lives while there is something to do: it folds the log, asks the core what is owed, does
//! it, and goes away when nothing is left. A crash and a first start are the same to it.

mod record;
mod serve;
mod world;

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    Command, Conversation, ConversationId, Effect, Next, Report, Seq, Surroundings, Timestamp, UserId, next,
};
use outlast_store::{StoreError, fault};
use tokio::sync::{mpsc, oneshot, watch};

use crate::call::Call;
use crate::documents::to_state;
use crate::engine::{CommandOptions, Shared};
use crate::error::CommandError;
use crate::feed::Feed;
use crate::journal::{Journal, RecordError};
use crate::live::Share;

/// Commands that may wait for one conversation. A full mailbox makes senders wait.
pub(crate) const MAILBOX: usize = 64;
/// Text held back by the durability setting is saved at this size at the latest.
const UNSAVED_BYTES_MAX: usize = 1024 * 1024;
/// So much of a log is replayed at most to know where a conversation stands, after a start and whenever somebody
/// polls; or so many times what a longer answer has said. Writing the state more often would cost more than
/// writing the events.
const UNFOLDED_BYTES_MAX: usize = 4 * 1024 * 1024;
const UNFOLDED_TIMES_MAX: usize = 4;
/// How long to leave a store alone that cannot write.
const STORE_WAIT: Duration = Duration::from_millis(500);

/// What can be sent to an owner.
pub(crate) enum Mail {
    /// A client asks for something.
    Command(Box<Ask>),
    /// Remove everything.
    Delete { user: UserId, reply: oneshot::Sender<Result<(), CommandError>> },
    /// Look whether something is owed: sent to every unfinished conversation when the server starts.
    Wake,
}

/// What a client asks for.
pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) user: UserId,
    pub(crate) options: CommandOptions,
    /// Told the state afterwards.
    pub(crate) reply: oneshot::Sender<Result<Conversation, CommandError>>,
}

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
    /// When a worker that makes an answer was last heard, or when this owner took over.
    producer_heard: Timestamp,
    /// `None` until a conversation that the store does not know is created by a first command.
    state: Option<Conversation>,
    journal: Journal,
    owned_after: Seq,
    /// Bytes in the log that the stored state does not know yet.
    unfolded: usize,
    call: Option<Call>,
    /// The user's generations that are under way here; `None` until the user is known.
    share: Option<Share>,
    /// A report that could not be recorded: the store was not available.
    owed: Option<Report>,
    /// When the store may be tried again.
    store_again: Option<Timestamp>,
    /// When text that is held back must be saved.
    save_at: Option<Timestamp>,
}

impl Actor {
    /// Takes ownership and folds the log.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        id: ConversationId,
        feed: Arc<Feed>,
        mailbox: mpsc::Receiver<Mail>,
    ) -> Result<Actor, (StoreError, mpsc::Receiver<Mail>)> {
        let opened = async {
            let fence = shared.store.claim(&id).await?;
            fault::point("recover.claimed");
            let loaded = shared.store.load(&id, 0).await?;
            let state = loaded.as_ref().map(to_state).transpose()?;
            fault::point("recover.folded");
            Ok((fence, state, loaded.map_or(0, |loaded| record::size(&loaded.records))))
        };
        let (fence, state, unfolded) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return Err((error, mailbox)),
        };
        let seq = state.as_ref().map_or(Seq::ZERO, |state| state.seq);
        feed.own_from(seq);
        let watchers = feed.watchers();
        let mut actor = Actor {
            journal: Journal::new(shared.store.clone(), id.clone(), fence, seq),
            producer_heard: shared.clock.now(),
            shared,
            id,
            feed,
            mailbox,
            watchers,
            unwatched_since: None,
            state,
            owned_after: seq,
            unfolded,
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

    /// Does what is owed until nothing is. Gives the mailbox back if ownership was lost before that.
    pub(crate) async fn run(mut self) -> Result<(), mpsc::Receiver<Mail>> {
        match self.work().await {
            Ok(()) => {
                self.journal.release().await;
                Ok(())
            }
            Err(error) => {
                // Nothing that was not durable is left here; the next owner carries on from the log.
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
                    // Between the look and the closing somebody may have sent mail: it is still served.
                    if self.shared.retire(&self.id, &mut self.mailbox) {
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

    /// Forgets everything: the conversation was deleted and nothing of it may be written again.
    async fn begin_anew(&mut self) -> Result<(), RecordError> {
        let fence = self.shared.store.claim(&self.id).await;
        let fence = fence.map_err(|error| RecordError::Lost(error.to_string()))?;
        self.journal = Journal::new(self.shared.store.clone(), self.id.clone(), fence, Seq::ZERO);
        self.feed.deleted();
        self.state = None;
        (self.owned_after, self.unfolded) = (Seq::ZERO, 0);
        (self.call, self.share, self.owed, self.save_at) = (None, None, None, None);
        Ok(())
    }

    async fn wait(&mut self, timer: Option<Timestamp>) -> Wake {
        let Actor { shared, mailbox, watchers, call, owed, journal, .. } = self;
        // What cannot be recorded now must not pile up here: it waits in the upstream's connection.
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
        // In this order: a cancel must not wait behind an endless stream.
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => Wake::Stop,
            mail = mailbox.recv() => Wake::Mail(mail),
            _ = watchers.changed() => Wake::Watchers,
            () = gather => Wake::Model,
            () = sleep => Wake::Timer,
        }
    }

    /// Asks the core what is owed and does it, until only waiting is left.
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
            // A call that the state no longer wants is dropped here, which closes the connection.
            let wanted = |call: &mut Call| {
                state.active().is_some_and(|run| run.id == call.generation && run.attempt == call.attempt)
            };
            if self.call.as_mut().is_some_and(|call| !wanted(call)) {
                self.call = None;
            }
            let around = Surroundings {
                now: self.shared.clock.now(),
                call: self.call.as_ref().map(|call| (call.generation.clone(), call.attempt)),
                owned_after: self.owned_after,
                unwatched_since: self.unwatched_since,
                producer_heard: self.producer_heard,
                rules: &self.shared.settings.rules,
            };
            match next(state, &around) {
                Next::Do(Effect::CallModel { generation, .. }) => self.call_model(&generation).await?,
                Next::Observe(report) => {
                    fault::point("recover.observed");
                    self.report(report).await?;
                }
                Next::WakeAt(time) => {
                    return Ok(Owed::Timer(Some(self.save_at.map_or(time, |at| at.min(time)))));
                }
                Next::Nothing if self.call.is_some() || self.save_at.is_some() => {
                    return Ok(Owed::Timer(self.save_at));
                }
                Next::Nothing => return Ok(Owed::Nothing),
            }
        }
    }
}

/// What is left after catching up.
enum Owed {
    /// Nothing but to wait, at most until then.
    Timer(Option<Timestamp>),
    /// Nothing at all: the owner may go.
    Nothing,
}
