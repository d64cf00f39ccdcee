//! The demo model as an agent: a script for each thing worth seeing, chosen by what the user typed. A call plays the next
//! step, which follows from the number of tool rounds since the question. So the demo needs no memory and continues after
//! a crash like any other model.

use outlast_core::{Context, ContextMessage, Part, Role};
use serde_json::{Value, json};

/// One answer of the demo: some text, then the tools that it asks for.
pub(super) struct Turn {
    pub(super) text: String,
    pub(super) calls: Vec<(&'static str, Value)>,
}

pub(super) const MENU: &str = "\
Pick something to see. Type one of these:

- `/demo project`: I write a small program, run its tests, find the bug and fix it. You approve, and you can kill the \
server in between
- `/demo danger`: I ask before I delete something
- `/demo count`: a tool runs for a minute; try `kill -9`, a reload, or a second tab
- `/demo trouble`: a tool fails, and I find another way

Every tool runs in this conversation's own sandbox. Whatever you do to the page or to the server, each call runs once, \
and nothing that it prints is lost.";

const NO_TOOLS: &str = "\
I would show you tools at work, but this server has no sandbox to run them in. Its first lines of output and \
`GET /v1/capabilities` say how to get one. Everything else works, so ask me something else.";

const DIARY: &str = "# Diary\n\nToday a machine asked me before it deleted this.\n";

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
if [ \"$1\" = slow ]; then
  for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    sleep 1
    check $((n + n * n)) $n $((n * n))
  done
fi
exit $failed
";

/// Where a person finds the server to kill.
const KILL: &str = "In another terminal, run `pkill -9 -x outlast` and start the server again";

const SUMMARY: &str = "\
<files_summary>
- sum.sh: adds up its arguments
- test.sh: checks three sums, or 23 of them
</files_summary>";

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
        4 => asks(
            &format!(
                "Fixed. Now all the tests, which take 20 seconds. Try something while they run. {KILL}: the tests \
                 keep running in their sandbox, and you miss nothing."
            ),
            vec![bash("sh test.sh slow")],
        ),
        _ if last.is_some_and(|last| last.is_error) => says(&format!(
            "The bug is fixed: the sum started at 1. Nobody has seen all the tests pass, though.\n\n{SUMMARY}"
        )),
        _ => says(&format!("All tests pass now. The bug was that the sum started at 1.\n\n{SUMMARY}")),
    }
}

fn danger(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            "First I'll write something worth keeping.",
            vec![("write_file", json!({"path": "diary.md", "content": DIARY}))],
        ),
        1 => asks(
            "Now I want to delete everything in the workspace. That cannot be undone, so I need your approval first. \
             Take your time: reload the page, restart the server, come back tomorrow. The question waits.",
            vec![bash("rm -rf /workspace/* && echo \"The workspace is empty.\"")],
        ),
        _ if last.is_some_and(Outcome::is_refused) => {
            says("You said no, so nothing was deleted. I was given your answer like any other result.")
        }
        _ => says(
            "You said yes, and the workspace is empty now. It ran once, after your decision was on disk.",
        ),
    }
}

fn count(rounds: usize, last: Option<&Outcome>) -> Turn {
    match rounds {
        0 => asks(
            &format!(
                "I'll count to 60, one number a second. {KILL}: the tool keeps counting in its sandbox, and the \
                 page picks up where it was."
            ),
            vec![bash("i=1; while [ $i -le 60 ]; do echo \"$i\"; i=$((i+1)); sleep 1; done")],
        ),
        _ if last.is_some_and(|last| !last.is_error) => {
            says("Counted to 60: every number once, none missing, whatever happened to the server.")
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
            "There are none. I'll create a folder and start some.",
            vec![(
                "write_file",
                json!({"path": "notes/today.md", "content": "# Today\n\n- A tool failed, and work continued.\n"}),
            )],
        ),
        1 => says("They are already here, so there was no trouble this time."),
        2 => {
            asks("Let me read them back, to be sure.", vec![("read_file", json!({"path": "notes/today.md"}))])
        }
        _ => says(
            "The notes are there now. A tool that fails is a result like any other: I see the error and continue.\n\n\
             <files_summary>\n- notes/today.md: what happened today\n</files_summary>",
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

/// A message in which a person says something. In some formats, tool results are the user's messages too.
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
            let result = Part::tool_result(id, json!(result), *is_error);
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
        let denied =
            turn(&given("/demo danger", &[("written", false), ("denied by a person", true)])).unwrap();
        assert!(denied.calls.is_empty() && denied.text.contains("nothing was deleted"), "{}", denied.text);
    }

    #[test]
    fn s4_a_summary_of_files_is_written_as_it_is_read() {
        for (show, rounds) in [("/demo project", 5), ("/demo trouble", 3)] {
            let said = turn(&given(show, &vec![("done", true); rounds])).unwrap().text;
            let files = outlast_core::parse_files_summary(&said);
            assert!(!files.is_empty() && files.iter().all(|file| !file.description.is_empty()), "{said}");
        }
    }

    #[test]
    fn without_tools_it_says_so() {
        let context = Context { tools: Vec::new(), ..given("/demo project", &[]) };
        assert_eq!(turn(&context).unwrap().text, NO_TOOLS);
    }
}
