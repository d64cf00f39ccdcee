//! Generations with tools that the server runs.

use serde_json::json;

use super::{G1, World, request};
use crate::{
    Brief, CallEnd, Change, Command, Decide, Decided, Decision, FileChange, Piece, Place, Policy, Recovery,
    Report, Rules, Start, ToolRule, ToolRules, may_change_files, sandbox_for_files,
};

/// `read` changes nothing, `write` does, `rm` needs a person, and `format` is forbidden.
pub(crate) fn tools() -> ToolRules {
    let rule = |read_only, policy| ToolRule { read_only, policy, ..rule_of(Place::Sandbox) };
    let list = [
        ("read", rule(true, Policy::Allow)),
        ("peek", rule(true, Policy::Ask)),
        ("write", rule(false, Policy::Allow)),
        ("rm", rule(false, Policy::Ask)),
        ("format", rule(false, Policy::Deny)),
    ];
    list.into_iter().map(|(name, rule)| (name.to_owned(), rule)).collect()
}

/// `fetch` changes nothing, `put` is idempotent, and `send` is neither. None of them needs a sandbox.
pub(crate) fn tools_elsewhere() -> ToolRules {
    let rule = |read_only, idempotent| ToolRule { read_only, idempotent, ..rule_of(Place::Elsewhere) };
    let list = [("fetch", rule(true, false)), ("put", rule(false, true)), ("send", rule(false, false))];
    list.into_iter().map(|(name, rule)| (name.to_owned(), rule)).collect()
}

/// `delegate` and `update_plan`.
pub(crate) fn tools_for_sub_agents() -> ToolRules {
    let log = ToolRule { read_only: true, ..rule_of(Place::Log) };
    [("delegate", rule_of(Place::Child)), ("update_plan", log)]
        .map(|(name, rule)| (name.to_owned(), rule))
        .into()
}

fn rule_of(place: Place) -> ToolRule {
    let (rules, shell_argument) = (Vec::new(), None);
    ToolRule { place, read_only: false, idempotent: false, policy: Policy::Allow, rules, shell_argument }
}

/// An agent with tools elsewhere beside those in its sandbox.
pub(crate) fn agent_with_tools_elsewhere(recovery: Recovery) -> World {
    let tools: ToolRules = tools().into_iter().chain(tools_elsewhere()).collect();
    let asked = request(G1);
    let brief = Brief { tools: tools.keys().cloned().collect(), ..asked.brief };
    let mut world = World::new().with(Rules { tools, recovery, ..Rules::default() });
    world.command(Command::Start(Start { brief, ..asked })).unwrap();
    world
}

pub(crate) fn agent_rules() -> Rules {
    Rules { tools: tools(), ..Rules::default() }
}

/// The request that begins an agent.
pub(crate) fn agent_request(generation: &str) -> Start {
    let asked = request(generation);
    Start { brief: Brief { tools: tools().into_keys().collect(), ..asked.brief }, ..asked }
}

/// An agent that has just been asked something.
pub(crate) fn agent() -> World {
    let mut world = World::new().with(agent_rules());
    world.command(Command::Start(agent_request(G1))).unwrap();
    world
}

/// A person's change of a file.
pub(crate) fn change(path: &str, change: Change) -> FileChange {
    let size = (change != Change::Deleted).then_some(10);
    FileChange { path: path.into(), change, size, by: "ann".into() }
}

/// A call of a tool on a file.
pub(crate) fn call(id: &str, name: &str, path: &str) -> Piece {
    Piece::ToolCall { id: id.into(), name: name.into(), input: json!({"path": path}) }
}

pub(crate) fn wants_tools() -> CallEnd {
    CallEnd::Finished { reason: "tool_calls".into() }
}

pub(crate) fn always(tool_use_id: &str, decision: Decision) -> Command {
    let decided = Decided { decision, by: "ann".into(), reason: None, always: true, pattern: None };
    let (generation, tool_use_id) = (G1.into(), tool_use_id.into());
    Command::Decide(Decide { generation, tool_use_id, hash: None, decided })
}

impl World {
    /// An agent whose answer asks for these calls; its tools do not get on.
    pub(crate) fn asking_for(calls: &[(&str, &str, &str)]) -> World {
        let mut world = agent();
        world.outside.held = true;
        world.ask_for(calls);
        world
    }

    /// The model asks for these calls and is done.
    pub(crate) fn ask_for(&mut self, calls: &[(&str, &str, &str)]) {
        let calls = calls.iter().map(|(id, name, path)| call(id, name, path)).collect();
        self.model(calls, Some(wants_tools()));
        self.settle();
    }

    /// A person changes a file, as the owner does it: it gets the sandbox running first.
    pub(crate) fn change_file(&mut self, path: &str, what: Change) {
        let file = change(path, what);
        may_change_files(&self.transcript.state, file.size, &self.rules).unwrap();
        while let Some((sandbox, how)) = sandbox_for_files(&self.transcript.state, &self.rules) {
            let ready = self.outside.ensure(&sandbox, &how);
            assert_ne!(self.report(ready), 0);
        }
        assert_ne!(self.report(Report::FileChanged(file)), 0);
        self.settle();
    }

    /// The calls that are running, by id.
    pub(crate) fn running(&self) -> Vec<&str> {
        let active = self.transcript.state.active().into_iter();
        active
            .flat_map(|active| &active.progress.rounds.executions)
            .map(|run| run.tool_use_id.as_str())
            .collect()
    }

    /// The names of the events from this place on.
    pub(crate) fn kinds_after(&self, place: usize) -> Vec<&'static str> {
        self.log[place..].iter().map(|entry| entry.event.kind()).collect()
    }

    /// How a call ended: its exit code, what else is known, and how long it ran.
    pub(crate) fn ending_of(&self, call: &str) -> (Option<i32>, Option<crate::Outcome>, Option<u64>) {
        let parts = self.transcript.messages.iter().flat_map(|message| &message.parts);
        let ending = |part: &crate::Part| match part {
            crate::Part::ToolResult { tool_use_id, exit_code, outcome, duration_ms, .. }
                if tool_use_id == call =>
            {
                Some((*exit_code, *outcome, *duration_ms))
            }
            _ => None,
        };
        parts.into_iter().find_map(ending).expect("the call has ended")
    }

    /// The result of a call, as the model reads it.
    pub(crate) fn result_of(&self, call: &str) -> Option<String> {
        let parts = self.transcript.messages.iter().flat_map(|message| &message.parts);
        parts.into_iter().find_map(|part| match part {
            crate::Part::ToolResult { tool_use_id, content, .. } if tool_use_id == call => {
                Some(content.as_str().unwrap_or_default().to_owned())
            }
            _ => None,
        })
    }
}
