//! Builds what a model is given: instructions, messages, tools and options.

mod rounds;

use rounds::ends_with_an_answer;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::message::plain_text;
use crate::{Conversation, Generation, GenerationId, Message, Part, Role};

/// The input of one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Instructions for the model.
    pub system: Option<String>,
    /// The messages, oldest first, with their roles and parts. If the last one is the assistant's, the model
    /// must continue it.
    pub messages: Vec<ContextMessage>,
    /// Tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Further options, under the names that OpenAI-compatible APIs use.
    pub options: Map<String, Value>,
}

/// One message for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContextMessage {
    pub role: Role,
    pub parts: Vec<Part>,
}

/// A tool that the model may call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolSpec {
    pub name: String,
    /// What the tool does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Whether the model must follow the schema exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// What the model is given instead of the transcript, if the client keeps the history itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Prompt {
    /// The messages, oldest first.
    pub messages: Vec<ContextMessage>,
    /// Tools that the model may call. The client runs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Further options, under the names that OpenAI-compatible APIs use.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

/// Asks for the rest of an incomplete answer. Not part of the transcript.
const GO_ON: &str =
    "Your last answer was cut off. Go on exactly where it stops; do not repeat or introduce anything.";

/// What a context is built from, besides the state.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// The stored messages of the conversation, in ascending order.
    pub messages: &'a [Message],
    /// The maximum number of messages that a model is given.
    pub limit: usize,
    /// The client's prompt, used instead of the messages.
    pub prompt: Option<Prompt>,
    /// Whether the model can continue a partial answer that is given as the last message.
    pub prefill: bool,
    /// How many bytes of messages the model can read. If there are more, tool results are shortened.
    pub budget: Option<usize>,
}

/// Builds the context of a generation's next call.
///
/// The question comes last, even if it was asked while another answer was still being written. Questions
/// of queued generations are left out. If the generation continues a partial answer, its own or that of a
/// failed generation, the partial answer follows, and unless the model can continue it directly, a request
/// for the rest. The settled rounds of an agent come in between.
pub fn context(state: &Conversation, generation: &Generation, sources: Sources<'_>) -> Context {
    let Sources { messages, limit, prompt, prefill, budget } = sources;
    let has_prompt = prompt.is_some();
    let partial = partial(generation, messages);
    let mut context = match prompt {
        Some(Prompt { messages, tools, options }) => Context { system: None, messages, tools, options },
        None => {
            let room = limit.saturating_sub(partial.len());
            Context { messages: transcript(state, generation, messages, room), ..Context::default() }
        }
    };
    context.system = generation.brief.system.clone();
    if !has_prompt {
        context.messages.extend(rounds::settled(generation, messages));
    }
    let complete = !generation.progress.rounds.ends.is_empty() && ends_with_an_answer(&context.messages);
    if let Some(budget) = budget {
        rounds::shorten(&mut context.messages, budget);
    }
    if partial.is_empty() && !complete {
        return context;
    }
    if prefill && !partial.is_empty() {
        let said: String = partial.iter().map(|message| plain_text(&message.parts)).collect();
        // Some upstreams reject a message that ends in white space, so it is trimmed here.
        let parts = vec![Part::Text { text: said.trim_end().to_owned() }];
        context.messages.push(ContextMessage { role: Role::Assistant, parts });
    } else {
        context.messages.extend(partial);
        let parts = vec![Part::Text { text: GO_ON.to_owned() }];
        context.messages.push(ContextMessage { role: Role::User, parts });
    }
    context
}

/// The transcript up to the question.
fn transcript(
    state: &Conversation,
    generation: &Generation,
    messages: &[Message],
    room: usize,
) -> Vec<ContextMessage> {
    let of = |message: &Message, id: &GenerationId| message.generation_id.as_ref() == Some(id);
    let waits = |message: &Message| state.queue.iter().any(|waiting| of(message, &waiting.id));
    let question = |message: &Message| message.id == generation.message;
    let kept = |message: &Message| generation.progress.kept.contains(&message.id);
    let taken_up = |message: &Message| generation.progress.rounds.of.iter().any(|id| of(message, id));
    let earlier = |message: &Message| {
        let own = of(message, &generation.id) || taken_up(message) || kept(message);
        !question(message) && !own && !waits(message)
    };
    let says = |message: &Message| !message.content.is_empty() || has_image(message);
    let pick = |wanted: &dyn Fn(&Message) -> bool| {
        let wanted = messages.iter().filter(|message| wanted(message) && says(message));
        wanted.map(ContextMessage::from).collect::<Vec<_>>()
    };
    // The question is always included; the history gets the remaining room.
    let asked = pick(&question);
    let mut list = pick(&earlier);
    list.drain(..(list.len() + asked.len()).saturating_sub(room).min(list.len()));
    list.extend(asked);
    list
}

/// The part of the answer that exists already: that of the failed generations which this one continues, and
/// its own if an earlier attempt was not withdrawn.
fn partial(generation: &Generation, messages: &[Message]) -> Vec<ContextMessage> {
    let progress = &generation.progress;
    let stored = messages.iter().filter(|message| {
        message.role == Role::Assistant
            && (progress.kept.contains(&message.id) || progress.shown.contains(&message.id))
    });
    let open = generation.open_segment();
    let stored = stored.filter(|message| open.is_none_or(|open| open.message != message.id));
    let stored = stored.map(|message| message.content.clone());
    let said = stored.chain(open.map(|open| plain_text(&open.parts)));
    let said = said.filter(|text| !text.trim().is_empty());
    said.map(|text| ContextMessage { role: Role::Assistant, parts: vec![Part::Text { text }] }).collect()
}

impl ContextMessage {
    /// The plain text of the message.
    pub fn text(&self) -> String {
        plain_text(&self.parts)
    }
}

impl From<&Message> for ContextMessage {
    fn from(message: &Message) -> ContextMessage {
        let parts = match has_image(message) {
            true => message.parts.clone(),
            false => vec![Part::Text { text: message.content.clone() }],
        };
        ContextMessage { role: message.role, parts }
    }
}

/// Whether this is a user's message with an image.
fn has_image(message: &Message) -> bool {
    message.role == Role::User && message.parts.iter().any(|part| matches!(part, Part::Image { .. }))
}

#[cfg(test)]
mod tests;
