//! Runs with tools on the real process: what the model does, and what must come of it.

pub mod costs;
pub mod deaths;
pub mod outcome;
pub mod parked;
pub mod takeover;

use std::fmt;

use serde_json::{Value, json};

use crate::api::{Api, Started};
use crate::server::Options;
use crate::upstream::Upstream;

/// Settings for a server whose tools run without asking.
pub const ALLOWED: &str = "[tools.bash]\npolicy = \"allow\"";

/// What a model says and asks for, round by round. It is sent as the user's message, and the upstream plays it.
#[derive(Clone, Debug)]
pub struct Agent {
    seed: u64,
    rounds: Vec<Value>,
}

impl Agent {
    pub fn new(upstream: &Upstream) -> Agent {
        Agent { seed: upstream.script(0).seed(), rounds: Vec::new() }
    }

    /// A round that says something and asks for these calls (tool, arguments).
    pub fn asks(self, text: &str, calls: &[(&str, Value)]) -> Agent {
        let call = |(name, input): &(&str, Value)| json!({"name": name, "input": input});
        let calls: Vec<Value> = calls.iter().map(call).collect();
        self.round(json!({"text": text, "calls": calls}))
    }

    /// A round with one command.
    pub fn runs(self, command: &str) -> Agent {
        self.asks("", &[("bash", json!({"command": command}))])
    }

    /// The last round.
    pub fn says(self, text: &str) -> Agent {
        self.round(json!({"text": text}))
    }

    /// A round in the upstream's notation.
    pub fn round(mut self, round: Value) -> Agent {
        self.rounds.push(round);
        self
    }

    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    /// The seed under which the upstream counts calls for a round, from 0.
    pub fn seed_of(&self, round: u64) -> u64 {
        self.seed + (round << 32)
    }

    pub async fn start(&self, api: &Api) -> anyhow::Result<Started> {
        api.post("/v1/generations", &json!({"content": self.to_string()})).await?.started()
    }

    pub async fn start_in(&self, api: &Api, conversation: &str) -> anyhow::Result<Started> {
        let body = json!({"content": self.to_string(), "conversationId": conversation});
        api.post("/v1/generations", &body).await?.started()
    }
}

impl fmt::Display for Agent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "agent={}", json!({"seed": self.seed, "rounds": self.rounds, "keep": true}))
    }
}

/// Options for a server whose tools run without asking.
pub fn allowed(upstream: &Upstream) -> Options {
    Options::with(upstream).toml(ALLOWED)
}

/// Lines that a tool of [`project`] prints slowly enough to be killed meanwhile.
pub const SLOW_LINES: u32 = 12;

/// An agent that writes a small project, runs its tests, finds the bug and fixes it. Every command adds a line to
/// `runs`, so that a command that ran twice can be seen.
pub fn project(upstream: &Upstream) -> Agent {
    let sum = "echo $(($1 - $2))\n";
    let test = "test \"$(sh sum.sh 2 3)\" = 5 && echo passed || { echo failed; exit 1; }\n";
    let slowly = format!(
        "echo b >> runs; for i in $(seq {SLOW_LINES}); do echo \"line $i äöü\"; echo \"oops $i\" >&2; sleep 0.02; done; sh test.sh"
    );
    Agent::new(upstream)
        .asks(
            "I write the project first.",
            &[
                ("write_file", json!({"path": "sum.sh", "content": sum})),
                ("write_file", json!({"path": "test.sh", "content": test})),
            ],
        )
        .asks("Now the tests.", &[("bash", json!({"command": "echo a >> runs; sh test.sh"}))])
        .asks(
            "They fail. I look at it.",
            &[("read_file", json!({"path": "sum.sh"})), ("list_files", json!({}))],
        )
        .asks("A wrong sign.", &[("edit_file", json!({"path": "sum.sh", "old": "-", "new": "+"}))])
        .asks("Again.", &[("bash", json!({"command": slowly}))])
        .says("All tests pass.\n\n<files_summary>\n- sum.sh: Adds two numbers\n</files_summary>")
}

/// An agent that gives the same kind of work to two sub-agents. Each plans, runs a command that adds a line to `runs`, and
/// edits a file.
pub fn family(upstream: &Upstream) -> Agent {
    let child = |name: &str| {
        let command = format!("echo {name} >> runs; echo old > note.txt; echo counted {name}");
        Agent::new(upstream)
            .asks(
                "I plan first.",
                &[
                    ("update_plan", json!({"plan": ["count", "note"], "openTasks": [name]})),
                    ("bash", json!({"command": command})),
                ],
            )
            .asks("Now the note.", &[("edit_file", json!({"path": "note.txt", "old": "old", "new": name}))])
            .says(&format!("Sub-agent {name} is done."))
    };
    let task = |name: &str| ("delegate", json!({"task": child(name).to_string()}));
    Agent::new(upstream).asks("Two sub-agents do it.", &[task("one"), task("two")]).says("Both are done.")
}
