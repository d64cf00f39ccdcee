//! Generations with tools that the server runs.

use serde_json::json;

use super::{G1, World, request};
use crate::{
    Brief, CallEnd, Command, Decide, Decided, Decision, Piece, Policy, Rules, Start, ToolRule, ToolRules,
};

/// `read` changes nothing, `write` does, `rm` needs a person, and `format` is forbidden.
pub(crate) fn tools() -> ToolRules {
    let rule = |read_only, policy| ToolRule { read_only, policy, rules: Vec::new(), shell_argument: None };
    let list = [
        ("read", rule(true, Policy::Allow)),
        ("peek", rule(true, Policy::Ask)),
        ("write", rule(false, Policy::Allow)),
        ("rm", rule(false, Policy::Ask)),
        ("format", rule(false, Policy::Deny)),
    ];
    list.into_iter().map(|(name, rule)| (name.to_owned(), rule)).collect()
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
