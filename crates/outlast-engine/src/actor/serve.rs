//! What an owner does for clients: one command at a time, answered after it is true.

use outlast_core::{
    Command, Conversation, ConversationId, DocumentChange, Earlier, Generation, MessageId, Phase, Refusal,
    Timestamp, UserId, WhenBusy, conversation_document, decide,
};
use outlast_store::{Query, Table};
use tokio::sync::oneshot;

use super::{Actor, Mail};
use crate::documents::{message_key, to_changes, to_generation};
use crate::engine::{CommandOptions, Shared};
use crate::error::CommandError;
use crate::journal::RecordError;
use crate::live::{Limits, Reserved, Share};

impl Actor {
    pub(super) async fn serve(&mut self, mail: Mail) -> Result<(), RecordError> {
        let ask = match mail {
            Mail::Wake => return Ok(()),
            Mail::Delete { user, reply } => return self.delete(&user, reply).await,
            Mail::Command(ask) => ask,
        };
        let answer = self.command(ask.command, &ask.user, ask.options).await;
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
        options: CommandOptions,
    ) -> Result<Conversation, CommandError> {
        // Only in one's own conversation: a name or an id that is taken elsewhere is nobody's business.
        if options.named && self.state.as_ref().is_some_and(|state| state.user == *user) {
            self.look_up_earlier(&mut command).await?;
        }
        let now = self.shared.clock.now();
        let known = match &self.state {
            // Somebody else has made it meanwhile, by the same request: it is not made again.
            Some(state)
                if state.user == *user && matches!(command, Command::Update { .. }) && options.create =>
            {
                return Ok(state.clone().compact());
            }
            Some(state) if state.user == *user => true,
            None if options.create => false,
            Some(_) | None => return Err(CommandError::NotFound),
        };
        if !known {
            self.state = Some(Conversation::new(self.id.clone(), user.clone(), now));
        }
        // A worker that waited for a person has its time again from the decision on.
        let by_producer =
            matches!(command, Command::Claim { .. } | Command::Produce(_) | Command::Decide { .. })
                || matches!(&command, Command::Start(start) if start.producer.is_some());
        let decided = match self.reserve(&command) {
            Ok(()) => self.decide_and_record(command, known, now).await,
            Err(full) => Err(full),
        };
        if decided.is_ok() && by_producer {
            self.producer_heard = now;
        }
        if decided.is_err() && !known {
            self.state = None;
        }
        self.count_live();
        decided?;
        Ok(self.state.clone().ok_or(CommandError::NotFound)?.compact())
    }

    /// Refuses what would be one too many for the user. A repeat begins nothing, and what takes another's
    /// place adds nothing.
    fn reserve(&mut self, command: &Command) -> Result<(), CommandError> {
        let busy = self.state.as_ref().is_some_and(|state| state.active().is_some());
        let begins = match command {
            Command::Start(start) => {
                start.earlier.is_none() && !(busy && start.when_busy == WhenBusy::Interrupt)
            }
            Command::Retry(retry) => retry.earlier.is_none(),
            _ => false,
        };
        self.count_live();
        let settings = &self.shared.settings;
        let limits =
            Limits { per_user: settings.live_generations_per_user, in_all: settings.live_generations };
        match self.share.as_mut().filter(|_| begins).map(|share| share.reserve(limits)) {
            None | Some(Reserved::Yes) => Ok(()),
            Some(Reserved::UserIsFull) => Err(CommandError::TooManyLive { limit: limits.per_user }),
            Some(Reserved::ServerIsFull) => Err(CommandError::ServerIsFull { limit: limits.in_all }),
        }
    }

    pub(super) fn count_live(&mut self) {
        let Some(state) = &self.state else {
            self.share = None;
            return;
        };
        let share =
            self.share.get_or_insert_with(|| Share::new(self.shared.live.clone(), state.user.clone()));
        let at_work = |run: &Generation| run.phase != Phase::Interrupted && !run.waits_for_a_decision();
        let running = state.active().is_some_and(at_work);
        share.set(usize::from(running) + state.queue.len());
    }

    async fn decide_and_record(
        &mut self,
        command: Command,
        known: bool,
        now: Timestamp,
    ) -> Result<(), CommandError> {
        let Some(state) = &self.state else { return Err(CommandError::NotFound) };
        let entries = decide(state, command, &self.shared.settings.rules, now)?;
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
        if let Some(document) = self.shared.store.list(query).await?.documents.first() {
            let found = to_generation(document)?;
            *earlier =
                Some(Earlier { generation: found.id, message: found.message_id, digest: found.digest });
        }
        match command {
            Command::Start(start) if start.earlier.is_none() => {
                must_be_free(&self.shared, &self.id, start.answer_id.clone()).await
            }
            _ => Ok(()),
        }
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
        let lost = deleted.as_ref().err().map(|error| RecordError::Lost(error.to_string()));
        reply.send(deleted.map_err(CommandError::from)).ok();
        match lost {
            Some(lost) => Err(lost), // nobody can say whether it is gone: look again
            None => self.begin_anew().await,
        }
    }
}

/// An id that a client chose for its answer must not name a message already.
async fn must_be_free(
    shared: &Shared,
    conversation: &ConversationId,
    answer_id: Option<MessageId>,
) -> Result<(), CommandError> {
    let Some(id) = answer_id else { return Ok(()) };
    let found = shared.store.get(Table::Messages, &message_key(conversation, &id)).await?;
    if found.is_some() { Err(CommandError::MessageExists { id }) } else { Ok(()) }
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
