use super::*;
use crate::testing::*;
use crate::{Command, Decision, Effect, Report, SandboxState};

const SMALL: Option<u64> = Some(10);

fn may(world: &World, adds: Option<u64>) -> Result<(), Refusal> {
    may_change_files(&world.transcript.state, adds, &world.rules)
}

fn finished_run() -> World {
    let mut world = agent();
    world.ask_for(&[("w1", "write", "a")]);
    world.model(vec![words("Done.")], Some(finished()));
    world.settle();
    world
}

#[test]
fn x9_a_file_that_a_person_puts_is_saved_at_once_even_before_the_first_message() {
    let mut world = World::new().with(agent_rules());
    world.command(rename("Files")).unwrap();
    let place = world.log.len();
    world.change_file("notes.md", Change::Added);
    assert_eq!(world.kinds_after(place), ["sandbox.changed", "file.changed", "checkpoint.taken"]);
    assert!(world.next().is_nothing());
    assert_eq!(world.transcript.state.sandbox.as_ref().unwrap().reason, "needed for a file");
}

#[test]
fn x9_a_file_is_put_into_a_sandbox_that_sleeps_or_is_gone() {
    for waits in [1, 2] {
        let mut world = finished_run();
        for _ in 0..waits {
            world.wait_until_due();
        }
        let place = world.log.len();
        world.change_file("notes.md", Change::Added);
        assert_eq!(world.kinds_after(place), ["sandbox.changed", "file.changed", "checkpoint.taken"]);
        let expected = if waits == 1 { SandboxState::Resumed } else { SandboxState::Restored };
        assert_eq!(world.transcript.state.sandbox.as_ref().unwrap().state, expected);
    }
}

#[test]
fn x9_files_are_left_alone_while_a_tool_runs_or_is_about_to() {
    let mut world = World::asking_for(&[("w1", "write", "a"), ("d1", "rm", "b")]);
    assert_eq!(may(&world, SMALL), Err(Refusal::ToolRunning));
    assert_eq!(may(&world, None), Err(Refusal::ToolRunning));
    world.outside.held = false;
    world.settle();
    assert_eq!(may(&world, SMALL), Ok(()), "it waits for a person, and nothing runs");
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    assert_eq!(may(&world, SMALL), Err(Refusal::ToolRunning), "the tool is about to run");
    world.settle();
    assert_eq!(may(&world, SMALL), Ok(()), "the model answers");
}

#[test]
fn x9_files_are_left_alone_until_a_cancelled_tool_is_dead() {
    let mut world = World::asking_for(&[("w1", "write", "a")]);
    world.command(cancel(G1)).unwrap();
    assert_eq!(may(&world, SMALL), Err(Refusal::ToolRunning));
    world.settle();
    assert_eq!(may(&world, SMALL), Ok(()));
}

#[test]
fn x9_a_file_put_while_a_person_is_asked_is_saved_before_the_tool_runs_or_with_it() {
    let mut world = agent();
    world.ask_for(&[("d1", "rm", "a")]);
    let place = world.log.len();
    world.change_file("a", Change::Modified);
    assert_eq!(world.kinds_after(place), ["file.changed", "checkpoint.taken"]);
    // This time the decision comes first. The tool may change files too, so they are saved when it has ended.
    world.report(Report::FileChanged(change("a", Change::Modified)));
    world.outside.held = true;
    world.command(decide_about("d1", Decision::Approve)).unwrap();
    world.settle();
    assert_eq!(world.running(), ["d1"]);
    assert!(world.next().effects.iter().all(|effect| !matches!(effect, Effect::TakeCheckpoint { .. })));
    world.outside.held = false;
    world.settle();
    assert!(world.transcript.state.sandbox.as_ref().unwrap().dirty.is_none());
}

#[test]
fn x9_a_crash_after_a_change_saves_the_file_later() {
    let mut world = finished_run();
    world.report(Report::FileChanged(change("a", Change::Deleted)));
    world.crash();
    assert_eq!(crate::due(&world.transcript.state, &world.rules), Some(crate::Timestamp::default()));
    world.settle();
    assert!(world.transcript.state.sandbox.as_ref().unwrap().dirty.is_none());
}

#[test]
fn i18_people_cannot_put_more_than_the_workspace_may_hold() {
    let mut world = finished_run(); // its checkpoint has 120 bytes
    world.rules.workspace_bytes = 125;
    assert_eq!(may(&world, Some(5)), Ok(()));
    assert_eq!(may(&world, Some(6)), Err(Refusal::WorkspaceFull { limit: 125 }));
    assert_eq!(may(&world, Some(u64::MAX)), Err(Refusal::WorkspaceFull { limit: 125 }));
    assert_eq!(may(&world, None), Ok(()), "what is full can be emptied");
}

#[test]
fn i18_people_put_nothing_where_files_cannot_be_saved() {
    let mut world = finished_run();
    world.outside.no_checkpoints = true;
    world.change_file("a", Change::Added);
    assert_eq!(may(&world, SMALL), Err(Refusal::FilesNotSaved));
    assert_eq!(may(&world, None), Ok(()));
    world.outside.no_checkpoints = false;
    world.change_file("a", Change::Deleted);
    assert_eq!(may(&world, SMALL), Ok(()), "the checkpoint is tried again");
}

#[test]
fn a_change_in_a_sandbox_that_is_gone_is_stale() {
    let mut world = finished_run();
    let sandbox = world.transcript.state.sandbox.as_ref().unwrap().id.clone();
    world.report(Report::SandboxGone { sandbox, not_started: Vec::new() });
    assert_eq!(world.report(Report::FileChanged(change("a", Change::Added))), 0);
}

#[test]
fn s2_the_next_generation_reuses_the_sandbox_of_a_persons_file() {
    let mut world = World::new().with(agent_rules());
    world.command(rename("Files")).unwrap();
    world.change_file("notes.md", Change::Added);
    let id = world.stored.conversation.sandbox_id.clone();
    world.command(Command::Start(agent_request(G1))).unwrap();
    world.ask_for(&[("r1", "read", "notes.md")]);
    assert_eq!(world.stored.conversation.sandbox_id, id);
}
