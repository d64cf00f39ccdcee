//! Serves clients: one command at a time, with a reply after its events are durable.

use outlast_core::{
    Command, Conversation, Entry, Event, Facts, GenerationId, GenerationStatus, MessageId, Refusal, Seq,
    UserId, decide,
};
use tokio::sync::oneshot;

use super::facts::look_up;
use super::{Actor, Mail, Receipt};
use crate::engine::CommandOptions;
use crate::error::EngineError;
use crate::journal::RecordError;
use crate::live::{Limits, Reserved, Share};

impl Actor {
    pub(super) async fn serve(&mut self, mail: Mail) -> Result<(), RecordError> {
        match mail {
            Mail::Wake => Ok(()),
            Mail::Delete { user, reply } => self.delete(&user, reply).await,
            Mail::Trim { generation, reply } => {
                let trimmed = self.trim(&generation).await;
                answer(reply, trimmed)
            }
            Mail::Command(ask) => {
                let replied = self.command(ask.command, &ask.user, ask.options).await;
                answer(ask.reply, replied)
            }
        }
    }

    async fn command(
        &mut self,
        command: Command,
        user: &UserId,
        options: CommandOptions,
    ) -> Result<Receipt, EngineError> {
        let known = match &self.state {
            Some(state) if state.user == *user => true,
            None if options.create => false,
            // Another user's conversation looks like one that does not exist.
            Some(_) | None => return Err(EngineError::NotFound),
        };
        let facts = match &self.state {
            Some(state) => look_up(&self.shared, state, &command, options).await?,
            None => Facts::default(),
        };
        if !known {
            let now = self.shared.clock.now();
            self.state = Some(Conversation::new(self.id.clone(), user.clone(), now));
        }
        let generation = command.generation().cloned();
        let decided = self.decide_and_record(command, facts).await;
        if decided.is_err() && !known {
            self.state = None;
        }
        self.count_live();
        decided?;
        Ok(self.receipt(generation.as_ref()))
    }

    async fn decide_and_record(&mut self, command: Command, facts: Facts) -> Result<(), EngineError> {
        let Some(state) = &self.state else { return Err(EngineError::NotFound) };
        let now = self.shared.clock.now();
        // A decision restarts the silence timer of the worker that waited for it.
        let heard = match &command {
            Command::Claim { .. } | Command::Append(_) | Command::Decide(_) => true,
            Command::Start(start) => start.brief.is_for_worker(),
            Command::Create { .. }
            | Command::Update { .. }
            | Command::Cancel { .. }
            | Command::Resume { .. }
            | Command::Dismiss { .. }
            | Command::Retry(_) => false,
        };
        let entries = decide(state, command, facts, &self.shared.settings.rules, now)?;
        self.reserve(&entries)?;
        self.record(entries).await?;
        if heard {
            self.worker_heard = now;
        }
        Ok(())
    }

    /// Refuses a command that would exceed a limit on live generations, whatever the command is.
    fn reserve(&mut self, entries: &[Entry]) -> Result<(), EngineError> {
        let Some(state) = &self.state else { return Ok(()) };
        let may_add = |entry: &Entry| {
            matches!(
                entry.event,
                Event::GenerationQueued { .. }
                    | Event::ChatStarted { .. }
                    | Event::ChatResumed { .. }
                    | Event::ApprovalResolved { .. }
            )
        };
        if !entries.iter().any(may_add) {
            return Ok(());
        }
        let mut after = state.clone();
        after.apply_all(entries);
        let (before, after) = (state.live_generations(), after.live_generations());
        self.count_live();
        let settings = &self.shared.settings;
        let limits =
            Limits { per_user: settings.live_generations_per_user, in_all: settings.live_generations };
        for _ in before..after {
            match self.share.as_mut().map(|share| share.reserve(limits)) {
                None | Some(Reserved::Yes) => {}
                Some(Reserved::UserIsFull) => {
                    return Err(EngineError::TooManyLive { limit: limits.per_user });
                }
                Some(Reserved::ServerIsFull) => {
                    return Err(EngineError::ServerIsFull { limit: limits.in_all });
                }
            }
        }
        Ok(())
    }

    pub(super) fn count_live(&mut self) {
        let Some(state) = &self.state else {
            self.share = None;
            return;
        };
        let share =
            self.share.get_or_insert_with(|| Share::new(self.shared.live.clone(), state.user.clone()));
        share.set(state.live_generations());
    }

    fn receipt(&self, generation: Option<&GenerationId>) -> Receipt {
        let state = self.state.as_ref();
        match state.zip(generation).and_then(|(state, id)| state.generation(id)) {
            Some(generation) => Receipt {
                status: generation.status(),
                message: generation.message.clone(),
                attempt: generation.progress.attempt,
                produced: generation.progress.produced,
                approvals: generation.progress.approvals.iter().map(|asked| asked.shown()).collect(),
            },
            // The command is about no generation, or about one that ended while it was queued.
            None => Receipt {
                status: GenerationStatus::Cancelled,
                message: MessageId::from(""),
                attempt: 0,
                produced: Seq::ZERO,
                approvals: Vec::new(),
            },
        }
    }

    async fn delete(
        &mut self,
        user: &UserId,
        reply: oneshot::Sender<Result<(), EngineError>>,
    ) -> Result<(), RecordError> {
        if self.state.as_ref().is_none_or(|state| state.user != *user) {
            reply.send(Err(EngineError::NotFound)).ok();
            return Ok(());
        }
        let deleted = self.shared.store.delete(&self.id).await;
        let lost = deleted.as_ref().err().map(|error| RecordError::Lost(error.to_string()));
        reply.send(deleted.map_err(EngineError::from)).ok();
        match lost {
            Some(lost) => Err(lost), // it is unknown whether it was deleted, so reload
            None => self.start_over().await,
        }
    }
}

/// Replies, and stops the owner if it is unknown what the log holds. The client may have disconnected; its
/// command was still carried out.
fn answer<T>(
    reply: oneshot::Sender<Result<T, EngineError>>,
    replied: Result<T, EngineError>,
) -> Result<(), RecordError> {
    let lost = match &replied {
        Err(EngineError::Lost(reason)) => Some(RecordError::Lost(reason.clone())),
        _ => None,
    };
    reply.send(replied).ok();
    lost.map_or(Ok(()), Err)
}

impl From<RecordError> for EngineError {
    fn from(error: RecordError) -> EngineError {
        match error {
            RecordError::Unavailable(reason) => EngineError::Unavailable(reason),
            RecordError::Lost(reason) => EngineError::Lost(reason),
        }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> EngineError {
        EngineError::Refused(refusal)
    }
}
