//! The tools that a model can ask for. Each call of a built-in one becomes a program in the conversation's sandbox;
//! `elsewhere.rs` is the seam for the others.
//!
//! The file tools run in the sandbox as well: the program is our own binary, bound into it read-only. So a link in
//! the workspace can lead nowhere that the model's own commands could not go.

mod delegate;
mod elsewhere;
mod http;
mod input;
pub mod inside;
mod mcp;
mod result;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use outlast_core::{ExecutionId, ToolSpec};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use elsewhere::{Answer, Asked, ToolElsewhere, Toolbox};
pub use http::{HttpMethod, HttpTool, HttpToolSettings};
pub use mcp::{
    McpAddress, McpProgram, McpServer, McpSettings, McpStanding, PinnedServer, UnavailableTool, accept_tools,
    full_name, is_server_name, pinned_servers,
};
pub use result::{INLINE_MAX, ToolResult, collect};

use crate::sandbox::{Execution, TOOL_INSIDE};
use input::{Bash, EditFile, ListFiles, ReadFile, SearchFiles, WriteFile};

/// A built-in tool, which runs in the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    Bash,
    ReadFile,
    WriteFile,
    EditFile,
    ListFiles,
    SearchFiles,
}

/// What a call of a tool asks the sandbox to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    Run(Run),
    /// End a command that runs in the background.
    Stop(ExecutionId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub program: Vec<String>,
    pub stdin: Bytes,
    /// Absent: as long as the settings say. In the background: until it is stopped.
    pub timeout: Option<Duration>,
    /// The model gets a result as soon as the program has started.
    pub background: bool,
}

impl Tool {
    pub const ALL: [Tool; 6] =
        [Tool::Bash, Tool::ReadFile, Tool::WriteFile, Tool::EditFile, Tool::ListFiles, Tool::SearchFiles];

    pub fn named(name: &str) -> Option<Tool> {
        Tool::ALL.into_iter().find(|tool| tool.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Tool::Bash => "bash",
            Tool::ReadFile => "read_file",
            Tool::WriteFile => "write_file",
            Tool::EditFile => "edit_file",
            Tool::ListFiles => "list_files",
            Tool::SearchFiles => "search_files",
        }
    }

    /// Whether a call leaves the sandbox as it was. Such calls may run side by side.
    pub fn read_only(self) -> bool {
        match self {
            Tool::ReadFile | Tool::ListFiles | Tool::SearchFiles => true,
            Tool::Bash | Tool::WriteFile | Tool::EditFile => false,
        }
    }

    /// For the model.
    pub fn description(self) -> &'static str {
        match self {
            Tool::Bash => {
                "Run a command with bash in /workspace. Files persist between calls; variables, the working directory \
                 and processes do not. With `background` the call returns at once with an execution id, and the output \
                 grows in /run/outlast/executions/<id>/stdout and stderr; end it with `stop`."
            }
            Tool::ReadFile => {
                "Read a text file. Long files are cut: use `offset` (first line, from 1) and `limit` (number of lines)."
            }
            Tool::WriteFile => "Create or replace a file. Missing folders are created.",
            Tool::EditFile => {
                "Replace text in a file. `old` must match exactly, including whitespace, and occur once unless `all` is true."
            }
            Tool::ListFiles => {
                "List files and folders below `path` down to `depth` levels (default 2). Ignored files are left out."
            }
            Tool::SearchFiles => {
                "Search text files below `path` for a regular expression. `glob` limits the files, for example *.rs. \
                 Ignored files are left out."
            }
        }
    }

    /// What a model is told about it.
    pub fn spec(self) -> ToolSpec {
        ToolSpec {
            name: self.name().to_owned(),
            description: Some(self.description().to_owned()),
            parameters: Some(self.schema()),
            strict: None,
        }
    }

    /// The JSON schema of a call's arguments.
    pub fn schema(self) -> Value {
        let path = json!({"type": "string", "description": "absolute, or relative to /workspace"});
        let (properties, required) = match self {
            Tool::Bash => (
                json!({
                    "command": {"type": "string"},
                    "timeout": {"type": "integer", "minimum": 1, "description": "seconds"},
                    "background": {"type": "boolean"},
                    "stop": {"type": "string", "description": "the execution id of a background command to end, instead of `command`"},
                }),
                json!([]),
            ),
            Tool::ReadFile => (
                json!({
                    "path": path,
                    "offset": {"type": "integer", "minimum": 1},
                    "limit": {"type": "integer", "minimum": 1},
                }),
                json!(["path"]),
            ),
            Tool::WriteFile => {
                (json!({"path": path, "content": {"type": "string"}}), json!(["path", "content"]))
            }
            Tool::EditFile => (
                json!({
                    "path": path,
                    "old": {"type": "string"},
                    "new": {"type": "string"},
                    "all": {"type": "boolean"},
                }),
                json!(["path", "old", "new"]),
            ),
            Tool::ListFiles => (json!({"path": path, "depth": {"type": "integer", "minimum": 1}}), json!([])),
            Tool::SearchFiles => (
                json!({"pattern": {"type": "string"}, "path": path, "glob": {"type": "string"}}),
                json!(["pattern"]),
            ),
        };
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
    }

    /// What a call asks for. The error is told to the model, so that it can correct itself.
    pub fn call(self, input: &Value) -> Result<Call, String> {
        match self {
            Tool::Bash => bash(parse(input)?),
            Tool::ReadFile => self.on_files(parse::<ReadFile>(input)?),
            Tool::WriteFile => self.on_files(parse::<WriteFile>(input)?),
            Tool::EditFile => self.on_files(parse::<EditFile>(input)?),
            Tool::ListFiles => self.on_files(parse::<ListFiles>(input)?),
            Tool::SearchFiles => self.on_files(parse::<SearchFiles>(input)?),
        }
    }

    fn on_files(self, input: impl serde::Serialize) -> Result<Call, String> {
        let stdin = serde_json::to_vec(&input).map_err(|error| error.to_string())?;
        Ok(Call::Run(Run {
            program: [TOOL_INSIDE, "tool", self.name()].map(str::to_owned).into(),
            stdin: stdin.into(),
            timeout: None,
            background: false,
        }))
    }
}

/// How long a call may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// If the call does not say. A command in the background then has no limit.
    pub default: Duration,
    /// The longest that a call may ask for; a longer one is shortened to this.
    pub longest: Duration,
}

impl Run {
    /// The execution for this call, if it starts now.
    pub fn execution(&self, id: ExecutionId, now: Timestamp, timeouts: Timeouts) -> Execution {
        let default = (!self.background).then_some(timeouts.default);
        let timeout = self.timeout.map(|asked| asked.min(timeouts.longest)).or(default);
        let deadline = timeout
            .and_then(|timeout| SignedDuration::try_from(timeout).ok())
            .and_then(|timeout| now.checked_add(timeout).ok());
        Execution {
            id,
            program: self.program.clone(),
            stdin: self.stdin.clone(),
            env: BTreeMap::new(),
            deadline,
        }
    }
}

fn bash(input: Bash) -> Result<Call, String> {
    match (input.command, input.stop) {
        (Some(command), None) => Ok(Call::Run(Run {
            program: ["/bin/bash", "-c", &command].map(str::to_owned).into(),
            stdin: Bytes::new(),
            timeout: input.timeout.map(|seconds| Duration::from_secs(seconds.get())),
            background: input.background,
        })),
        (None, Some(stop)) => Ok(Call::Stop(ExecutionId::from(stop))),
        (None, None) | (Some(_), Some(_)) => Err("give either `command` or `stop`".to_owned()),
    }
}

fn parse<T: DeserializeOwned>(input: &Value) -> Result<T, String> {
    T::deserialize(input).map_err(|error| format!("invalid arguments: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_in_a_schema_are_those_that_are_read() {
        for tool in Tool::ALL {
            let schema = tool.schema();
            let properties = schema["properties"].as_object().unwrap();
            let mut input: serde_json::Map<String, Value> = properties
                .iter()
                .map(|(name, property)| {
                    let value = match property["type"].as_str().unwrap() {
                        "string" => json!("x"),
                        "integer" => json!(1),
                        "boolean" => json!(true),
                        other => panic!("{other}"),
                    };
                    (name.clone(), value)
                })
                .collect();
            input.remove("stop");
            tool.call(&input.clone().into()).unwrap();
            for name in schema["required"].as_array().unwrap() {
                let mut fewer = input.clone();
                fewer.remove(name.as_str().unwrap());
                tool.call(&fewer.into()).unwrap_err();
            }
            input.insert("unheard".to_owned(), json!(1));
            tool.call(&input.into()).unwrap_err();
        }
    }

    #[test]
    fn bash_takes_a_command_or_an_execution_to_stop() {
        assert_eq!(Tool::Bash.call(&json!({"stop": "e1"})), Ok(Call::Stop("e1".into())));
        Tool::Bash.call(&json!({})).unwrap_err();
        Tool::Bash.call(&json!({"stop": "e1", "command": "true"})).unwrap_err();
        Tool::Bash.call(&json!({"command": "true", "timeout": 0})).unwrap_err();
    }

    #[test]
    fn a_command_has_the_default_timeout_unless_it_runs_in_the_background() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let deadline = |input: Value| {
            let Ok(Call::Run(run)) = Tool::Bash.call(&input) else { panic!("{input}") };
            let timeouts = Timeouts { default: Duration::from_secs(60), longest: Duration::from_secs(3600) };
            run.execution("e1".into(), now, timeouts).deadline
        };
        let after = |seconds| Some(now + SignedDuration::from_secs(seconds));
        assert_eq!(deadline(json!({"command": "true"})), after(60));
        assert_eq!(deadline(json!({"command": "true", "timeout": 5})), after(5));
        assert_eq!(deadline(json!({"command": "true", "background": true})), None);
        assert_eq!(deadline(json!({"command": "true", "timeout": 4000})), after(3600), "no longer than that");
        assert_eq!(deadline(json!({"command": "true", "timeout": u64::MAX})), after(3600));
        assert_eq!(deadline(json!({"command": "true", "background": true, "timeout": 4000})), after(3600));
    }
}
