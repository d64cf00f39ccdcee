//! What a model is given to read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::message::plain_text;
use crate::{Conversation, Generation, GenerationId, Message, Part, Role};

/// Instructions, messages, tools and options for one call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// Instructions, if there are any.
    pub system: Option<String>,
    /// The messages, oldest first, role and content intact. If the last is the assistant's, the model is to
    /// go on from its last word.
    pub messages: Vec<ContextMessage>,
    /// Tools that the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// Further wishes of the client, under the names that OpenAI-compatible upstreams use.
    pub options: Map<String, Value>,
}

/// One message for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ContextMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
}

/// A tool that the model may ask for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it is good for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// A JSON schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Whether the model must keep to the schema, if the client says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
}

/// What the model is given instead of the transcript, where the client keeps the history itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Prompt {
    /// The messages, oldest first.
    pub messages: Vec<ContextMessage>,
    /// Tools that the model may ask for. The client runs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// Further wishes, under the names that OpenAI-compatible upstreams use.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub options: Map<String, Value>,
}

/// Asks for the rest of an answer that broke off. Not part of the transcript.
const GO_ON: &str =
    "Your last answer was cut off. Go on exactly where it stops; do not repeat or introduce anything.";

/// What a context is made of, beside the state.
#[derive(Clone, Debug)]
pub struct Sources<'a> {
    /// The stored messages of the conversation, ascending.
    pub messages: &'a [Message],
    /// How many of them a model is given at most.
    pub limit: usize,
    /// What the client gave instead.
    pub prompt: Option<Prompt>,
    /// Whether the model can go on from the last word of a partial answer.
    pub prefill: bool,
}

/// The context of a generation's next call.
///
/// Its question stands last, also when it was asked while another answer was still being written.
/// Messages that wait for their own turn are left out. A generation that continues a partial answer, a
/// failed one's or its own, is given what stands there and lets the model go on from it, or asks for the
/// rest.
pub fn context(state: &Conversation, generation: &Generation, sources: Sources<'_>) -> Context {
    let Sources { messages, limit, prompt, prefill } = sources;
    let partial = partial(generation, messages);
    let mut context = match prompt {
        Some(Prompt { messages, tools, options }) => Context { system: None, messages, tools, options },
        None => {
            let room = limit.saturating_sub(partial.len());
            Context { messages: transcript(state, generation, messages, room), ..Context::default() }
        }
    };
    context.system = generation.system.clone();
    if partial.is_empty() {
        return context;
    }
    if prefill {
        let said: String = partial.iter().map(|message| plain_text(&message.parts)).collect();
        // Some upstreams refuse an end in white space; the answer goes on without it.
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
    let kept = |message: &Message| generation.kept.contains(&message.id);
    let earlier = |message: &Message| {
        !question(message) && !of(message, &generation.id) && !kept(message) && !waits(message)
    };
    let pick = |wanted: &dyn Fn(&Message) -> bool| {
        let wanted = messages.iter().filter(|message| wanted(message) && !message.content.is_empty());
        wanted.map(ContextMessage::from).collect::<Vec<_>>()
    };
    // What is asked for always goes; the history takes the room that is left.
    let asked = pick(&question);
    let mut list = pick(&earlier);
    list.drain(..(list.len() + asked.len()).saturating_sub(room).min(list.len()));
    list.extend(asked);
    list
}

/// What stands there as an answer already: of the failed generations that this one continues, and its own
/// where an earlier attempt was not withdrawn.
fn partial(generation: &Generation, messages: &[Message]) -> Vec<ContextMessage> {
    let kept = messages.iter().filter(|message| generation.kept.contains(&message.id));
    let kept = kept.map(|message| message.content.clone());
    let own = generation.segments.iter().map(|segment| plain_text(&segment.parts));
    let said = kept.chain(own).filter(|text| !text.trim().is_empty());
    said.map(|text| ContextMessage { role: Role::Assistant, parts: vec![Part::Text { text }] }).collect()
}

impl ContextMessage {
    /// What is said, without the rest.
    pub fn text(&self) -> String {
        plain_text(&self.parts)
    }
}

impl From<&Message> for ContextMessage {
    fn from(message: &Message) -> ContextMessage {
        let parts = vec![Part::Text { text: message.content.clone() }];
        ContextMessage { role: message.role, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RetryMode;
    use crate::testing::*;

    fn context_of(world: &World, generation: &str, limit: usize) -> Vec<(Role, String)> {
        let generation = world.generation(generation);
        let sources = Sources { messages: &world.stored.messages, limit, prompt: None, prefill: false };
        let context = context(&world.transcript.state, generation, sources);
        assert_eq!(context.system.as_deref(), Some("be brief"));
        context.messages.into_iter().map(|message| (message.role, plain_text(&message.parts))).collect()
    }

    fn user(text: &str) -> (Role, String) {
        (Role::User, text.into())
    }

    fn assistant(text: &str) -> (Role, String) {
        (Role::Assistant, text.into())
    }

    #[test]
    fn s3_the_transcript_goes_to_the_model_in_order_with_the_question_last() {
        let world = given([answered(G1, "one\n <files_summary>a.rs</files_summary> "), running(G2)]);
        assert_eq!(
            context_of(&world, G2, 10),
            [
                user("question of gen_1"),
                assistant("one\n <files_summary>a.rs</files_summary> "),
                user("question of gen_2")
            ]
        );
    }

    #[test]
    fn s3_only_the_last_messages_go_to_the_model() {
        let world = given([answered(G1, "one"), answered(G2, "two"), running(G3)]);
        assert_eq!(
            context_of(&world, G3, 3),
            [user("question of gen_2"), assistant("two"), user("question of gen_3")]
        );
        assert_eq!(context_of(&world, G3, 1), [user("question of gen_3")]);
        assert_eq!(context_of(&world, G3, 100).len(), 5);
    }

    #[test]
    fn s3_a_question_asked_during_another_answer_stands_after_it() {
        let world = given([running(G1), asked(G2), spoke(G1, 1, "one"), completed(G1), started(G2, 1)]);
        assert_eq!(
            context_of(&world, G2, 10),
            [user("question of gen_1"), assistant("one"), user("question of gen_2")]
        );
    }

    #[test]
    fn s3_questions_that_wait_for_their_own_turn_are_left_out() {
        let world = given([running(G1), asked(G2), asked(G3)]);
        assert_eq!(context_of(&world, G1, 10), [user("question of gen_1")]);
    }

    #[test]
    fn s3_what_this_very_run_has_said_and_withdrawn_is_not_given_back_to_it() {
        let world = given([answering(G1, "Hel"), retracted(G1, 1), retrying(G1, 2, 0), started(G1, 2)]);
        assert_eq!(context_of(&world, G1, 10), [user("question of gen_1")]);
    }

    #[test]
    fn g11_a_model_that_can_goes_on_from_the_last_word_of_its_own_partial_answer() {
        let world = given([answering(G1, "Hel lo "), retrying(G1, 2, 0), started(G1, 2)]);
        let sources = Sources { messages: &world.stored.messages, limit: 10, prompt: None, prefill: true };
        let context = context(&world.transcript.state, world.generation(G1), sources);
        let said: Vec<_> = context.messages.iter().map(|said| (said.role, plain_text(&said.parts))).collect();
        assert_eq!(said, [user("question of gen_1"), assistant("Hel lo")]);
    }

    #[test]
    fn b3_a_prompt_is_given_instead_of_the_transcript() {
        let world = given([answered(G1, "one"), running(G2)]);
        let said = |role, text: &str| ContextMessage { role, parts: vec![Part::Text { text: text.into() }] };
        let prompt = Prompt {
            messages: vec![said(Role::System, "s"), said(Role::User, "u")],
            tools: vec![ToolSpec { name: "t".into(), description: None, parameters: None, strict: None }],
            options: Map::from_iter([("temperature".to_owned(), Value::from(1))]),
        };
        let prompt = Some(prompt.clone());
        let sources = Sources { messages: &world.stored.messages, limit: 10, prompt, prefill: false };
        let given = context(&world.transcript.state, world.generation(G2), sources);
        assert_eq!(given.messages, [said(Role::System, "s"), said(Role::User, "u")]);
        assert_eq!((given.tools.len(), given.options.len()), (1, 1));
    }

    #[test]
    fn s3_the_question_goes_even_if_there_is_no_room() {
        let world = given([running(G1), completed(G1), running(G2)]);
        assert_eq!(context_of(&world, G2, 0), [user("question of gen_2")]);
    }

    #[test]
    fn s3_messages_without_words_are_left_out() {
        let world = given([running(G1)])
            .observed(stream(G1, 1, vec![thoughts("only thinking")], Some(finished())))
            .then(["assistant.segment.started", "thinking.delta", "assistant.segment.ended", "chat.done"])
            .when(start(G2))
            .then(["message.added", "generation.queued", "chat.started"]);
        assert_eq!(context_of(&world, G2, 10), [user("question of gen_1"), user("question of gen_2")]);
    }

    #[test]
    fn s3_a_partial_answer_that_nobody_took_up_is_part_of_the_transcript() {
        let world = given([answering(G1, "Hel"), cancelled(G1), running(G2)]);
        assert_eq!(
            context_of(&world, G2, 10),
            [user("question of gen_1"), assistant("Hel"), user("question of gen_2")]
        );
    }

    #[test]
    fn g7_a_retry_is_given_the_question_without_the_partial_answer() {
        let world = given([answered(G1, "one"), answering(G2, "Hel"), failed(G2)])
            .when(retry(G2, RetryMode::Retry, G3))
            .then(["generation.queued", "attempt.retracted", "chat.started"]);
        assert_eq!(
            context_of(&world, G3, 10),
            [user("question of gen_1"), assistant("one"), user("question of gen_2")]
        );
    }

    #[test]
    fn g7_a_continuation_is_given_the_partial_answer_and_asked_for_the_rest() {
        let world = given([answering(G1, "Hel"), failed(G1), continuing(G2, G1)]);
        assert_eq!(context_of(&world, G2, 10), [user("question of gen_1"), assistant("Hel"), user(GO_ON)]);
    }

    #[test]
    fn g7_a_continuation_of_nothing_is_just_the_question() {
        let world = given([running(G1), failed(G1), continuing(G2, G1)]);
        assert_eq!(context_of(&world, G2, 10), [user("question of gen_1")]);
    }

    #[test]
    fn g7_a_continuation_of_a_continuation_is_given_both_partial_answers_after_the_question() {
        let world = given([
            answering(G1, "Hel"),
            failed(G1),
            continuing(G2, G1),
            spoke(G2, 1, "lo"),
            failed(G2),
            continuing(G3, G2),
        ]);
        assert_eq!(
            context_of(&world, G3, 10),
            [user("question of gen_1"), assistant("Hel"), assistant("lo"), user(GO_ON)]
        );
    }
}
