//! The workspace of a conversation: its files, their content, what changed, and the output of tools.

mod changes;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use axum::body::Bytes;
use outlast_core::{Policy, ToolRule};
use outlast_engine::checkpoints::Checkpoints;
use outlast_engine::sandbox::{Act, Acts, Execution, MemorySandboxes, Outcome, Output};
use outlast_engine::tools::Tool;
use outlast_engine::{ScriptedModel, Step, Workshop};
use tempfile::TempDir;

use super::*;

/// More than events carry.
const PRINTED: usize = 300 * 1024;

/// Names that are not UTF-8, and one that looks like them, in the order of their bytes.
const ODD_NAMES: [&[u8]; 4] = [br"b\xff", b"b\xfe", b"b\xff", b"caf\xe9"];
const ODD_NAMES_SHOWN: [&str; 4] = [r"b\\xff", r"b\xfe", r"b\xff", r"caf\xe9"];

struct Project {
    server: Server,
    conversation: String,
    generations: Vec<String>,
    sandboxes: Arc<MemorySandboxes>,
    folder: TempDir,
}

/// A sandbox whose `make` writes two files and prints a lot, and whose `change` changes, adds and removes one.
fn act(folder: &Path, execution: &Execution) -> Acts {
    let says = |word: &str| execution.program.iter().any(|part| part.contains(word));
    let folders = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for workspace in folders.filter(|path: &PathBuf| path.is_dir()) {
        if says("make") {
            fs::create_dir_all(workspace.join("src")).unwrap();
            fs::write(workspace.join("src/main.rs"), "fn main() {}\n").unwrap();
            fs::write(workspace.join("old.txt"), "old\n").unwrap();
        }
        if says("change") {
            fs::write(workspace.join("src/main.rs"), "fn main() { run() }\n").unwrap();
            fs::write(workspace.join("a \"b\" <c>.html"), "<script>alert(1)</script>").unwrap();
            fs::remove_file(workspace.join("old.txt")).unwrap();
        }
        if says("odd names") {
            for name in ODD_NAMES {
                fs::write(workspace.join(OsStr::from_bytes(name)), name).unwrap();
            }
        }
    }
    let printed = if says("make") { "x".repeat(PRINTED) } else { String::new() };
    if says("wait") {
        return Vec::new();
    }
    let now = Duration::ZERO;
    vec![
        (now, Act::Write(Output::Stdout, Bytes::from(printed))),
        (now, Act::End(Outcome::Exited { code: 0 })),
    ]
}

impl Project {
    /// A conversation with one generation that calls `make`, one that calls `change`, and scripts for one more.
    async fn new() -> Project {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("sandboxes");
        fs::create_dir(&place).unwrap();
        let workspaces = place.clone();
        let sandboxes = MemorySandboxes::new(Box::new(move |execution| act(&place, execution)), workspaces);
        let workshop = Workshop {
            sandboxes: sandboxes.clone(),
            checkpoints: Checkpoints::in_folder(&folder.path().join("checkpoints")).unwrap(),
            tool_timeout: Duration::from_secs(60),
        };
        let call = |id: &str, command: &str| {
            let (id, name, input) = (id.to_owned(), "bash".to_owned(), json!({"command": command}));
            vec![Step::Call { id, name, input }, Step::Finish]
        };
        let say = |text: &str| vec![Step::Say(text.to_owned()), Step::Finish];
        let described = "Done.\n\n<files_summary>\n- src/main.rs: the program\n</files_summary>";
        let model = ScriptedModel::new(vec![
            call("call_0", "true"), // the folder of the workspace is made with the first checkpoint
            call("call_1", "make"),
            say(described),
            call("call_2", "change"),
            say("Changed."),
            call("call_3", "odd names"),
            say("The same."),
            call("call_4", "wait"),
        ]);
        let mut settings = Settings::default();
        let rule = ToolRule {
            place: outlast_core::Place::Sandbox,
            read_only: false,
            idempotent: false,
            policy: Policy::Allow,
            rules: Vec::new(),
            shell_argument: None,
        };
        settings.rules.tools.insert(Tool::Bash.name().to_owned(), rule);
        let server = Server::with_workshop(model, settings, workshop);
        let (_, made) = server.post("/v1/conversations", &json!({"key": "project"})).await;
        let conversation = made["id"].as_str().unwrap().to_owned();
        let mut project = Project { server, conversation, generations: Vec::new(), sandboxes, folder };
        project.run().await;
        project.run().await;
        project
    }

    /// Sends a message and waits for the end of its generation.
    async fn run(&mut self) {
        let (status, started) =
            self.server.post("/v1/generations", &json!({"content": "go", "key": "project"})).await;
        assert_eq!(status, 202, "{started}");
        let id = started["generationId"].as_str().unwrap().to_owned();
        let events = self.server.ask("get", &format!("/v1/generations/{id}/events"), "").await;
        let events = events.into_body().collect().await.unwrap().to_bytes();
        let events = String::from_utf8_lossy(&events).into_owned();
        assert!(events.contains("event: chat.done"), "{events}");
        self.generations.push(id);
    }

    fn path(&self, rest: &str) -> String {
        format!("/v1/conversations/{}/{rest}", self.conversation)
    }

    /// Path, change and description of every file.
    async fn files(&self, query: &str) -> Vec<(String, Value, Value)> {
        let (status, page) = self.server.get(&self.path(&format!("files{query}"))).await;
        assert_eq!((status, &page["nextCursor"]), (200, &Value::Null), "{page}");
        let data = page["data"].as_array().unwrap().iter();
        data.map(|file| {
            (file["path"].as_str().unwrap().to_owned(), file["change"].clone(), file["description"].clone())
        })
        .collect()
    }

    async fn content(&self, rest: &str) -> (u16, String) {
        let response = self.server.ask("get", &self.path(rest), "").await;
        let status = response.status().as_u16();
        (
            status,
            String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned(),
        )
    }
}

fn row(path: &str, change: Value, description: Value) -> (String, Value, Value) {
    (path.to_owned(), change, description)
}

#[tokio::test]
async fn x9_the_workspace_is_listed_compared_and_downloaded() {
    let project = Project::new().await;
    let program = || json!("the program");
    let html = "a \"b\" <c>.html";
    assert_eq!(
        project.files("").await,
        [row(html, json!(null), json!(null)), row("src/main.rs", json!(null), program())]
    );
    let since = |n: usize| format!("?since={}", project.generations[n]);
    let added = [row(html, json!("added"), json!(null)), row("src/main.rs", json!("added"), program())];
    assert_eq!(project.files(&since(0)).await, added, "the first generation began with nothing");
    let changed = [
        row(html, json!("added"), json!(null)),
        row("old.txt", json!("deleted"), json!(null)),
        row("src/main.rs", json!("modified"), program()),
    ];
    assert_eq!(project.files(&since(1)).await, changed);
    let (_, first) = project.server.get(&project.path(&format!("files{}&limit=2", since(1)))).await;
    assert_eq!((first["data"].as_array().unwrap().len(), &first["nextCursor"]), (2, &json!("old.txt")));
    let rest = project.files(&format!("{}&limit=2&cursor=old.txt", since(1))).await;
    assert_eq!(rest, changed[2..]);
    let (status, diff) = project.content(&format!("diff{}", since(1))).await;
    assert_eq!(status, 200);
    assert!(diff.contains("-fn main() {}\n+fn main() { run() }\n") && diff.contains("-old\n"), "{diff}");

    let now = "fn main() { run() }\n".to_owned();
    assert_eq!(project.content("files/src/main.rs").await, (200, now.clone()));
    assert_eq!(project.content("files/src%2Fmain.rs").await, (200, now));
    let (_, second) = project.server.get(&format!("/v1/generations/{}", project.generations[1])).await;
    let before = second["checkpointBefore"].as_str().unwrap();
    let then = project.content(&format!("files/src/main.rs?checkpoint={before}")).await;
    assert_eq!(then, (200, "fn main() {}\n".to_owned()));
    assert_eq!(project.content(&format!("files/old.txt?checkpoint={before}")).await.0, 200);
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_hostile_files_and_paths_do_no_harm() {
    let project = Project::new().await;
    let page = project.server.ask("get", &project.path("files/a%20%22b%22%20%3Cc%3E.html"), "").await;
    assert_eq!(page.status(), StatusCode::OK);
    let header = |name: &str| page.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/octet-stream");
    assert_eq!(header("x-content-type-options"), "nosniff");
    let named = "attachment; filename=\"a__b__<c>.html\"; filename*=UTF-8''a%20%22b%22%20%3Cc%3E.html";
    assert_eq!(header("content-disposition"), named);
    for path in [
        "..",
        "../x",
        "src/../old.txt",
        "%2e%2e/x",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "src",
        "a%00b",
        "src//main.rs/x",
        "%ff",
    ] {
        let (status, body) = project.content(&format!("files/{path}")).await;
        assert!(status == 404 || status == 405, "{path}: {status} {body}");
    }
    for checkpoint in ["nope", "..%2F..%2Fetc", "%2e%2e", &"x".repeat(5_000)] {
        let path = format!("files/src/main.rs?checkpoint={checkpoint}");
        assert_eq!(project.content(&path).await.0, 404, "{checkpoint}");
    }
    let foreign = project.server.foreign("other").await;
    let since = format!("files?since={}", foreign.generation);
    assert_eq!(project.content(&since).await.0, 404, "another user's generation");
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_names_that_are_not_utf_8_are_listed_once_and_can_be_opened() {
    let mut project = Project::new().await;
    project.run().await;
    let (mut listed, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = project.server.get(&project.path(&format!("files?limit=1{cursor}"))).await;
        assert_eq!(status, 200, "{page}");
        listed.push(page["data"][0]["path"].as_str().unwrap().to_owned());
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = format!("&cursor={}", escaped(next));
        assert!(listed.len() < 10, "no end: {listed:?}");
    }
    let html = "a \"b\" <c>.html";
    let expected: Vec<&str> = [html].into_iter().chain(ODD_NAMES_SHOWN).chain(["src/main.rs"]).collect();
    assert_eq!(listed, expected);
    for (name, shown) in ODD_NAMES.into_iter().zip(ODD_NAMES_SHOWN) {
        let path = project.path(&format!("files/{}", escaped(shown)));
        let response = project.server.ask("get", &path, "").await;
        assert_eq!(response.status(), StatusCode::OK, "{shown}");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), name, "{shown}");
    }
    let since = project.files(&format!("?since={}", project.generations[2])).await;
    let added = since.iter().filter(|(_, change, _)| change == "added").map(|(path, ..)| path.as_str());
    assert_eq!(added.collect::<Vec<_>>(), ODD_NAMES_SHOWN);
    let (_, view) = project.server.get(project.path("").trim_end_matches('/')).await;
    let said = view["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap();
    for shown in ODD_NAMES_SHOWN {
        assert!(said.contains(&format!("- {shown}: added\n")), "s4: {said}");
    }
    project.server.engine.stop().await;
}

/// For a URL.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[tokio::test]
async fn x9_the_whole_output_of_a_tool_can_be_fetched_even_after_its_sandbox() {
    let project = Project::new().await;
    let path = |query: &str| format!("/v1/generations/{}/tools/call_1/output{query}", project.generations[0]);
    let fetch = async |query: &str| {
        let response = project.server.ask("get", &path(query), "").await;
        (response.status().as_u16(), response.into_body().collect().await.unwrap().to_bytes().len())
    };
    for is_there in [true, false] {
        assert_eq!(fetch("").await, (200, PRINTED), "the sandbox is there: {is_there}");
        assert_eq!(fetch("?offset=307000").await, (200, PRINTED - 307_000));
        assert_eq!(fetch("?offset=9000000").await, (200, 0));
        assert_eq!(fetch("?stream=stderr").await, (200, 0));
        assert_eq!(fetch("?stream=other").await.0, 422);
        let short = format!("/v1/generations/{}/tools/call_2/output", project.generations[1]);
        assert_eq!(project.server.ask("get", &short, "").await.status(), 200, "the log has all of it");
        project.sandboxes.ids().iter().for_each(|id| project.sandboxes.lose(id));
    }
    let unknown = format!("/v1/generations/{}/tools/call_9/output", project.generations[0]);
    assert_eq!(project.server.problem("get", &unknown, "").await, (404, "not_found".to_owned()));
    let removed = project.server.ask("delete", project.path("").trim_end_matches('/'), "").await;
    assert_eq!(removed.status(), StatusCode::NO_CONTENT);
    assert_eq!(fetch("").await.0, 404);
    project.server.engine.stop().await;
}

#[tokio::test]
async fn tools_are_listed_with_schema_place_and_policy() {
    let project = Project::new().await;
    let (status, tools) = project.server.get("/v1/tools").await;
    assert_eq!(status, 200);
    let bash = &tools["data"][0];
    assert_eq!(
        (&bash["name"], &bash["runsIn"], &bash["policy"]),
        (&json!("bash"), &json!("sandbox"), &json!("allow"))
    );
    assert_eq!(bash["schema"]["type"], "object");
    let without = Server::new();
    let (_, none) = without.get("/v1/tools").await;
    assert_eq!((&none["data"], &none["unavailable"]), (&json!([]), &json!("no tools here")));
    project.server.engine.stop().await;
}

#[tokio::test]
async fn s5_a_conversation_has_files_title_and_sandbox_after_a_generation() {
    let project = Project::new().await;
    let (_, view) = project.server.get(project.path("").trim_end_matches('/')).await;
    let conversation = &view["conversation"];
    assert_eq!(conversation["title"], "go");
    assert!(conversation["sandboxId"].is_string(), "{conversation}");
    let mut files: Vec<&str> =
        conversation["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(files, ["a \"b\" <c>.html", "old.txt", "src/main.rs"]);
    let said = view["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant");
    let said: Vec<&str> = said.map(|message| message["content"].as_str().unwrap()).collect();
    let last = said.last().unwrap();
    assert!(last.contains("<files_summary>") && last.contains("- old.txt: deleted"), "s4: {last}");
    assert!(said.iter().any(|text| text.contains("- src/main.rs: the program")), "s4: {said:?}");
    project.server.engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g13_checkpoints_go_when_no_generation_in_retention_needs_them() {
    let mut project = Project::new().await;
    let (_, listed) = project.server.get(&project.path("files")).await;
    let second = listed["checkpoint"].as_str().unwrap().to_owned();
    let (_, generation) = project.server.get(&format!("/v1/generations/{}", project.generations[1])).await;
    let first = generation["checkpointBefore"].as_str().unwrap().to_owned();
    tokio::time::advance(Duration::from_secs(8 * 24 * 3600)).await;
    project.run().await;
    let outputs = project.folder.path().join("checkpoints").join(&project.conversation).join("outputs");
    let printed = outputs.join(&project.generations[0]);
    assert!(printed.exists(), "the first generation printed a lot");
    assert!(project.server.engine.trim().await.unwrap() >= 2);
    assert!(!printed.exists(), "that goes with its events");
    let at = |checkpoint: &str| format!("files/src/main.rs?checkpoint={checkpoint}");
    assert_eq!(project.content(&at(&first)).await.0, 404, "only removed generations needed it");
    assert_eq!(project.content(&at(&second)).await.0, 200, "the third generation began with it");
    assert_eq!(project.content("files/src/main.rs").await.0, 200);
    let since = |n: usize| project.path(&format!("files?since={}", project.generations[n]));
    assert_eq!(project.server.problem("get", &since(1), "").await, (410, "gone".to_owned()));
    assert_eq!(project.server.get(&since(2)).await.0, 200);
    project.server.engine.stop().await;
}
