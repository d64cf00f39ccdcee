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
fn s3_a_question_asked_during_another_answer_comes_after_it() {
    let world = given([running(G1), asked(G2), spoke(G1, 1, "one"), completed(G1), started(G2, 1)]);
    assert_eq!(
        context_of(&world, G2, 10),
        [user("question of gen_1"), assistant("one"), user("question of gen_2")]
    );
}

#[test]
fn s3_queued_questions_are_left_out() {
    let world = given([running(G1), asked(G2), asked(G3)]);
    assert_eq!(context_of(&world, G1, 10), [user("question of gen_1")]);
}

#[test]
fn s3_withdrawn_text_is_not_given_to_the_model() {
    let world = given([answering(G1, "Hel"), retracted(G1, 1), retrying(G1, 2, 0), started(G1, 2)]);
    assert_eq!(context_of(&world, G1, 10), [user("question of gen_1")]);
}

#[test]
fn g11_a_model_that_can_continues_its_own_partial_answer() {
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
fn s3_the_question_is_included_even_if_there_is_no_room() {
    let world = given([running(G1), completed(G1), running(G2)]);
    assert_eq!(context_of(&world, G2, 0), [user("question of gen_2")]);
}

#[test]
fn s3_messages_without_text_are_left_out() {
    let world = given([running(G1)])
        .observed(stream(G1, 1, vec![thoughts("only thinking")], Some(finished())))
        .then(["assistant.segment.started", "thinking.delta", "assistant.segment.ended", "chat.done"])
        .when(start(G2))
        .then(["message.added", "generation.queued", "chat.started"]);
    assert_eq!(context_of(&world, G2, 10), [user("question of gen_1"), user("question of gen_2")]);
}

#[test]
fn s3_a_partial_answer_that_nobody_retried_is_part_of_the_transcript() {
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
