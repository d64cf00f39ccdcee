//! What came of a run with tools: its transcript, the output of its tools, and the files of its workspace.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use crate::api::{Api, Started};
use crate::stored::Stored;

/// How the server's messages about a resumed run begin. They are no part of what is compared.
const RESUMED: &str = "[SESSION_RESUMED]";
/// Larger files are not compared; only that they are there.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

/// What can be compared between a run that was killed and one that was not.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub status: String,
    /// Role, status and parts of every message of the generation, without ids of the server.
    pub transcript: Vec<Value>,
    /// What the log has of each call's streams, by call and stream.
    pub output: BTreeMap<(String, String), String>,
    /// The files of the workspace by path.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The files that the conversation lists.
    pub listed: Value,
    /// Executions per call: every `tool.began`.
    pub began: BTreeMap<String, u64>,
    /// What came of its sub-agents, by the call that each worked for.
    pub children: BTreeMap<String, Outcome>,
}

impl Outcome {
    /// Reads a run that has ended. `data` is the server's data folder.
    pub async fn read(api: &Api, started: &Started, data: &Path) -> anyhow::Result<Outcome> {
        let document = api.generation(&started.generation).await?;
        let stored = Stored::read(api, &started.conversation).await?;
        let events: Vec<Value> = stored
            .events_of(&started.generation)
            .iter()
            .map(|frame| frame.event())
            .collect::<Result<_, _>>()?;
        let sandbox = stored.view["conversation"]["sandboxId"].as_str().map(str::to_owned);
        let files = match sandbox {
            Some(sandbox) => files_below(&data.join("sandboxes").join(sandbox).join("workspace"))?,
            None => BTreeMap::new(),
        };
        Ok(Outcome {
            status: document["status"].as_str().unwrap_or_default().to_owned(),
            transcript: transcript(&stored.view, &started.generation),
            output: output(&events)?,
            files,
            listed: stored.view["conversation"]["files"].clone(),
            began: began(&events),
            children: children(api, &events, data).await?,
        })
    }

    /// The run and its sub-agents.
    pub fn family(&self) -> impl Iterator<Item = &Outcome> {
        std::iter::once(self).chain(self.children.values())
    }

    /// The result of a call.
    pub fn result(&self, call: &str) -> anyhow::Result<&str> {
        let parts =
            self.transcript.iter().flat_map(|message| message["parts"].as_array().into_iter().flatten());
        let mut results = parts.filter(|part| part["toolUseId"] == call);
        results
            .next()
            .and_then(|part| part["content"].as_str())
            .with_context(|| format!("no result of {call}"))
    }

    /// A stream of a call, as the log has it.
    pub fn stream(&self, call: &str, stream: &str) -> &str {
        self.output.get(&(call.to_owned(), stream.to_owned())).map_or("", String::as_str)
    }

    /// The last thing that the assistant said.
    pub fn last_text(&self) -> &str {
        let mut assistant = self.transcript.iter().rev().filter(|message| message["role"] == "assistant");
        assistant.next().and_then(|message| message["content"].as_str()).unwrap_or_default()
    }

    pub fn file(&self, path: &str) -> String {
        String::from_utf8_lossy(self.files.get(path).map_or(&[], Vec::as_slice)).into_owned()
    }
}

fn transcript(view: &Value, generation: &str) -> Vec<Value> {
    let messages = view["messages"].as_array().into_iter().flatten();
    messages
        .filter(|message| message["generationId"] == generation)
        .filter(|message| !message["content"].as_str().is_some_and(|text| text.starts_with(RESUMED)))
        .map(|message| {
            let field = |name: &str| message[name].clone();
            let parts: Vec<Value> = message["parts"].as_array().into_iter().flatten().map(comparable).collect();
            json!({"role": field("role"), "status": field("status"), "content": field("content"), "parts": parts})
        })
        .collect()
}

/// A part without what differs from run to run, such as how long a tool took.
fn comparable(part: &Value) -> Value {
    const FIELDS: [&str; 9] =
        ["type", "text", "id", "name", "input", "toolUseId", "content", "isError", "exitCode"];
    let mut kept = part.clone();
    if let Value::Object(fields) = &mut kept {
        fields.retain(|name, _| FIELDS.contains(&name.as_str()));
        for name in ["id", "toolUseId"] {
            if let Some(Value::String(id)) = fields.get_mut(name) {
                *id = given(id);
            }
        }
    }
    kept
}

/// The id that the scripted model gave a call. If the answer with it was retracted, the server numbers the call when the
/// model repeats it: `call_4_0-2`.
fn given(id: &str) -> String {
    id.split('-').next().unwrap_or_default().to_owned()
}

/// The output of each stream. It must be recorded in order, without a gap and without a repeat.
fn output(events: &[Value]) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let mut output: BTreeMap<(String, String), String> = BTreeMap::new();
    let mut offsets: BTreeMap<(String, String), u64> = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "tool.output") {
        let payload = &event["payload"];
        let word = |name: &str| payload[name].as_str().unwrap_or_default().to_owned();
        let stream = (given(&word("toolUseId")), word("stream"));
        let text = word("text");
        let expected = offsets.entry(stream.clone()).or_default();
        ensure!(
            payload["offset"] == *expected,
            "output at {} instead of {expected}: {event}",
            payload["offset"]
        );
        *expected += payload["bytes"].as_u64().unwrap_or(text.len() as u64);
        output.entry(stream).or_default().push_str(&text);
    }
    Ok(output)
}

/// A sub-agent with sub-agents of its own is not read any deeper.
async fn children(api: &Api, events: &[Value], data: &Path) -> anyhow::Result<BTreeMap<String, Outcome>> {
    let mut children = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "delegation.changed") {
        let payload = &event["payload"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (generation, conversation) =
            (word(&payload["state"]["generationId"]), word(&payload["conversationId"]));
        let started = Started { generation, conversation, message: String::new() };
        if let Entry::Vacant(unread) = children.entry(given(&word(&payload["toolUseId"]))) {
            unread.insert(Box::pin(Outcome::read(api, &started, data)).await?);
        }
    }
    Ok(children)
}

fn began(events: &[Value]) -> BTreeMap<String, u64> {
    let mut began = BTreeMap::new();
    for event in events.iter().filter(|event| event["type"] == "tool.began") {
        let call = event["payload"]["toolUseId"].as_str().unwrap_or_default();
        *began.entry(given(call)).or_default() += 1;
    }
    began
}

/// All files below a folder by path; a link counts as a file with its target. What is removed meanwhile is missing.
fn files_below(folder: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in there(fs::read_dir(&next))?.into_iter().flatten() {
            let path = entry?.path();
            let Some(metadata) = there(fs::symlink_metadata(&path))? else { continue };
            let name = path.strip_prefix(folder).map_err(io::Error::other)?.to_string_lossy().into_owned();
            let content = match metadata.file_type() {
                kind if kind.is_dir() => {
                    open.push(path);
                    continue;
                }
                kind if kind.is_symlink() => {
                    there(fs::read_link(&path))?.map(|to| to.into_os_string().into_encoded_bytes())
                }
                kind if kind.is_file() && metadata.len() < BYTES_MAX => there(fs::read(&path))?,
                _ => Some(Vec::new()),
            };
            files.extend(content.map(|content| (name, content)));
        }
    }
    Ok(files)
}

fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}
