//! The one owner of a conversation. Every change to it goes through here, one at a time.
//!
//! An owner runs while there is something to do: it folds the log, asks the core what should be under way,
//! starts or stops it accordingly, and ends when nothing is left. Recovery after a crash is the same as a
//! first start.

mod charges;
mod delegations;
mod deleting;
mod elsewhere;
mod facts;
mod files;
mod letters;
mod mail;
mod opening;
mod outputs;
mod record;
mod retention;
mod run;
mod sandboxes;
mod serve;
mod sweeping;
mod waking;
mod works;
mod world;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    Conversation, ConversationId, Effect, ExecutionId, GenerationId, Report, Seq, Surroundings, Timestamp,
    next,
};
use outlast_store::{MailId, fault};
use tokio::sync::{mpsc, watch};

use crate::call::Call;
use crate::checkpoints::Swept;
use crate::engine::Shared;
use crate::feed::Feed;
use crate::journal::{Journal, RecordError};
use crate::live::Share;
use crate::presence::Watched;

use sweeping::Sweeping;
use works::Works;

pub(crate) use files::{Content, WantedFile};
pub(crate) use mail::{Answer, Ask, Mail, Receipt, Request};
pub(crate) use opening::NotOpened;
pub(crate) use run::STREAMED_BYTES_MAX;
pub use sandboxes::Workshop;

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
    Work(Box<Report>),
    Swept(Result<Swept, String>),
    Watchers,
    Timer,
    Lapsed,
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
    works: Works,
    /// Checkpoints that are being removed.
    sweeping: Option<Sweeping>,
    /// Changes of files by people, who are told when they are saved.
    unsaved_files: Vec<files::Unsaved>,
    /// Executions that this owner has tried to start.
    tried: HashSet<ExecutionId>,
    /// This conversation's share of the live generations.
    share: Share,
    /// Whether requests of other instances may wait in the store.
    letters_wait: bool,
    /// The letter that is being carried out, until its reply is appended.
    answering: Option<Answering>,
    /// Whether an append was refused because another owner has the conversation.
    fenced: bool,
    /// How often the lease had lapsed before the conversation was claimed. If it has lapsed since, this owner ends:
    /// beginning again in the same attempt would repeat its text.
    lapses: u64,
    /// How much of what this conversation stores its user's account has been charged with.
    charged: u64,
    /// A report that could not be recorded because the store was not available.
    owed: Option<Report>,
    /// When to try to write again.
    store_again: Option<Timestamp>,
    /// When text that is held back must be saved.
    save_at: Option<Timestamp>,
}

/// How an owner ended before its work was done.
pub(crate) enum Ending {
    /// Another owner has the conversation.
    Fenced,
    /// Until the lease is renewed. If nobody has taken over by then, this call, with its attempt, was not lost but ended
    /// by this instance.
    Lapsed { ended: Option<(GenerationId, u32)> },
    /// The log must be read again.
    Lost,
}

/// A letter, and the generation that its reply is about.
struct Answering {
    letter: MailId,
    generation: Option<GenerationId>,
}

impl Actor {
    /// Runs until nothing is left to do. Returns the mailbox if ownership was lost before that.
    pub(crate) async fn run(mut self) -> Result<(), (Ending, mpsc::Receiver<Mail>)> {
        let worked = self.work().await;
        // What is under way ends here, before anybody else may begin it.
        self.call = None;
        self.works.keep(&[]);
        self.sweeping = None;
        self.feed.disown();
        let Err(error) = worked else {
            // An engine that stops gives up everything together.
            let leaves = self.shared.stop.is_cancelled() && self.shared.lease.is_kept();
            if !leaves && self.journal.release().await {
                self.shared.nudge(&self.id, Mail::Letters);
            }
            return Ok(());
        };
        // Everything recorded is durable, so the next owner can continue from the log.
        tracing::warn!(conversation = ?self.id, %error, "lost ownership of a conversation");
        let ending = match error {
            RecordError::Fenced(_) => Ending::Fenced,
            RecordError::Lapsed => Ending::Lapsed { ended: self.called_here() },
            RecordError::Lost(_) | RecordError::Unavailable(_) | RecordError::OverLimit(_) => Ending::Lost,
        };
        Err((ending, self.mailbox))
    }

    async fn work(&mut self) -> Result<(), RecordError> {
        loop {
            let timer = match self.catch_up().await? {
                Owed::Timer(timer) => timer,
                Owed::Nothing => {
                    self.correct_due().await?;
                    // A command may have arrived since `catch_up`. Then the owner does not retire but serves it. Nor
                    // does it retire before `due` is stored: nobody would wake this conversation in time.
                    let may_retire = self.store_again.is_none();
                    if may_retire && self.shared.slots.retire(&self.id, &mut self.mailbox) {
                        return Ok(());
                    }
                    self.store_again
                }
            };
            match self.wait(timer).await {
                Wake::Mail(Some(mail)) => self.serve(mail).await?,
                Wake::Mail(None) | Wake::Stop => return self.hand_over().await,
                Wake::Lapsed => return Err(RecordError::Lapsed),
                Wake::Model => self.read_model().await?,
                Wake::Work(report) => self.report(*report).await?,
                Wake::Swept(swept) => self.swept(swept).await?,
                Wake::Watchers => self.count_watchers(),
                Wake::Timer => self.timer_rang().await?,
            }
        }
    }

    /// The attempt whose model this owner has called.
    fn called_here(&self) -> Option<(GenerationId, u32)> {
        let active = self.state.as_ref().and_then(Conversation::active)?;
        let is_own = active.progress.attempt_seq > self.owned_after;
        is_own.then(|| (active.id.clone(), active.progress.attempt))
    }

    /// Says that an attempt ended because the lease of this instance ran out, unless another owner came in between.
    pub(crate) fn after(mut self, lapsed: Option<(GenerationId, u32)>) -> Actor {
        let active = self.state.as_ref().and_then(Conversation::active);
        let lapsed = lapsed.filter(|(generation, attempt)| {
            active.is_some_and(|active| active.id == *generation && active.progress.attempt == *attempt)
        });
        self.owed = lapsed.map(|(generation, _)| Report::HandedOver { generation });
        self
    }

    /// Discards the state after the conversation was deleted, so that nothing of it is written again.
    async fn start_over(&mut self) -> Result<(), RecordError> {
        let fence = self.shared.store.claim(&self.id).await;
        let fence = fence.map_err(|error| RecordError::Lost(error.to_string()))?;
        self.journal = Journal::new(self.shared.store.clone(), self.id.clone(), fence, Seq::ZERO);
        self.feed.deleted();
        self.state = None;
        (self.owned_after, self.unfolded, self.folded, self.charged) = (Seq::ZERO, 0, None, 0);
        self.stored_due = None;
        (self.call, self.owed, self.save_at) = (None, None, None);
        self.works = Works::new();
        self.count_live();
        Ok(())
    }

    /// Says that the call under way ends because the server stops, and saves text that was held back.
    async fn hand_over(&mut self) -> Result<(), RecordError> {
        let handed_over = self.call.take().map(|call| Report::HandedOver { generation: call.generation });
        // Without a lease nobody else is there, and the next start finds the attempt lost, as after a crash.
        if let Some(report) = handed_over.filter(|_| self.shared.lease.is_kept()) {
            self.report(report).await?;
        }
        self.save().await
    }

    /// Whether the generation that nobody follows here is followed at another instance, or was not long ago.
    async fn is_watched_elsewhere(&mut self) -> bool {
        let now = self.shared.clock.now();
        let until = match self.shared.watched_elsewhere(&self.id).await {
            Ok(Watched::Now) => now,
            Ok(Watched::Until(at)) => at,
            Ok(Watched::Never) => return false,
            Err(error) => {
                tracing::warn!(conversation = ?self.id, %error, "cannot tell whether anybody follows; will retry");
                self.store_again = Some(now.after(STORE_WAIT));
                return true;
            }
        };
        self.unwatched_since = self.unwatched_since.max(Some(until));
        until.after(self.shared.settings.rules.unwatched) > now
    }

    async fn wait(&mut self, timer: Option<Timestamp>) -> Wake {
        let Actor { shared, mailbox, watchers, call, works, sweeping, owed, journal, lapses, .. } = self;
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
        let work = async {
            match may_read {
                true => works.next().await,
                false => std::future::pending().await,
            }
        };
        let sweep = async {
            match sweeping {
                Some(sweeping) => sweeping.ended().await,
                None => std::future::pending().await,
            }
        };
        // Biased, in this order: a cancel must not wait behind an endless stream.
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => Wake::Stop,
            () = shared.lease.lapsed_since(*lapses) => Wake::Lapsed,
            mail = mailbox.recv() => Wake::Mail(mail),
            _ = watchers.changed() => Wake::Watchers,
            () = gather => Wake::Model,
            report = work => Wake::Work(Box::new(report)),
            swept = sweep => Wake::Swept(swept),
            () = sleep => Wake::Timer,
        }
    }

    /// Starts and stops effects as the core wants, until there is only something to wait for.
    async fn catch_up(&mut self) -> Result<Owed, RecordError> {
        loop {
            if self.shared.lease.lapses() != self.lapses {
                return Err(RecordError::Lapsed);
            }
            if let Some(again) = self.store_again {
                return Ok(Owed::Timer(Some(again)));
            }
            if self.letters_wait {
                self.read_letters().await?;
                continue;
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
            let mut next = next(state, &around);
            if matches!(next.report, Some(Report::Abandoned { .. })) && self.is_watched_elsewhere().await {
                continue;
            }
            if let Some(report) = next.report {
                fault::point("recover.observed");
                self.report(report).await?;
                continue;
            }
            let wanted = next.effects.len();
            next.effects.retain(|effect| self.can_begin(effect));
            let is_left = next.effects.len() < wanted;
            // What continues after a report is known only once it is recorded. Dropping a call closes its connection.
            self.call.take_if(|call| !next.effects.contains(&call.effect()));
            self.works.keep(&next.effects);
            let under_way = self.call.as_ref().map(Call::effect);
            let is_missing =
                |effect: &&Effect| Some(*effect) != under_way.as_ref() && !self.works.has(effect);
            if let Some(missing) = next.effects.iter().find(is_missing).cloned() {
                // A process that was stopped for a while may not be the owner any more.
                if !self.shared.lease.is_safe_since(self.lapses) {
                    self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                    continue;
                }
                self.begin(missing).await?;
                continue;
            }
            self.tell_saved_files(&next.effects);
            let timer = next.wake_at.into_iter().chain(self.save_at).min();
            let nothing = next.effects.is_empty() && timer.is_none() && self.sweeping.is_none();
            if nothing && is_left {
                self.shared.left_to_others.add(&self.id); // or it would be woken every second
            }
            return Ok(if nothing { Owed::Nothing } else { Owed::Timer(timer) });
        }
    }
}

/// What is left after catching up.
enum Owed {
    /// Wait for a wake-up, at most until this time.
    Timer(Option<Timestamp>),
    /// Nothing is left, so the owner may end.
    Nothing,
}
