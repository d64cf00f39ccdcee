use serde_json::{Value, json};

use super::*;
use crate::testing::*;
use crate::{Command, Decide, Decision, GenerationStatus, Part, Seq};

fn made_elsewhere() -> World {
    let start = for_a_worker(G1);
    let mut world = given([]).when(Command::Start(start)).then(FIRST_START);
    world.worker = Some(1);
    world
}

fn batch(epoch: u32, expected: Seq, end: Option<WorkerEnd>) -> Command {
    let (generation, pieces) = (G1.into(), vec![words("Hel")]);
    let (expected, new_message) = (Some(expected), "made".into());
    Command::Append(WorkerAppend { generation, epoch, expected, pieces, end, new_message })
}

#[test]
fn x3_a_worker_appends_where_its_last_batch_ended() {
    let world = made_elsewhere();
    let first = batch(1, Seq(4), None);
    let world = world.when(first).then(["assistant.segment.started", "chat.delta"]);
    assert_eq!(world.generation(G1).progress.produced, Seq(6));
    let again = batch(1, Seq(4), None);
    let conflict = Refusal::SeqConflict { expected: Seq(4), last: Seq(6) };
    let world = world.when(again).refused(conflict);
    let second = batch(1, Seq(6), Some(WorkerEnd::Done { reason: "stop".into() }));
    world.when(second).then(["chat.delta", "assistant.segment.ended", "chat.done"]);
}

#[test]
fn x3_other_commands_do_not_disturb_a_worker() {
    let world = made_elsewhere().when(rename("Tea")).then(["conversation.updated"]);
    let next = batch(1, Seq(4), None);
    world.when(next).then(["assistant.segment.started", "chat.delta"]);
}

#[test]
fn x3_a_claim_ends_the_epoch_of_the_previous_worker() {
    let claim = |keep| Command::Claim { generation: G1.into(), keep };
    let world = made_elsewhere();
    let first = batch(1, Seq(4), None);
    let world = world.when(first).then(["assistant.segment.started", "chat.delta"]);
    let world = world.when(claim(true)).then(["chat.started"]);
    let old = batch(1, Seq(6), None);
    let status = GenerationStatus::Running;
    let world = world.when(old).refused(Refusal::StaleEpoch { epoch: 1, current: 2, status });
    let new = batch(2, Seq(7), None);
    let world = world.when(new).then(["chat.delta"]);
    world.when(claim(false)).then(["attempt.retracted", "chat.started"]);
}

#[test]
fn x3_white_space_from_a_worker_is_kept_exactly() {
    for prefill in [[].into(), ["default".to_owned()].into()] {
        let mut world = made_elsewhere().with(Rules { prefill, ..Rules::default() });
        world.produce(vec![words("def one():\n")], None);
        world.claim(true);
        world.produce(vec![words("\n\n")], None);
        world.claim(true);
        world.produce(vec![words("    return 1")], None);
        assert_eq!(world.answer_shown(&G1.into()), "def one():\n\n\n    return 1");
    }
}

#[test]
fn x3_a_worker_that_was_lost_must_claim_again() {
    let silent = crate::Report::WorkerSilent { generation: G1.into() };
    let world = made_elsewhere().observed(silent).then(["chat.interrupted"]);
    let late = batch(1, Seq(4), None);
    let status = GenerationStatus::Interrupted;
    let world = world.when(late).refused(Refusal::StaleEpoch { epoch: 1, current: 1, status });
    let world = world.when(resume(G1)).refused(Refusal::MadeByWorker);
    let claim = Command::Claim { generation: G1.into(), keep: true };
    world.when(claim).then(["chat.resumed", "chat.started"]);
}

#[test]
fn x3_only_a_generation_started_for_a_worker_can_be_claimed() {
    let world = given([running(G1)]);
    let made = batch(1, Seq(4), None);
    let world = world.when(made).refused(Refusal::NotForWorkers);
    world.when(Command::Claim { generation: G1.into(), keep: true }).refused(Refusal::NotForWorkers);
}

#[test]
fn x5_a_worker_learns_that_its_generation_was_cancelled() {
    let world = made_elsewhere().when(cancel(G1)).then(["chat.cancelled"]);
    let late = batch(1, Seq(4), None);
    world.when(late).refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
}

fn asking() -> World {
    let mut world = made_elsewhere();
    let asked = Piece::Approval { id: "call_1".into(), name: "bash".into(), input: json!({"command": "ls"}) };
    world.produce(vec![words("May I?"), asked], None);
    world
}

#[test]
fn i8_the_first_of_two_decisions_counts() {
    let world = asking();
    assert_eq!(world.generation(G1).status(), GenerationStatus::AwaitingApproval);
    let world = world.when(decide_about("call_1", Decision::Deny)).then(["approval.resolved"]);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
    let won = world.generation(G1).progress.approvals[0].decided.clone().unwrap();
    assert_eq!(won.decision, Decision::Deny);
    world.when(decide_about("call_1", Decision::Approve)).refused(Refusal::AlreadyDecided(won));
}

#[test]
fn i8_a_question_that_was_not_asked_cannot_be_decided() {
    let not_asked = Refusal::NotAsked { tool_use_id: "call_9".into() };
    asking().when(decide_about("call_9", Decision::Approve)).refused(not_asked);
    let ended = Refusal::AlreadyEnded { status: GenerationStatus::Cancelled };
    let world = asking().when(cancel(G1)).then(["chat.cancelled"]);
    world.when(decide_about("call_1", Decision::Approve)).refused(ended);
}

#[test]
fn g6_a_question_waits_without_limit() {
    let mut world = asking();
    world.unwatched_since = Some(world.now);
    let year = std::time::Duration::from_secs(365 * 24 * 60 * 60);
    assert_eq!(world.later(year).next(), crate::Next::default());
}

#[test]
fn x3_a_worker_can_only_end_tool_calls_that_it_started() {
    let world = made_elsewhere();
    let end = Piece::ToolEnd { id: "call_9".into(), result: json!(1), is_error: false };
    let (generation, expected, new_message) = (G1.into(), Some(Seq(4)), "made".into());
    let made = WorkerAppend { generation, epoch: 1, expected, pieces: vec![end], end: None, new_message };
    let refusal = Refusal::NotCalled { tool_use_id: "call_9".into() };
    world.when(Command::Append(made)).refused(refusal);
}

fn append(world: &World, pieces: Vec<Piece>) -> Command {
    let (epoch, expected) =
        (world.generation(G1).progress.attempt, Some(world.generation(G1).progress.produced));
    let (generation, new_message) = (G1.into(), "made".into());
    Command::Append(WorkerAppend { generation, epoch, expected, pieces, end: None, new_message })
}

fn may_i(id: &str, command: &str) -> Piece {
    Piece::Approval { id: id.into(), name: "bash".into(), input: json!({"command": command}) }
}

#[test]
fn i8_the_same_question_asked_twice_is_one_question() {
    for decided in [false, true] {
        let mut world = asking();
        if decided {
            world = world.when(decide_about("call_1", Decision::Approve)).then(["approval.resolved"]);
        }
        world.claim(true);
        let again = append(&world, vec![may_i("call_1", "ls")]);
        let world = world.when(again).then_nothing();
        assert_eq!(world.generation(G1).progress.approvals.len(), 1);
        assert_eq!(world.generation(G1).progress.approvals[0].decided.is_some(), decided);
    }
    let world = made_elsewhere();
    let twice = append(&world, vec![may_i("call_1", "ls"), may_i("call_1", "ls")]);
    world.when(twice).then(["approval.requested"]);
}

#[test]
fn i8_a_decision_never_applies_to_other_arguments() {
    let refusal = Refusal::AskedOtherwise { tool_use_id: "call_1".into() };
    let world = asking();
    let other = append(&world, vec![words("Or this?"), may_i("call_1", "rm -rf /")]);
    let world = world.when(other).refused(refusal.clone());
    let world = world.when(decide_about("call_1", Decision::Approve)).then(["approval.resolved"]);
    let other = append(&world, vec![may_i("call_1", "rm -rf /")]);
    let mut world = world.when(other).refused(refusal.clone());
    let both = append(&world, vec![may_i("call_2", "ls"), may_i("call_2", "rm -rf /")]);
    world = world.when(both).refused(Refusal::AskedOtherwise { tool_use_id: "call_2".into() });
    world.claim(false); // restarted: nothing has been asked
    let other = append(&world, vec![may_i("call_1", "rm -rf /")]);
    world.when(other).then(["approval.requested"]);
}

#[test]
fn x3_a_claim_without_keep_withdraws_a_question_without_text() {
    let claim = |keep| Command::Claim { generation: G1.into(), keep };
    let world = made_elsewhere();
    let asked = append(&world, vec![may_i("call_1", "ls")]);
    let world = world.when(asked).then(["approval.requested"]);
    let kept = world.clone().when(claim(true)).then(["chat.started"]);
    assert_eq!(kept.generation(G1).status(), GenerationStatus::AwaitingApproval);
    let world = world.when(claim(false)).then(["attempt.retracted", "chat.started"]);
    assert_eq!(world.generation(G1).status(), GenerationStatus::Running);
    assert!(world.generation(G1).progress.approvals.is_empty());
}

#[test]
fn g6_a_worker_may_be_silent_while_a_person_decides() {
    let silent = crate::Report::WorkerSilent { generation: G1.into() };
    asking().observed(silent).then_nothing().observed(abandoned(G1)).then_nothing();
}

fn output(id: &str, text: &str) -> Piece {
    Piece::ToolOutput { id: id.into(), stream: crate::ToolStream::Stdout, text: text.into() }
}

fn result(id: &str, text: &str) -> Piece {
    Piece::ToolEnd { id: id.into(), result: json!(text), is_error: false }
}

#[test]
fn x3_a_tool_writes_after_its_start_and_ends_once() {
    let not_called = Refusal::NotCalled { tool_use_id: "call_1".into() };
    let begun = tool_call("call_1", json!({}));
    for pieces in [
        vec![output("call_1", "x"), begun.clone()],
        vec![begun.clone(), result("call_1", "x"), result("call_1", "y")],
        vec![begun.clone(), result("call_1", "x"), output("call_1", "y")],
    ] {
        let world = made_elsewhere();
        let made = append(&world, pieces);
        world.when(made).refused(not_called.clone());
    }
    let mut world = made_elsewhere();
    world.produce(vec![begun.clone(), output("call_1", "x"), result("call_1", "x")], None);
    let again = append(&world, vec![result("call_1", "y")]);
    let mut world = world.when(again).refused(not_called);
    world.produce(vec![begun, result("call_1", "y")], None); // the same id again is another call
    let results = |part: &Part| match part {
        Part::ToolResult { content, .. } => Some(content.clone()),
        _ => None,
    };
    let parts = world.transcript.messages.iter().flat_map(|message| &message.parts);
    assert_eq!(parts.filter_map(results).collect::<Vec<Value>>(), ["x", "y"]);
    assert_eq!(world.generation(G1).open_calls().count(), 0);
}

#[test]
fn x3_one_piece_of_tool_output_has_a_limit() {
    let long = "x".repeat(TOOL_BYTES_MAX);
    let begun = tool_call("call_1", json!({}));
    let world = made_elsewhere();
    let most = append(&world, vec![begun.clone(), output("call_1", &long), result("call_1", &long[2..])]);
    world.when(most).then(["tool.start", "tool.output", "tool.end"]);
    for more in [output("call_1", &format!("{long}!")), result("call_1", &long)] {
        let world = made_elsewhere();
        let made = append(&world, vec![begun.clone(), more]);
        world.when(made).refused(Refusal::ToolTooLong { tool_use_id: "call_1".into() });
    }
}

#[test]
fn x3_everything_a_worker_sends_counts_against_the_limit_of_its_answer() {
    let long = "x".repeat(6_000);
    let begun = tool_call("call_1", json!({}));
    for piece in [output("call_1", &long), result("call_1", &long), may_i("call_1", &long)] {
        let mut world = made_elsewhere();
        world.rules.answer_bytes = 10_000;
        world.produce(vec![begun.clone(), piece.clone()], None);
        assert!(!world.generation(G1).ended(), "{piece:?}");
        let more = tool_call("call_2", json!({"a": &long[..4_000]}));
        world.produce(vec![more], None);
        let (reason, _) = world.generation(G1).end_reason();
        assert_eq!(reason.as_deref(), Some("answer_too_long"), "{piece:?}");
    }
}

#[test]
fn i8_a_click_meant_for_one_question_never_decides_another() {
    let mut world = asking();
    let seen = world.generation(G1).pending_approvals().next().unwrap().hash.clone();
    world.claim(false); // the worker withdraws `ls` and asks for something else under the same id
    let swapped = append(&world, vec![may_i("call_1", "rm -rf ~")]);
    let world = world.when(swapped).then(["approval.requested"]);
    let Command::Decide(decide) = decide_about("call_1", Decision::Approve) else { unreachable!() };
    let click = Command::Decide(Decide { hash: Some(seen), ..decide.clone() });
    let world = world.when(click).refused(Refusal::ApprovalChanged { tool_use_id: "call_1".into() });
    let shown = world.generation(G1).pending_approvals().next().unwrap().hash.clone();
    let click = Command::Decide(Decide { hash: Some(shown), ..decide });
    world.when(click).then(["approval.resolved"]);
}

#[test]
fn i18_a_decided_question_keeps_its_hash_and_not_its_arguments() {
    let world = asking().when(decide_about("call_1", Decision::Approve)).then(["approval.resolved"]);
    let decided = &world.generation(G1).progress.approvals[0];
    assert_eq!(decided.tool_input, Value::Null);
    assert!(decided.asks("bash", &json!({"command": "ls"})));
    assert!(!decided.asks("bash", &json!({"command": "rm -rf ~"})));
}

#[test]
fn i18_tiny_pieces_reach_the_limit_of_an_answer_too() {
    let mut world = made_elsewhere();
    for _ in 0..40 {
        let pieces = (0..1000).flat_map(|_| [thoughts("a"), words("b")]).collect();
        world.produce(pieces, None);
        if world.generation(G1).ended() {
            let (reason, _) = world.generation(G1).end_reason();
            return assert_eq!(reason.as_deref(), Some("answer_too_long"));
        }
    }
    panic!("80,000 parts were accepted");
}
