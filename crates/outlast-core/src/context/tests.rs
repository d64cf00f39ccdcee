use super::*;
use crate::RetryMode;
use crate::testing::*;

fn context_of(world: &World, generation: &str, limit: usize) -> Vec<(Role, String)> {
    let generation = world.generation(generation);
    let sources =
        Sources { messages: &world.stored.messages, limit, prompt: None, prefill: false, budget: None };
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
    let sources =
        Sources { messages: &world.stored.messages, limit: 10, prompt: None, prefill: true, budget: None };
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
    let sources =
        Sources { messages: &world.stored.messages, limit: 10, prompt, prefill: false, budget: None };
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

fn rounds_of(world: &World, generation: &str, budget: Option<usize>) -> Vec<String> {
    let sources =
        Sources { messages: &world.stored.messages, limit: 10, prompt: None, prefill: false, budget };
    let context = context(&world.transcript.state, world.generation(generation), sources);
    let part = |part: &Part| match part {
        Part::Text { text } => text.clone(),
        Part::Thinking { text, signature } => format!("({text}|{})", signature.as_deref().unwrap_or("-")),
        Part::ToolUse { id, name, .. } => format!("{id}:{name}"),
        Part::ToolResult { tool_use_id, content, .. } => format!("{tool_use_id}={content}"),
        Part::Image { url } => url.clone(),
    };
    let line = |message: &ContextMessage| {
        let parts: Vec<String> = message.parts.iter().map(part).collect();
        format!("{:?} {}", message.role, parts.join(" "))
    };
    context.messages.iter().map(line).collect()
}

const DONE: &str = r#""working\ndone\n""#;

fn two_rounds() -> World {
    let mut world = agent();
    let signed = crate::Piece::Signature { signature: "sig".into() };
    let first =
        vec![thoughts("Hm."), signed, words("Look."), call("r1", "read", "a"), call("r2", "read", "b")];
    world.model(first, Some(wants_tools()));
    world.settle();
    world.ask_for(&[("w1", "write", "a")]);
    world
}

#[test]
fn settled_rounds_follow_the_question_as_the_model_said_them_with_their_results() {
    assert_eq!(
        rounds_of(&two_rounds(), G1, None),
        [
            "User question of gen_1".to_owned(),
            "Assistant (Hm.|sig) Look. r1:read r2:read".to_owned(),
            format!("Tool r1={DONE} r2={DONE}"),
            "Assistant w1:write".to_owned(),
            format!("Tool w1={DONE}"),
        ]
    );
}

#[test]
fn a_context_over_its_budget_loses_the_oldest_results_and_never_the_last_round_or_the_question() {
    let mut world = agent();
    for n in 0..3 {
        world.model(vec![call(&format!("r{n}"), "read", "a")], Some(wants_tools()));
        world.outside.held = true;
        world.settle();
        let execution = world.generation(G1).progress.rounds.executions[0].id.clone();
        let end = crate::RunEnd::Ended { result: "x".repeat(1_000).into(), is_error: false, exit_code: None };
        let (generation, output) = (G1.into(), vec![]);
        world.report(crate::Report::Ran(crate::Ran { generation, execution, output, end: Some(end) }));
    }
    world.settle();
    let left_out = |budget| {
        let list = rounds_of(&world, G1, Some(budget));
        assert_eq!(list[0], "User question of gen_1");
        assert_eq!(list.len(), 7);
        let short = |line: &&String| line.contains("[result of 1002 bytes left out]");
        assert!(!list.iter().next_back().is_some_and(|line| short(&line)), "the last round is whole");
        list.iter().filter(short).count()
    };
    assert_eq!((left_out(4_000), left_out(2_500), left_out(1_500), left_out(0)), (0, 1, 2, 2));
}

#[test]
fn g7_the_rounds_of_a_failed_generation_are_part_of_the_context_of_the_one_that_takes_it_up() {
    let mut world = two_rounds();
    world.outside.no_sandboxes = true;
    world.outside.sandboxes.clear();
    world.ask_for(&[("w2", "write", "b")]);
    assert_eq!(world.generation(G1).end_reason().0.unwrap(), "sandbox_unavailable");
    world.command(crate::testing::retry(G1, RetryMode::Retry, G2)).unwrap();
    let list = rounds_of(&world, G2, None);
    assert_eq!(list[..5], rounds_of(&two_rounds(), G1, None)[..]);
    let stopped = "Tool w2=\"[no result: the run was stopped before this tool had finished]\"";
    assert_eq!(list[5..], ["Assistant w2:write", stopped]);
}

#[test]
fn p3_what_the_server_tells_the_model_stands_where_it_was_said() {
    let mut world = two_rounds();
    world.rules.recovery = crate::Recovery::Ask;
    world.crash();
    world.settle();
    world.command(resume(G1)).unwrap();
    world.settle();
    let list = rounds_of(&world, G1, None);
    assert_eq!(list.len(), 6);
    assert!(list[5].starts_with("User [SESSION_RESUMED]"), "{list:?}");
}

#[test]
fn s3_what_a_user_shows_goes_to_the_model_even_without_words() {
    let mut world = World::new();
    let parts = vec![Part::Image { url: "data:image/png;base64,AA==".into() }];
    world.command(crate::Command::Start(crate::Start { parts, ..request(G1) })).unwrap();
    assert_eq!(rounds_of(&world, G1, None), ["User data:image/png;base64,AA=="]);
}

#[test]
fn the_engine_is_told_how_many_messages_the_rounds_have() {
    let world = two_rounds();
    assert_eq!(world.generation(G1).answer_length(), 4);
}
