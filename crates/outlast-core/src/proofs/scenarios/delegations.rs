//! A parent and a child, each with its own log.

use serde_json::json;

use super::agents::finish;
use crate::testing::*;
use crate::{
    Brief, ChildEnd, ChildNews, ChildQuestion, Command, Delegation, GenerationStatus, Memory, Parent, Piece,
    Report, Rules, Seq, Start, ToolRules,
};

fn started(parent: Option<Parent>) -> World {
    let tools: ToolRules = tools().into_iter().chain(tools_for_sub_agents()).collect();
    let asked = request(G1);
    let parent = parent.map(Box::new);
    let brief = Brief { tools: tools.keys().cloned().collect(), parent, ..asked.brief };
    let mut world = World::new().with(Rules { tools, max_depth: 1, ..Rules::default() });
    world.command(Command::Start(Start { brief, ..asked })).unwrap();
    world
}

/// A child starts, plans, asks a person, and ends.
pub(super) fn parent() -> World {
    let mut world = started(None);
    let task =
        Piece::ToolCall { id: "c1".into(), name: "delegate".into(), input: json!({"task": "tidy up"}) };
    world.model(vec![words("Somebody else does it."), task], Some(wants_tools()));
    world.settle();
    let execution = world.generation(G1).progress.rounds.executions[0].id.clone();
    let plan = Memory {
        plan: vec!["look".into(), "tidy".into()],
        open_tasks: vec!["tidy".into()],
        ..Memory::default()
    };
    let question = ChildQuestion {
        id: "ask_1".into(),
        conversation_id: "conv_child".into(),
        generation_id: G2.into(),
        tool_use_id: "r1".into(),
        tool_name: "rm".into(),
        tool_input: json!({"path": "old.rs"}),
        hash: "of the question".into(),
    };
    let steps = [
        (GenerationStatus::Running, Memory::default(), vec![], None),
        (GenerationStatus::Running, plan.clone(), vec![], None),
        (GenerationStatus::AwaitingApproval, plan.clone(), vec![question], None),
        (GenerationStatus::Running, plan.clone(), vec![], None),
        (
            GenerationStatus::Completed,
            plan,
            vec![],
            Some(ChildEnd { result: "Tidy.".into(), is_error: false }),
        ),
    ];
    for (seq, (status, memory, approvals, end)) in (4..).map(Seq).zip(steps) {
        let state = Delegation { generation_id: G2.into(), seq, status, memory, approvals };
        let (execution, conversation) = (execution.clone(), "conv_child".into());
        world.command(Command::ChildChanged(ChildNews { execution, conversation, state, end })).unwrap();
    }
    world.settle();
    finish(&mut world);
    world
}

/// The same from the child's side.
pub(super) fn child() -> World {
    let parent = Parent {
        conversation_id: "conv_parent".into(),
        generation_id: G2.into(),
        tool_use_id: "c1".into(),
        execution_id: "exec_1".into(),
        depth: 1,
    };
    let mut world = started(Some(parent));
    world.report(Report::ParentTold { seq: world.transcript.state.seq });
    let plan =
        Piece::ToolCall { id: "p1".into(), name: "update_plan".into(), input: json!({"plan": ["look"]}) };
    world.model(vec![plan], Some(wants_tools()));
    world.settle();
    world.report(Report::ParentTold { seq: world.transcript.state.seq });
    finish(&mut world);
    world.report(Report::ParentTold { seq: world.transcript.state.seq });
    world
}
