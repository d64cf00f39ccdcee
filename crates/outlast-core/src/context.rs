//! What a model is given to read.

use crate::{Conversation, Generation, GenerationId, Message, Role};

/// Instructions and the messages of the transcript, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Instructions, if there are any.
    pub system: Option<String>,
    /// The last messages, in order, role and content intact.
    pub messages: Vec<ContextMessage>,
}

/// One message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

/// Asks for the rest of an answer that broke off. Not part of the transcript.
const GO_ON: &str =
    "Your last answer was cut off. Go on exactly where it stops; do not repeat or introduce anything.";

/// The context of a generation, from the stored messages (ascending) of its conversation.
///
/// Its question stands last, also when it was asked while another answer was still being written.
/// Messages that wait for their own turn are left out. A generation that continues a failed one is given
/// what stands there and asked for the rest.
pub fn context(state: &Conversation, generation: &Generation, messages: &[Message], limit: usize) -> Context {
    let of = |message: &Message, id: &GenerationId| message.generation_id.as_ref() == Some(id);
    let waits = |message: &Message| state.queue.iter().any(|waiting| of(message, &waiting.id));
    let question = |message: &Message| message.id == generation.message;
    let partial = |message: &Message| generation.kept.contains(&message.id);
    let earlier = |message: &Message| {
        !question(message) && !of(message, &generation.id) && !partial(message) && !waits(message)
    };

    let said = |message: &&Message| !message.content.is_empty();
    let pick = |wanted: &dyn Fn(&Message) -> bool| {
        let wanted = messages.iter().filter(|message| wanted(message)).filter(said);
        wanted.map(ContextMessage::from).collect::<Vec<_>>()
    };
    // What is asked for always goes; the history takes the room that is left.
    let asked = [pick(&question), pick(&partial)].concat();
    let mut list = pick(&earlier);
    list.drain(..(list.len() + asked.len()).saturating_sub(limit).min(list.len()));
    list.extend(asked);
    if !generation.kept.is_empty() && list.last().is_some_and(|last| last.role == Role::Assistant) {
        list.push(ContextMessage { role: Role::User, content: GO_ON.to_owned() });
    }
    Context { system: generation.system.clone(), messages: list }
}

impl From<&Message> for ContextMessage {
    fn from(message: &Message) -> ContextMessage {
        ContextMessage { role: message.role, content: message.content.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RetryMode;
    use crate::testing::*;

    fn context_of(world: &World, generation: &str, limit: usize) -> Vec<(Role, String)> {
        let generation = world.generation(generation);
        let context = context(&world.transcript.state, generation, &world.stored.messages, limit);
        assert_eq!(context.system.as_deref(), Some("be brief"));
        context.messages.into_iter().map(|message| (message.role, message.content)).collect()
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
    fn s3_what_this_very_run_has_said_is_not_given_back_to_it() {
        let world = given([answering(G1, "Hel"), interrupted(G1)]);
        assert_eq!(context_of(&world, G1, 10), [user("question of gen_1")]);
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
