//! Agents: tools that the server runs in a sandbox.

use serde_json::json;

use crate::testing::*;
use crate::{Change, Command, Decision, FailureClass, Piece, Recovery, RetryMode, WhenBusy};

pub(super) fn finish(world: &mut World) {
    world.model(vec![words("All done.")], None);
    world.model(vec![usage(30, 5)], Some(finished()));
    world.settle();
}

pub(super) fn two_rounds() -> World {
    let mut world = agent();
    let signed = Piece::Signature { signature: "c2lnbmVk".into() };
    world.model(vec![thoughts("Two files."), signed, words("Let me look.")], None);
    let calls = vec![call("c1", "read", "a.rs"), call("c2", "read", "b.rs"), call("c3", "write", "c.rs")];
    world.model(calls, None);
    world.model(vec![usage(20, 9)], Some(wants_tools()));
    world.settle();
    world.ask_for(&[("c1", "write", "a.rs")]);
    finish(&mut world);
    world
}

/// A tool elsewhere answers, another one was asked when the server died.
pub(super) fn tools_elsewhere() -> World {
    let mut world = agent_with_tools_elsewhere(Recovery::Auto);
    world.ask_for(&[("c1", "fetch", "a"), ("c2", "put", "b")]);
    world.outside.held = true;
    world.ask_for(&[("c3", "send", "c")]);
    world.crash();
    world.outside.held = false;
    world.settle();
    finish(&mut world);
    world
}

pub(super) fn tool_running() -> World {
    let mut world = agent();
    world.outside.held = true;
    world.ask_for(&[("c1", "read", "a.rs"), ("c2", "read", "b.rs"), ("c3", "rm", "c.rs")]);
    world
}

/// The sandbox is lost, and its checkpoint has not all of the files.
pub(super) fn checkpoint_left_out() -> World {
    let mut world = agent();
    world.outside.left_out = Some("1 links that leave the workspace (such as venv/bin/python)".to_owned());
    world.ask_for(&[("c1", "write", "a.rs")]);
    world.outside.sandboxes.clear();
    world.ask_for(&[("c2", "write", "b.rs")]);
    finish(&mut world);
    world
}

pub(super) fn approval_paused() -> World {
    let mut world = agent();
    world.ask_for(&[("c1", "write", "a.rs"), ("c2", "rm", "b.rs"), ("c3", "rm", "c.rs")]);
    world.wait_until_due();
    world
}

pub(super) fn approval_woken() -> World {
    let mut world = approval_paused();
    world.command(resume(G1)).unwrap();
    world.settle();
    world
}

pub(super) fn approval_paused_killed_restored() -> World {
    let mut world = approval_paused();
    world.wait_until_due();
    world.command(decide_about("c2", Decision::Approve)).unwrap();
    world.settle();
    world.command(decide_about("c3", Decision::Deny)).unwrap();
    world.settle();
    finish(&mut world);
    world
}

pub(super) fn always_allowed() -> World {
    let mut world = agent();
    world.ask_for(&[("c1", "rm", "a.rs"), ("c2", "rm", "b.rs"), ("c3", "format", "c.rs")]);
    world.command(always("c1", Decision::Approve)).unwrap();
    world.settle();
    world.ask_for(&[("c4", "rm", "d.rs")]);
    finish(&mut world);
    world
}

pub(super) fn tool_cancelled() -> World {
    let mut world = agent();
    world.outside.held = true;
    world.ask_for(&[("c1", "write", "a.rs"), ("c2", "write", "b.rs")]);
    world.command(cancel(G1)).unwrap();
    world.settle();
    world
}

pub(super) fn tool_superseded() -> World {
    let mut world = agent();
    world.outside.held = true;
    world.ask_for(&[("c1", "write", "a.rs")]);
    let asked = crate::Start { when_busy: WhenBusy::Interrupt, ..agent_request(G2) };
    world.command(Command::Start(asked)).unwrap();
    world.outside.held = false;
    world.ask_for(&[("c1", "write", "b.rs")]);
    finish(&mut world);
    world
}

pub(super) fn tool_lost_and_resumed() -> World {
    let mut world = agent();
    world.outside.held = true;
    world.ask_for(&[("c1", "write", "a.rs"), ("c2", "write", "b.rs")]);
    let lost = world.generation(G1).progress.rounds.executions[0].id.clone();
    world.outside.forgotten.insert(lost);
    world.outside.held = false;
    world.settle();
    world.command(resume(G1)).unwrap();
    world.settle();
    finish(&mut world);
    world
}

pub(super) fn sandbox_lost_and_restored() -> World {
    let mut world = agent();
    world.ask_for(&[("c1", "write", "a.rs")]);
    world.outside.sandboxes.clear();
    world.ask_for(&[("c2", "write", "b.rs")]);
    finish(&mut world);
    world
}

pub(super) fn sandbox_unavailable_and_retried() -> World {
    let mut world = agent();
    world.outside.no_sandboxes = true;
    world.ask_for(&[("c1", "write", "a.rs")]);
    world.outside.no_sandboxes = false;
    world.command(retry(G1, RetryMode::Retry, G2)).unwrap();
    world.ask_for(&[("c1", "write", "a.rs")]);
    finish(&mut world);
    world
}

pub(super) fn checkpoint_failed() -> World {
    let mut world = agent();
    world.outside.no_checkpoints = true;
    world.ask_for(&[("c1", "write", "a.rs")]);
    finish(&mut world);
    world.outside.no_checkpoints = false;
    world.wait_until_due();
    world.wait_until_due();
    world
}

pub(super) fn agent_interrupted_and_resumed() -> World {
    let mut world = agent();
    world.rules.recovery = Recovery::Ask;
    world.ask_for(&[("c1", "write", "a.rs")]);
    world.model(vec![words("The file is wr")], None);
    world.crash();
    world.settle();
    world.command(resume(G1)).unwrap();
    world.settle();
    finish(&mut world);
    world
}

pub(super) fn agent_failed_and_continued() -> World {
    let mut world = agent();
    world.ask_for(&[("c1", "write", "a.rs")]);
    world.model(vec![words("The file is wr")], None);
    world.model(vec![], Some(broke(FailureClass::Invalid)));
    world.command(retry(G1, RetryMode::Continue, G2)).unwrap();
    world.ask_for(&[("c1", "read", "a.rs")]);
    finish(&mut world);
    world
}

pub(super) fn agent_round_retried() -> World {
    let mut world = agent();
    world.ask_for(&[("c1", "read", "a.rs")]);
    world.model(vec![words("Now I wr"), call("c2", "write", "b.rs")], None);
    world.model(vec![], Some(broke(FailureClass::Transient)));
    world.wait();
    let odd = Piece::ToolCall { id: "c2".into(), name: "write".into(), input: json!("not an object") };
    world.model(vec![odd], Some(wants_tools()));
    world.settle();
    finish(&mut world);
    world
}

/// A person puts a file there before the first message, changes it while the agent asks, and takes it away at the end.
pub(super) fn files_of_a_person() -> World {
    let mut world = World::new().with(agent_rules());
    world.command(rename("Files")).unwrap();
    world.change_file("notes.md", Change::Added);
    world.command(Command::Start(agent_request("gen_1"))).unwrap();
    world.ask_for(&[("c1", "read", "notes.md")]);
    world.ask_for(&[("c2", "rm", "a.rs")]);
    world.change_file("notes.md", Change::Modified);
    world.command(decide_about("c2", Decision::Approve)).unwrap();
    world.settle();
    finish(&mut world);
    world.change_file("notes.md", Change::Deleted);
    world
}

pub(super) fn used_up() -> World {
    let mut world = agent();
    world.rules.max_rounds = 1;
    world.ask_for(&[("c1", "write", "a.rs")]);
    world
}
