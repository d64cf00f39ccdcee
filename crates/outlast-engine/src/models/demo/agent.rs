//! The demo as an agent: a script for each thing worth seeing, chosen by what the user typed. A call plays the
//! next step; how many rounds of tools stand behind the question tells which one that is, so the demo needs no
//! memory and goes on after a crash like any other model.

use outlast_core::{Context, ContextMessage, Part, Role};
use serde_json::{Value, json};

/// One answer of the demo: some text, then the tools that it asks for.
pub(super) struct Turn {
    pub(super) text: String,
    pub(super) calls: Vec<(&'static str, Value)>,
}

pub(super) const MENU: &str = "\
Pick something to see. Type one of these:

- `/demo project`: I write a small program, run its tests, find the bug and fix it
- `/demo danger`: I ask before doing something dangerous
- `/demo count`: I start a tool that runs for a minute; kill the server with `kill -9` meanwhile
- `/demo trouble`: a tool fails, and I find another way

Every tool runs in a sandbox of this conversation. Whatever you do to the page or to the server, it runs once, \
and nothing that it printed is lost.";

const NO_TOOLS: &str = "\
I would show you tools at work, but this server offers none: it has no sandbox to run them in. Its first lines \
of output, and `GET /v1/capabilities`, say why. Everything else works, so ask me something else.";

const SUM: &str = "\
#!/bin/sh
# Adds up its arguments.
total=1
for number in \"$@\"; do
  total=$((total + number))
done
echo \"$total\"
";

const TESTS: &str = "\
#!/bin/sh
# Each line: the expected sum, then the numbers.
failed=0
check() {
  expected=$1; shift
  got=$(sh sum.sh \"$@\")
  if [ \"$got\" = \"$expected\" ]; then
    echo \"ok    sum $* = $got\"
  else
    echo \"FAIL  sum $* = $got, expected $expected\"
    failed=1
  fi
}
check 0
check 7 7
check 6 1 2 3
exit $failed
";

/// What the demo says next, or `None` if the user did not ask for an agent.
pub(super) fn turn(context: &Context) -> Option<Turn> {
    let question = context.messages.iter().rposition(is_question)?;
    let asked = context.messages[question].text();
    let show = asked.trim().to_lowercase();
    let show = show.strip_prefix("/demo")?.trim();
    let rounds = rounds(&context.messages[question + 1..]);
    if show.is_empty() {
        return Some(says(MENU));
    }
    if context.tools.is_empty() {
        return Some(says(NO_TOOLS));
    }
    let last = last_result(&context.messages[question + 1..]);
    Some(match show {
        "project" => project(rounds, last.as_ref()),
        "danger" => danger(rounds, last.as_ref()),
        "count" => count(rounds, last.as_ref()),
        "trouble" => trouble(rounds, last.as_ref()),
        _ => says(MENU),
    })
}

fn project(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            "I'll write a small program that adds up numbers, and tests for it.",
            vec![
                ("write_file", json!({"path": "sum.sh", "content": SUM})),
                ("write_file", json!({"path": "test.sh", "content": TESTS})),
            ],
        ),
        1 => asks("Both files are there. Let me run the tests.", vec![bash("sh test.sh")]),
        2 if last.is_some_and(Outcome::is_refused) => says(
            "You'd rather not run the tests, so I'll stop here. The program and its tests are in the workspace; \
             nobody has seen them pass yet.",
        ),
        2 => asks(
            "Every sum is one too large. That looks like a wrong starting value; let me read the program.",
            vec![("read_file", json!({"path": "sum.sh"}))],
        ),
        3 => asks(
            "There it is: `total` starts at 1 instead of 0.",
            vec![("edit_file", json!({"path": "sum.sh", "old": "total=1", "new": "total=0"}))],
        ),
        4 => asks("Fixed. Once more with the tests:", vec![bash("sh test.sh")]),
        _ => says(
            "All tests pass now. The bug was the starting value of the sum.\n\n\
             <files_summary>\nsum.sh: adds up its arguments\ntest.sh: checks three sums\n</files_summary>",
        ),
    }
}

fn danger(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            "I want to delete everything in the workspace. That cannot be undone, so I need your word first. \
             Take your time: reload the page, restart the server, come back tomorrow. The question waits.",
            vec![bash("rm -rf /workspace/* && echo \"the workspace is empty\"")],
        ),
        _ if last.is_some_and(Outcome::is_refused) => {
            says("You said no, so nothing was deleted. I was told your decision, not just cut off.")
        }
        _ => says(
            "You said yes, and the workspace is empty now. It ran once, after your decision was on disk.",
        ),
    }
}

fn count(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            "I'll count to 60, one number a second. While I do, run `kill -9` on the server and start it again: \
             the tool goes on counting in its sandbox, and the page picks up where it was.",
            vec![bash("i=1; while [ $i -le 60 ]; do echo \"$i\"; i=$((i+1)); sleep 1; done")],
        ),
        _ if last.is_some_and(|last| !last.is_error) => {
            says("Counted to 60: every number once, none missing, whatever happened to the server meanwhile.")
        }
        _ => says("The counting ended early, and I was told why. Nothing was started a second time."),
    }
}

fn trouble(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            "Let me read the notes that should be here.",
            vec![("read_file", json!({"path": "notes/today.md"}))],
        ),
        1 if last.is_some_and(|last| last.is_error) => asks(
            "There are none. I'll make a folder and begin some.",
            vec![(
                "write_file",
                json!({"path": "notes/today.md", "content": "# Today\n\n- A tool failed, and work went on.\n"}),
            )],
        ),
        1 => says("They are here already, so there was no trouble this time."),
        2 => asks("And read them back, to be sure.", vec![("read_file", json!({"path": "notes/today.md"}))]),
        _ => says(
            "The notes are there now. A tool that fails is a result like any other: I see the error and go on.\n\n\
             <files_summary>\nnotes/today.md: what happened today\n</files_summary>",
        ),
    }
}

fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({"command": command}))
}

fn says(text: &str) -> Turn {
    asks(text, Vec::new())
}

fn asks(text: &str, calls: Vec<(&'static str, Value)>) -> Turn {
    Turn { text: text.to_owned(), calls }
}

/// A message in which a person says something. Tool results travel as the user's in some forms.
fn is_question(message: &ContextMessage) -> bool {
    message.role == Role::User && !message.text().trim().is_empty()
}

/// How many answers with tool calls follow the question.
fn rounds(messages: &[ContextMessage]) -> usize {
    let asks =
        |message: &&ContextMessage| message.parts.iter().any(|part| matches!(part, Part::ToolUse { .. }));
    messages.iter().filter(asks).count()
}

struct Outcome {
    text: String,
    is_error: bool,
}

impl Outcome {
    fn is_refused(&self) -> bool {
        self.is_error && self.text.contains("denied")
    }
}

fn last_result(messages: &[ContextMessage]) -> Option<Outcome> {
    messages.iter().rev().flat_map(|message| message.parts.iter().rev()).find_map(|part| match part {
        Part::ToolResult { content, is_error, .. } => {
            Some(Outcome { text: content.to_string(), is_error: *is_error })
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use outlast_core::ToolSpec;

    use super::*;

    fn given(asked: &str, rounds: &[(&str, bool)]) -> Context {
        let text = |text: &str| vec![Part::Text { text: text.to_owned() }];
        let mut messages = vec![ContextMessage { role: Role::User, parts: text(asked) }];
        for (number, (result, is_error)) in rounds.iter().enumerate() {
            let id = format!("call-{number}");
            let call = Part::ToolUse { id: id.clone(), name: "bash".into(), input: json!({}) };
            messages.push(ContextMessage { role: Role::Assistant, parts: vec![call] });
            let result = Part::ToolResult { tool_use_id: id, content: json!(result), is_error: *is_error };
            messages.push(ContextMessage { role: Role::Tool, parts: vec![result] });
        }
        let bash = ToolSpec { name: "bash".into(), description: None, parameters: None, strict: None };
        Context { messages, tools: vec![bash], ..Context::default() }
    }

    #[test]
    fn a_question_without_the_word_is_no_demo_of_an_agent() {
        assert!(turn(&given("hello", &[])).is_none());
        assert_eq!(turn(&given("/demo", &[])).unwrap().text, MENU);
        assert_eq!(turn(&given("/demo what?", &[])).unwrap().text, MENU);
    }

    #[test]
    fn the_project_ends_after_the_bug_is_fixed() {
        let mut rounds = vec![];
        let mut calls = vec![];
        while let Some(turn) = turn(&given("/demo project", &rounds)).filter(|turn| !turn.calls.is_empty()) {
            calls.push(turn.calls.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(" "));
            rounds.push(("done", false));
        }
        assert_eq!(calls, ["write_file write_file", "bash", "read_file", "edit_file", "bash"]);
    }

    #[test]
    fn a_denied_call_is_taken_as_the_persons_word() {
        let denied = turn(&given("/demo danger", &[("denied by a person", true)])).unwrap();
        assert!(denied.calls.is_empty() && denied.text.contains("nothing was deleted"), "{}", denied.text);
    }

    #[test]
    fn without_tools_it_says_so() {
        let context = Context { tools: Vec::new(), ..given("/demo project", &[]) };
        assert_eq!(turn(&context).unwrap().text, NO_TOOLS);
    }
}
