//! The owner's side effects: it calls the model, reads the answer, and reports to the core what happened.

use outlast_core::{
    CallEnd, Conversation, Effect, Failure, FailureClass, Generation, GenerationId, Message, MessageId,
    NotificationId, Prompt, Report, Seq, Sources, Streamed, context, observe,
};
use outlast_store::{Newest, StoreError, Table, fault};

use super::{Actor, STORE_WAIT};
use crate::call::Call;
use crate::documents::{message_key, to_message, to_prompt};
use crate::engine::Shared;
use crate::journal::RecordError;
use crate::notifications::{Notification, make};
use crate::pace::Paced;
use crate::reading::readable;

/// How much of the transcript is read for one call: more than any model accepts.
const CONTEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Actor {
    /// Reports to the core what happened. If the store cannot write now, the report is kept and observed again
    /// later. The state may have changed by then, and the core ignores the report if it is stale.
    pub(super) async fn report(&mut self, report: Report) -> Result<(), RecordError> {
        let Some(state) = &self.state else { return Ok(()) };
        let now = self.shared.clock.now();
        let entries = observe(state, report.clone(), &self.shared.settings.rules, now);
        match self.record(entries).await {
            Err(RecordError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "the store cannot write; will retry");
                self.owed = Some(report);
                self.store_again = Some(now.after(STORE_WAIT));
                Ok(())
            }
            Ok(()) => {
                self.shared.figures.reported(&report);
                Ok(())
            }
            lost => lost,
        }
    }

    pub(super) async fn read_model(&mut self) -> Result<(), RecordError> {
        let Some(call) = &mut self.call else { return Ok(()) };
        let gulp = call.gulp(|| self.shared.ids.jitter());
        let streamed = Streamed {
            generation: call.generation.clone(),
            attempt: call.attempt,
            pieces: gulp.pieces,
            end: gulp.end,
            new_message: self.new_message(),
        };
        if let Some(end) = &streamed.end {
            self.shared.figures.call_ended(end);
            self.call = None;
        }
        self.report(Report::Streamed(streamed)).await
    }

    /// An id for a message that may begin.
    pub(super) fn new_message(&self) -> MessageId {
        let active = self.state.as_ref().and_then(Conversation::active);
        match active.and_then(Generation::next_message) {
            Some(settled) => settled.clone(),
            None => self.shared.ids.make("msg").into(),
        }
    }

    pub(super) async fn call_model(&mut self, generation: &GenerationId) -> Result<(), RecordError> {
        let Some((state, run)) =
            self.state.as_ref().and_then(|state| state.generation(generation).map(|run| (state, run)))
        else {
            return Ok(());
        };
        let settings = &self.shared.settings;
        let read =
            async { Ok((history(&self.shared, state, run).await?, prompt(&self.shared, state, run).await?)) };
        let stream = match read.await {
            // While the history was read, this process may have been stopped for longer than its lease.
            Ok(_) if !self.shared.lease.is_safe_since(self.lapses) => {
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                return Ok(());
            }
            Ok((messages, prompt)) => {
                let sources = Sources {
                    messages: &messages,
                    limit: settings.history_messages,
                    prompt,
                    prefill: settings.rules.prefill.contains(&run.brief.model),
                    budget: self.shared.models.context_bytes(&run.brief.model),
                };
                let mut context = context(state, run, sources);
                let offered = run.brief.tools.iter().filter_map(|name| settings.toolbox.spec(name));
                context.tools.extend(offered);
                self.shared.models.call(&run.brief.model, context)
            }
            Err(StoreError::Unavailable(reason)) => {
                tracing::error!(conversation = ?self.id, reason, "cannot read the history; will retry");
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                return Ok(());
            }
            // A retry would fail in the same way.
            Err(StoreError::Broken(message)) => {
                tracing::error!(conversation = ?self.id, message, "cannot read the prompt");
                let failure = Failure { class: FailureClass::Invalid, message, retry_after: None };
                let (generation, attempt) = (run.id.clone(), run.progress.attempt);
                let end = Some(CallEnd::Failed { failure, jitter: 0 });
                let (pieces, new_message) = (Vec::new(), self.new_message());
                let failed = Streamed { generation, attempt, pieces, end, new_message };
                return self.report(Report::Streamed(failed)).await;
            }
        };
        fault::point("recover.called");
        let idle = self.shared.models.idle(&run.brief.model).unwrap_or(settings.upstream_idle);
        let paced = Paced::new(self.shared.pace.clone());
        self.call = Some(Call::new(run.id.clone(), run.progress.attempt, stream, idle, paced));
        Ok(())
    }

    /// Tells the user what the conversation owes them.
    pub(super) fn notify(&mut self, id: NotificationId, effect: Effect) {
        let Some(state) = &self.state else { return };
        let Some(notification) = Notification::owed_by(state, &id) else { return };
        let (shared, user) = (self.shared.clone(), state.user.clone());
        self.works.start(&self.shared, effect, |teller| async move {
            make(shared, user, notification).await;
            teller.finish(Report::Notified { notification: id }).await;
        });
    }

    pub(super) async fn timer_rang(&mut self) -> Result<(), RecordError> {
        let now = self.shared.clock.now();
        self.store_again = self.store_again.filter(|again| *again > now);
        if self.save_at.is_some_and(|at| at <= now) {
            self.save().await?;
        }
        Ok(())
    }

    pub(super) fn count_watchers(&mut self) {
        let watched = *self.watchers.borrow_and_update() > 0;
        self.unwatched_since = match (watched, self.unwatched_since) {
            (true, _) => None,
            (false, Some(since)) => Some(since),
            (false, None) => Some(self.shared.clock.now()),
        };
    }
}

/// The newest messages, and the question even if it is much older because it was queued.
async fn history(
    shared: &Shared,
    state: &Conversation,
    run: &Generation,
) -> Result<Vec<Message>, StoreError> {
    // Queued messages are among the newest and are left out afterwards. The partial answer is needed in full.
    let wanted = shared.settings.history_messages + state.queue.len() + run.answer_length() + 1;
    let newest = Newest { messages: wanted, max_bytes: CONTEXT_BYTES_MAX };
    let loaded = shared.store.load(&state.id, newest).await?;
    let stored = loaded.map(|loaded| loaded.messages).unwrap_or_default();
    let mut messages = readable(&stored, to_message);
    if !messages.iter().any(|message| message.id == run.message)
        && let Some(question) =
            shared.store.get(Table::Messages, &message_key(&state.id, &run.message)).await?
    {
        messages.insert(0, to_message(&question)?);
    }
    Ok(messages)
}

/// The client's prompt, read from the log.
async fn prompt(
    shared: &Shared,
    state: &Conversation,
    run: &Generation,
) -> Result<Option<Prompt>, StoreError> {
    let Some(seq) = run.prompt_seq else { return Ok(None) };
    let records = shared.store.read(&state.id, Seq(seq.0.saturating_sub(1)), 1).await?;
    to_prompt(records.first().filter(|record| record.seq == seq)).map(Some)
}
