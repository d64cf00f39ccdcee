//! Answers that are made elsewhere.

use serde_json::json;

use crate::testing::*;
use crate::{Command, ProducedEnd, Producer, Start};

fn done() -> Option<ProducedEnd> {
    Some(ProducedEnd::Done { reason: "stop".into() })
}

fn working() -> World {
    let mut world = World::new();
    let asked = Start { producer: Some(Producer::External), model: "my-agent".into(), ..request(G1) };
    world.command(Command::Start(asked)).unwrap();
    world.worker = Some(1);
    world.producer_heard = world.now;
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
    world.wait(); // it is not heard, and that is noticed
    world.claim(true);
    world.produce(vec![words("world.")], None);
    world.claim(true); // another one takes over while the first is still there
    world.produce(vec![words(" Again.")], done());
    world.settle();
    world
}

pub(super) fn worker_begins_anew() -> World {
    let mut world = working();
    world.produce(vec![words("Hello, "), tool_call("call_1", json!({}))], None);
    world.claim(false);
    let failed = ProducedEnd::Failed { message: "out of ideas".into(), code: "my_agent_failed".into() };
    world.produce(vec![words("Hm.")], Some(failed));
    world
}
