//! The one owner of a conversation. Everything that changes it goes through here, one thing at a time.
//!
//! An actor lives while there is something to do: it folds the log, asks the core what is owed, does
//! it, and goes away when nothing is left. A crash and a first start are the same to it.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    Command, Conversation, ConversationId, DocumentChange, Durability, Earlier, Effect, Entry, Generation,
    GenerationId, MessageId, Next, Phase, Refusal, Report, Seq, Streamed, Surroundings, Timestamp, UserId,
    apply_with_documents, context, conversation_document, decide, next, observe,
};
use outlast_store::{Query, Record, StoreError, Table, fault};
use tokio::sync::{mpsc, oneshot, watch};

use crate::call::Call;
use crate::documents::{to_changes, to_generation, to_message, to_state};
use crate::engine::{CommandError, Shared};
use crate::feed::{Batch, Feed};
use crate::journal::{Journal, RecordError};
use crate::live::Share;

/// Commands that may wait for one conversation. A full mailbox makes senders wait.
pub(crate) const MAILBOX: usize = 64;
/// How long to leave a store alone that cannot write.
const STORE_WAIT: Duration = Duration::from_millis(500);
/// Text held back by the durability setting is saved at this size at the latest.
const UNSAVED_BYTES_MAX: usize = 1024 * 1024;

/// What can be sent to an owner.
pub(crate) enum Mail {
    /// A client asks for something.
    Command(Ask),
    /// Remove everything.
    Delete { user: UserId, reply: oneshot::Sender<Result<(), CommandError>> },
    /// Look whether something is owed: sent to every unfinished conversation when the server starts.
    Wake,
}

/// What a client asks for.
pub(crate) struct Ask {
    pub(crate) command: Command,
    pub(crate) user: UserId,
    /// Whether a conversation that does not exist is to be made, even if nothing happens in it.
    pub(crate) create: bool,
    /// Whether the client gave the request its name, and so may have sent it before.
    pub(crate) named: bool,
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
    /// `None` until a conversation that the store does not know is created by a first command.
    state: Option<Conversation>,
    journal: Journal,
    owned_after: Seq,
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
            Ok((fence, state))
        };
        let (fence, state) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return Err((error, mailbox)),
        };
        let seq = state.as_ref().map_or(Seq::ZERO, |state| state.seq);
        feed.own_from(seq);
        let watchers = feed.watchers();
        let mut actor = Actor {
            journal: Journal::new(shared.store.clone(), id.clone(), fence, seq),
            shared,
            id,
            feed,
            mailbox,
            watchers,
            unwatched_since: None,
            state,
            owned_after: seq,
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
                tracing::warn!(conversation = %self.id, %error, "stopped owning a conversation");
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

    async fn wait(&mut self, timer: Option<Timestamp>) -> Wake {
        let Actor { shared, mailbox, watchers, call, owed, .. } = self;
        let sleep = async {
            match timer {
                Some(time) => shared.clock.sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        let gather = async {
            match call.as_mut().filter(|_| owed.is_none()) {
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

    async fn serve(&mut self, mail: Mail) -> Result<(), RecordError> {
        let ask = match mail {
            Mail::Wake => return Ok(()),
            Mail::Delete { user, reply } => return self.delete(&user, reply).await,
            Mail::Command(ask) => ask,
        };
        let answer = self.command(ask.command, &ask.user, ask.create, ask.named).await;
        let lost = match &answer {
            Err(CommandError::Lost(reason)) => Some(RecordError::Lost(reason.clone())),
            _ => None,
        };
        // The client may have gone; what it asked for is done all the same.
        ask.reply.send(answer).ok();
        lost.map_or(Ok(()), Err)
    }

    async fn command(
        &mut self,
        mut command: Command,
        user: &UserId,
        create: bool,
        named: bool,
    ) -> Result<Conversation, CommandError> {
        if named {
            self.look_up_earlier(&mut command).await?;
        }
        let now = self.shared.clock.now();
        let creates = create || matches!(command, Command::Start(_));
        let known = match &self.state {
            Some(state) if state.user == *user => true,
            None if creates => false,
            Some(_) | None => return Err(CommandError::NotFound),
        };
        if !known {
            self.state = Some(Conversation::new(self.id.clone(), user.clone(), now));
        }
        let decided = match self.reserve(&command) {
            Ok(()) => self.decide_and_record(command, known, now).await,
            Err(full) => Err(full),
        };
        if decided.is_err() && !known {
            self.state = None;
        }
        self.count_live();
        decided?;
        Ok(self.state.clone().ok_or(CommandError::NotFound)?.compact())
    }

    /// Refuses what would be one too many for the user. A repeat begins nothing and is not counted.
    fn reserve(&mut self, command: &Command) -> Result<(), CommandError> {
        let begins = match command {
            Command::Start(start) => start.earlier.is_none(),
            Command::Retry(retry) => retry.earlier.is_none(),
            _ => false,
        };
        self.count_live();
        let limit = self.shared.settings.live_generations_per_user;
        let reserved = self.share.as_mut().is_none_or(|share| !begins || share.reserve(limit));
        if reserved { Ok(()) } else { Err(CommandError::TooManyLive { limit }) }
    }

    fn count_live(&mut self) {
        let Some(state) = &self.state else {
            self.share = None;
            return;
        };
        let share =
            self.share.get_or_insert_with(|| Share::new(self.shared.live.clone(), state.user.clone()));
        let running = state.active().is_some_and(|active| active.phase != Phase::Interrupted);
        share.set(usize::from(running) + state.queue.len());
    }

    async fn decide_and_record(
        &mut self,
        command: Command,
        known: bool,
        now: Timestamp,
    ) -> Result<(), CommandError> {
        let Some(state) = &self.state else { return Err(CommandError::NotFound) };
        let entries = decide(state, command, now)?;
        if entries.is_empty() && !known {
            // A conversation in which nothing has happened is a document and an empty log.
            let document = DocumentChange::Conversation(conversation_document(state));
            let changes = to_changes(state, vec![document]);
            self.journal.append(&[], changes).await?;
        }
        Ok(self.record(entries).await?)
    }

    /// The generation that a request of this name began before. Only the owner may look: two equal
    /// requests at once come here one after the other.
    async fn look_up_earlier(&mut self, command: &mut Command) -> Result<(), CommandError> {
        let (request, earlier) = match command {
            Command::Start(start) => (&start.request, &mut start.earlier),
            Command::Retry(retry) => (&retry.request, &mut retry.earlier),
            _ => return Ok(()),
        };
        let query = Query {
            table: Some(Table::Generations),
            conversation: Some(self.id.clone()),
            request: Some(request.as_str().to_owned()),
            limit: 1,
            ..Query::default()
        };
        if let Some(document) = self.shared.store.list(query).await?.first() {
            let found = to_generation(document)?;
            *earlier =
                Some(Earlier { generation: found.id, message: found.message_id, digest: found.digest });
        }
        Ok(())
    }

    async fn delete(
        &mut self,
        user: &UserId,
        reply: oneshot::Sender<Result<(), CommandError>>,
    ) -> Result<(), RecordError> {
        if self.state.as_ref().is_none_or(|state| state.user != *user) {
            reply.send(Err(CommandError::NotFound)).ok();
            return Ok(());
        }
        let deleted = self.shared.store.delete(&self.id).await;
        let done = deleted.is_ok();
        reply.send(deleted.map_err(CommandError::from)).ok();
        // Whatever this owner believed is gone; what mail is left is for a new one.
        if done { Err(RecordError::Lost("the conversation was deleted".to_owned())) } else { Ok(()) }
    }

    /// Tells the core what happened. If the store cannot write now, the report is kept and told again:
    /// the state may have moved on by then, and the core will know what it is still worth.
    async fn report(&mut self, report: Report) -> Result<(), RecordError> {
        let Some(state) = &self.state else { return Ok(()) };
        let now = self.shared.clock.now();
        let entries = observe(state, report.clone(), &self.shared.settings.rules, now);
        match self.record(entries).await {
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = %self.id, reason, "the store cannot write; trying again");
                self.owed = Some(report);
                self.store_again = Some(now.after(STORE_WAIT));
                Ok(())
            }
            other => other,
        }
    }

    /// The only way anything changes: durable, then true, then visible.
    async fn record(&mut self, entries: Vec<Entry>) -> Result<(), RecordError> {
        let Some(state) = self.state.as_mut().filter(|_| !entries.is_empty()) else { return Ok(()) };
        let records: Vec<Record> = entries
            .iter()
            .map(|entry| Record { seq: entry.seq, bytes: outlast_core::encode(entry).into() })
            .collect();
        if entries.iter().all(|entry| entry.event.is_text()) {
            if self.shared.settings.durability != Durability::Commit {
                return self.show_first(&entries, records).await;
            }
            self.journal.append(&records, Vec::new()).await?;
            fault::point("record.durable");
            state.apply_all(&entries);
        } else {
            let mut after = state.clone();
            let changes = apply_with_documents(&mut after, &entries);
            self.journal.append(&records, to_changes(&after, changes)).await?;
            fault::point("record.durable");
            *state = after;
            self.save_at = None;
            self.count_live();
        }
        fault::point("record.applied");
        self.feed.publish(Batch::new(records));
        fault::point("record.visible");
        Ok(())
    }

    /// Where the operator chose fewer writes over safety: text is visible first and saved later.
    async fn show_first(&mut self, entries: &[Entry], records: Vec<Record>) -> Result<(), RecordError> {
        if let Some(state) = &mut self.state {
            state.apply_all(entries);
        }
        self.journal.hold(&records);
        self.feed.publish_unsaved(Batch::new(records));
        if self.journal.unsaved_bytes() > UNSAVED_BYTES_MAX {
            return self.save().await;
        }
        if let Durability::Debounce(delay) = self.shared.settings.durability {
            let due = self.shared.clock.now().after(delay);
            self.save_at.get_or_insert(due);
        }
        Ok(())
    }

    /// Saves text that was held back.
    async fn save(&mut self) -> Result<(), RecordError> {
        self.save_at = None;
        if self.journal.unsaved_bytes() == 0 {
            return Ok(());
        }
        match self.journal.append(&[], Vec::new()).await {
            Ok(()) => self.feed.saved(),
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = %self.id, reason, "the store cannot write; trying again");
                self.save_at = Some(self.shared.clock.now().after(STORE_WAIT));
            }
            Err(lost @ RecordError::Lost(_)) => return Err(lost),
        }
        Ok(())
    }

    async fn timer_rang(&mut self) -> Result<(), RecordError> {
        let now = self.shared.clock.now();
        self.store_again = self.store_again.filter(|again| *again > now);
        if self.save_at.is_some_and(|at| at <= now) {
            self.save().await?;
        }
        Ok(())
    }

    async fn read_model(&mut self) -> Result<(), RecordError> {
        let Some(call) = &mut self.call else { return Ok(()) };
        let gulp = call.gulp(|| self.shared.ids.jitter());
        let streamed = Streamed {
            generation: call.generation.clone(),
            attempt: call.attempt,
            pieces: gulp.pieces,
            end: gulp.end,
            new_message: self.new_message(),
        };
        if streamed.end.is_some() {
            self.call = None;
        }
        self.report(Report::Streamed(streamed)).await
    }

    /// A name for the message that may begin; while one is open none can.
    fn new_message(&self) -> MessageId {
        let active = self.state.as_ref().and_then(Conversation::active);
        match active.and_then(Generation::open_segment) {
            Some(segment) => segment.message.clone(),
            None => self.shared.ids.make("msg").into(),
        }
    }

    async fn call_model(&mut self, generation: &GenerationId) -> Result<(), RecordError> {
        let Some((state, run)) =
            self.state.as_ref().and_then(|state| state.generation(generation).map(|run| (state, run)))
        else {
            return Ok(());
        };
        let settings = &self.shared.settings;
        // Messages that wait for their turn stand among the newest and are left out afterwards.
        let wanted = settings.history_messages + state.queue.len() + 1;
        let stream = match self.shared.store.load(&self.id, wanted).await {
            Ok(loaded) => {
                let stored = loaded.map(|loaded| loaded.messages).unwrap_or_default();
                let messages: Result<Vec<_>, _> = stored.iter().map(to_message).collect();
                let messages = messages.map_err(|error| RecordError::Lost(error.to_string()))?;
                self.shared.models.call(&run.model, context(state, run, &messages, settings.history_messages))
            }
            Err(error) => {
                tracing::error!(conversation = %self.id, %error, "the history cannot be read; trying again");
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                return Ok(());
            }
        };
        fault::point("recover.called");
        self.call = Some(Call::new(run.id.clone(), run.attempt, stream, settings.upstream_idle));
        Ok(())
    }

    fn count_watchers(&mut self) {
        let watched = *self.watchers.borrow_and_update() > 0;
        self.unwatched_since = match (watched, self.unwatched_since) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            (false, None) => Some(self.shared.clock.now()),
        };
    }
}

/// What is left after catching up.
enum Owed {
    /// Nothing but to wait, at most until then.
    Timer(Option<Timestamp>),
    /// Nothing at all: the owner may go.
    Nothing,
}

impl From<RecordError> for CommandError {
    fn from(error: RecordError) -> CommandError {
        match error {
            RecordError::Unavailable(reason) => CommandError::Unavailable(reason),
            RecordError::Lost(reason) => CommandError::Lost(reason),
        }
    }
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> CommandError {
        CommandError::Refused(refusal)
    }
}
