//! What an owner does about children and parents. They may have owners in other instances, so all of it is commands.

use std::time::Duration;

use outlast_core::{
    Brief, ChildEnd, ChildNews, Command, Conversation, ConversationId, DELEGATE, Delegation, Effect,
    ExecutionId, Generation, GenerationDocument, GenerationId, GenerationStatus, MessageId, Parent, Part,
    Ran, Refusal, Report, RequestId, Role, RunEnd, Seq, Start, UPDATE_PLAN, UserId, WhenBusy,
    child_conversation, child_generation, delegation_of, generation_document,
};
use serde::Deserialize;
use serde_json::Value;

use super::Actor;
use super::works::Teller;
use crate::commands::digest;
use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;

/// How long to wait before a command is sent again that could not be carried out: at first, and at most.
const SEND_WAIT: Duration = Duration::from_millis(500);
const SEND_WAIT_MAX: Duration = Duration::from_secs(30);
/// How much of a sub-agent's answer its parent reads.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// How many of the newest messages are searched for the answer: it is the last that the sub-agent said.
const ANSWER_MESSAGES: usize = 8;

/// What a sub-agent is told about itself.
const INSTRUCTIONS: &str = "\
You are a sub-agent: another agent gave you the task below, and your last message is the result that it reads. Work on \
your own and do not ask questions. Keep your plan, open tasks, files and errors up to date with `update_plan`; people \
watch it, and you get it back if you are interrupted.";

/// The arguments of `delegate`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    task: String,
}

impl Actor {
    /// Starts what children and parents need.
    pub(super) fn begin_delegation(&mut self, effect: Effect) {
        let (Some(state), shared) = (&self.state, self.shared.clone()) else { return };
        let (engine, user) = (Engine { shared: shared.clone() }, state.user.clone());
        match effect.clone() {
            Effect::Delegate { generation, execution } => {
                let Some(run) = state.generation(&generation) else { return };
                let start = start(state, run, &execution, self.shared.settings.rules.max_depth);
                let known = run.execution(&execution).is_some_and(|run| run.child.is_some());
                let delegated = Delegated { engine, user, generation, execution, start, known };
                self.works.start(&shared, effect, |teller| delegated.carry_out(teller));
            }
            Effect::CancelChild { execution, child } => {
                self.works.start(&shared, effect, |teller| cancel(engine, user, child, execution, teller));
            }
            Effect::TellParent { seq, .. } => {
                let Some((parent, delegation)) = delegation_of(state) else { return };
                let Some(generation) = state.current.clone() else { return };
                let conversation = state.id.clone();
                let telling = Telling { engine, user, conversation, generation, parent, delegation, seq };
                self.works.start(&shared, effect, |teller| telling.carry_out(teller));
            }
            _ => {}
        }
    }
}

/// A call on its way to a child.
struct Delegated {
    engine: Engine,
    user: UserId,
    generation: GenerationId,
    execution: ExecutionId,
    /// The error is for the model.
    start: Result<Start, String>,
    /// Whether the child has reported before.
    known: bool,
}

impl Delegated {
    /// Starts the child, and then waits until it is no longer wanted: the child reports by itself.
    async fn carry_out(self, teller: Teller) {
        let start = match self.start.clone() {
            Ok(start) => start,
            Err(why) => return self.fail(teller, why).await,
        };
        if !self.known {
            let child = child_conversation(&self.user, &self.execution);
            let options = CommandOptions { create: true, named: true };
            let sending = Sending { engine: &self.engine, user: &self.user, to: &child, options };
            match sending.insist(Command::Start(start)).await {
                Ok(()) | Err(EngineError::Refused(Refusal::Repeated(_))) => {}
                Err(error) => return self.fail(teller, format!("the sub-agent cannot start: {error}")).await,
            }
        }
        std::future::pending().await
    }

    async fn fail(self, teller: Teller, why: String) {
        let end = RunEnd::Ended { result: Value::String(why), is_error: true, exit_code: None };
        let Delegated { generation, execution, .. } = self;
        teller.finish(Report::Ran(Ran { generation, execution, output: Vec::new(), end: Some(end) })).await;
    }
}

/// The command that starts a child: the same whenever it is made from the same log.
fn start(
    state: &Conversation,
    run: &Generation,
    execution: &ExecutionId,
    max_depth: u32,
) -> Result<Start, String> {
    let begun = run.execution(execution).ok_or("the call has ended")?;
    let (_, input) = run.call(&begun.tool_use_id).ok_or("the call has ended")?;
    let Task { task } = Task::deserialize(input).map_err(|error| format!("invalid arguments: {error}"))?;
    if task.trim().is_empty() {
        return Err("invalid arguments: the task is empty".to_owned());
    }
    let depth = run.brief.parent.as_ref().map_or(0, |parent| parent.depth) + 1;
    let may_delegate = depth < max_depth;
    let passed_on = |name: &&String| *name != UPDATE_PLAN && (may_delegate || *name != DELEGATE);
    let tools = run.brief.tools.iter().filter(passed_on).cloned().chain([UPDATE_PLAN.to_owned()]);
    let parent = Parent {
        conversation_id: state.id.clone(),
        generation_id: run.id.clone(),
        tool_use_id: begun.tool_use_id.clone(),
        execution_id: execution.clone(),
        depth,
    };
    let brief = Brief {
        model: run.brief.model.clone(),
        system: Some(INSTRUCTIONS.to_owned()),
        tools: tools.collect(),
        api_key_id: run.brief.api_key_id.clone(), // its tokens count like the parent's
        parent: Some(Box::new(parent)),
        ..Brief::default()
    };
    Ok(Start {
        generation: child_generation(&state.user, execution),
        message: MessageId::from(format!("msg_of_{execution}").as_str()),
        request: RequestId::from(execution.as_str()),
        digest: digest(&(execution, &task)),
        role: Role::User,
        parts: vec![Part::Text { text: task }],
        brief,
        key: None,
        when_busy: WhenBusy::Reject,
    })
}

/// Cancels a child, however long that takes. Whatever was sent to start it arrives before this.
async fn cancel(engine: Engine, user: UserId, child: ConversationId, execution: ExecutionId, teller: Teller) {
    let generation = child_generation(&user, &execution);
    let options = CommandOptions::default();
    let sending = Sending { engine: &engine, user: &user, to: &child, options };
    if let Err(error) = sending.insist(Command::Cancel { generation }).await {
        tracing::debug!(?child, %error, "a sub-agent had ended before, or never began");
    }
    teller.finish(Report::Stopped { execution }).await;
}

/// A command to another conversation, which may have its owner in another instance.
struct Sending<'a> {
    engine: &'a Engine,
    user: &'a UserId,
    to: &'a ConversationId,
    options: CommandOptions,
}

impl Sending<'_> {
    /// Sends it until the other side has carried it out or refused it. All commands sent from here may be repeated.
    async fn insist(&self, command: Command) -> Result<(), EngineError> {
        let mut wait = SEND_WAIT;
        loop {
            match self.engine.command(self.to, self.user, command.clone(), self.options).await {
                Err(
                    error @ (EngineError::Unavailable(_) | EngineError::Lost(_) | EngineError::Broken(_)),
                ) => tracing::warn!(to = ?self.to, %error, "will send a command between agents again"),
                answered => return answered.map(|_| ()),
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(SEND_WAIT_MAX);
        }
    }
}

/// News on their way to the parent.
struct Telling {
    engine: Engine,
    user: UserId,
    conversation: ConversationId,
    generation: Generation,
    parent: Parent,
    delegation: Delegation,
    seq: Seq,
}

impl Telling {
    async fn carry_out(self, teller: Teller) {
        let news = ChildNews {
            execution: self.parent.execution_id.clone(),
            conversation: self.conversation.clone(),
            state: self.delegation.clone(),
            end: self.end().await,
        };
        let (to, options) = (&self.parent.conversation_id, CommandOptions::default());
        let sending = Sending { engine: &self.engine, user: &self.user, to, options };
        let report = match sending.insist(Command::ChildChanged(news)).await {
            Ok(()) => Report::ParentTold { seq: self.seq },
            Err(error) => {
                tracing::debug!(conversation = ?self.conversation, %error, "the parent does not wait any more");
                Report::ParentGone
            }
        };
        teller.finish(report).await;
    }

    /// The result of the call, if the sub-agent is done: the last thing it said.
    async fn end(&self) -> Option<ChildEnd> {
        let document = generation_document(&self.conversation, &self.generation);
        let failed = |result: String| Some(ChildEnd { result, is_error: true });
        match document.status {
            GenerationStatus::Completed => {
                Some(ChildEnd { result: cut(self.answer(&document).await), is_error: false })
            }
            GenerationStatus::Error => {
                failed(format!("the sub-agent failed: {}", document.error_message.unwrap_or_default()))
            }
            GenerationStatus::Cancelled => failed("the sub-agent was cancelled".to_owned()),
            GenerationStatus::Queued
            | GenerationStatus::Running
            | GenerationStatus::AwaitingApproval
            | GenerationStatus::Paused
            | GenerationStatus::Interrupted => None,
        }
    }

    /// Its answer, however long the store takes to become available.
    async fn answer(&self, document: &GenerationDocument) -> String {
        let mut wait = SEND_WAIT;
        loop {
            match self.engine.messages_of(document, ANSWER_MESSAGES).await {
                Ok((messages, _)) => {
                    let said = messages.into_iter().rev().find(|message| message.role == Role::Assistant);
                    return said.map(|message| message.content).unwrap_or_default();
                }
                Err(error) => {
                    tracing::warn!(conversation = ?self.conversation, %error, "cannot read the answer of a sub-agent yet");
                }
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(SEND_WAIT_MAX);
        }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > RESULT_BYTES_MAX {
        let end = (0..=RESULT_BYTES_MAX).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\n[the rest is left out]");
    }
    text
}
