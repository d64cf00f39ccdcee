//! Serves clients: one command at a time, with a reply after its events are durable.

use outlast_core::{
    Command, Conversation, Entry, Event, Facts, GenerationId, GenerationStatus, Refusal, UserId, decide,
};
use outlast_store::{Limit, Table};
use tokio::sync::oneshot;

use super::facts::look_up;
use super::{Actor, Answer, Mail, Receipt, Request};
use crate::engine::CommandOptions;
use crate::error::EngineError;
use crate::journal::RecordError;

/// The statuses of generations that count as live: waiting for a person costs nothing.
const AT_WORK: [GenerationStatus; 2] = [GenerationStatus::Queued, GenerationStatus::Running];
/// The place of the user's own limit among the limits of an append.
const OF_USER: usize = 0;

impl Actor {
    pub(super) async fn serve(&mut self, mail: Mail) -> Result<(), RecordError> {
        match mail {
            Mail::Wake { turn } => {
                drop(turn); // it has caught up
                Ok(())
            }
            Mail::Letters => {
                self.letters_wait = true;
                Ok(())
            }
            Mail::ChangeFile { user, wanted, reply } => self.change_file(&user, wanted, reply).await,
            Mail::Trim { generation, reply } => self.trim(generation, reply).await,
            Mail::Clear { reply } => {
                let cleared = self.clear().await;
                self.answer(reply, cleared)
            }
            Mail::Ask(ask) => {
                let replied = self.carry_out(ask.request).await;
                self.answer(ask.reply, replied)
            }
        }
    }

    pub(super) async fn carry_out(&mut self, request: Request) -> Result<Receipt, EngineError> {
        match request {
            Request::Command { command, user, options } => self.command(*command, &user, options).await,
            Request::Delete { user } => self.delete(&user).await.map(|()| Receipt::empty()),
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
        if let Some(answering) = &mut self.answering {
            answering.generation.clone_from(&generation);
        }
        let decided = self.decide_and_record(command, facts).await;
        if decided.is_err() && !known {
            self.state = None;
        }
        decided?;
        Ok(receipt(self.state.as_ref(), generation.as_ref()))
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
            | Command::ChildChanged(_)
            | Command::Retry(_) => false,
        };
        let entries = decide(state, command, facts, &self.shared.settings.rules, now)?;
        let limits = self.limits(state, &entries);
        match self.record_within(entries, limits).await {
            Err(RecordError::OverLimit(OF_USER)) => {
                return Err(EngineError::TooManyLive {
                    limit: self.shared.settings.live_generations_per_user,
                });
            }
            Err(RecordError::OverLimit(_)) => {
                return Err(EngineError::ServerIsFull { limit: self.shared.settings.live_generations });
            }
            recorded => recorded?,
        }
        if heard {
            self.worker_heard = now;
        }
        Ok(())
    }

    /// The limits on live generations, for a command that adds one, whatever the command is. The store checks them
    /// together with what every other instance writes.
    fn limits(&self, state: &Conversation, entries: &[Entry]) -> Vec<Limit> {
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
            return Vec::new();
        }
        let mut after = state.clone();
        after.apply_all(entries);
        if after.live_generations() <= state.live_generations() {
            return Vec::new();
        }
        let limit = |user, at_most| Limit {
            table: Table::Generations,
            user,
            statuses: AT_WORK.iter().map(|status| status.as_str().to_owned()).collect(),
            at_most,
        };
        let settings = &self.shared.settings;
        vec![
            limit(Some(state.user.clone()), settings.live_generations_per_user),
            limit(None, settings.live_generations),
        ]
    }

    pub(super) fn count_live(&mut self) {
        self.share.set(self.state.as_ref().map_or(0, Conversation::live_generations));
    }

    /// Replies, and stops the owner if it is unknown what the log holds. The client may have disconnected; its
    /// command was still carried out.
    pub(super) fn answer<T>(
        &mut self,
        reply: oneshot::Sender<Answer<T>>,
        replied: Result<T, EngineError>,
    ) -> Result<(), RecordError> {
        let lost = match &replied {
            Err(EngineError::Lost(reason)) => Some(reason.clone()),
            _ => None,
        };
        let Some(reason) = lost else {
            reply.send(Answer::Done(replied)).ok();
            return Ok(());
        };
        if self.fenced {
            reply.send(Answer::Elsewhere).ok(); // nothing was done, so the other owner can do it
            return Err(RecordError::Fenced(reason));
        }
        reply.send(Answer::Done(replied)).ok();
        Err(RecordError::Lost(reason))
    }
}

/// The state of a generation, for whoever sent a command about it.
pub(super) fn receipt(state: Option<&Conversation>, generation: Option<&GenerationId>) -> Receipt {
    match state.zip(generation).and_then(|(state, id)| state.generation(id)) {
        Some(generation) => Receipt {
            status: generation.status(),
            message: generation.message.clone(),
            attempt: generation.progress.attempt,
            produced: generation.progress.produced,
            approvals: generation.progress.approvals.iter().map(|asked| asked.shown()).collect(),
        },
        None => Receipt::empty(),
    }
}

impl From<RecordError> for EngineError {
    fn from(error: RecordError) -> EngineError {
        match error {
            RecordError::Unavailable(reason) => EngineError::Unavailable(reason),
            lost @ (RecordError::Lost(_)
            | RecordError::Fenced(_)
            | RecordError::Lapsed
            | RecordError::OverLimit(_)) => EngineError::Lost(lost.to_string()),
        }
    }
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> EngineError {
        EngineError::Refused(refusal)
    }
}
