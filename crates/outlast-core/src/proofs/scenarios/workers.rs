//! Answers that a worker produces.

use serde_json::json;

use crate::testing::*;
use crate::{Brief, Command, Decision, Piece, Start, ToolStream, WorkerEnd};

fn done() -> Option<WorkerEnd> {
    Some(WorkerEnd::Done { reason: "stop".into() })
}

fn working() -> World {
    let mut world = World::new();
    let asked = for_a_worker(G1);
    let asked = Start { brief: Brief { model: "my-agent".into(), ..asked.brief }, ..asked };
    world.command(Command::Start(asked)).unwrap();
    world.worker = Some(1);
    world.worker_heard = world.now;
    world
}

pub(super) fn made_by_a_worker() -> World {
    let mut world = working();
    world.produce(vec![thoughts("A greeting."), words("Hel")], None);
    world.produce(vec![words("lo."), tool_call("call_1", json!({"path": "a.rs"}))], None);
    world.produce(vec![words("Goodbye."), usage(12, 3)], done());
    world.settle();
    world
}

pub(super) fn worker_lost_and_back() -> World {
    let mut world = working();
    world.produce(vec![words("Hello, ")], None);
    world.worker = None;
    world.wait(); // the worker is silent for too long
    world.claim(true);
    world.produce(vec![words("world.")], None);
    world.claim(true); // another worker takes over while the first is still running
    world.produce(vec![words(" Again.")], done());
    world.settle();
    world
}

pub(super) fn worker_begins_anew() -> World {
    let mut world = working();
    world.produce(vec![words("Hello, "), tool_call("call_1", json!({}))], None);
    world.claim(false);
    let failed = WorkerEnd::Failed { message: "out of ideas".into(), code: "my_agent_failed".into() };
    world.produce(vec![words("Hm.")], Some(failed));
    world
}

fn asked_for(id: &str, path: &str) -> Piece {
    Piece::Approval { id: id.into(), name: "read".into(), input: json!({"path": path}) }
}

pub(super) fn worker_waits_for_a_person() -> World {
    let mut world = working();
    let two = vec![words("May I?"), asked_for("call_1", "a.rs"), asked_for("call_2", "b.rs")];
    world.produce(two, None);
    world.command(decide_about("call_2", Decision::Deny)).unwrap();
    world
}

pub(super) fn worker_asks_a_person() -> World {
    let mut world = worker_waits_for_a_person();
    world.command(decide_about("call_1", Decision::Approve)).unwrap();
    let output =
        Piece::ToolOutput { id: "call_1".into(), stream: ToolStream::Stdout, text: "fn main".into() };
    let end = Piece::ToolEnd { id: "call_1".into(), result: json!("fn main() {}"), is_error: false };
    world.produce(vec![tool_call("call_1", json!({"path": "a.rs"})), output], None);
    world.produce(vec![words("It is empty."), end], done());
    world.settle();
    world
}

pub(super) fn worker_takes_back_its_question() -> World {
    let mut world = worker_waits_for_a_person();
    world.claim(false);
    world.produce(vec![words("Never mind.")], None);
    world
}

/// Another worker takes over while a question is open. The question is kept.
pub(super) fn worker_claims_while_a_person_is_asked() -> World {
    let mut world = worker_waits_for_a_person();
    world.claim(true);
    world.produce(vec![asked_for("call_1", "a.rs"), words("Still?")], None);
    world
}

/// The worker had produced nothing but its question.
pub(super) fn worker_takes_back_all_it_asked() -> World {
    let mut world = working();
    world.produce(vec![asked_for("call_1", "a.rs")], None);
    world.claim(false);
    world
}
