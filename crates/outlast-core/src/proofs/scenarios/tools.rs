//! Tools that the client runs, prompts from the client, and answers that continue after a failed attempt.

use serde_json::json;

use super::{answer_with, break_off, started};
use crate::testing::*;
use crate::{
    Brief, CallEnd, Command, ContextMessage, FailureClass, Part, Prompt, Role, Rules, Start, ToolSpec,
};

/// The client provides the tools and runs them, so the answer ends with the tool calls.
pub(super) fn tool_calls() -> World {
    let mut world = started();
    world.model(vec![thoughts("I need to look."), words("Let me look.")], None);
    world.model(vec![tool_call("call_1", json!({"path": "a.rs"})), tool_call("call_2", json!({}))], None);
    world.model(vec![words("Both at once."), tool_call("call_3", json!("{\"path\": "))], None);
    world.model(vec![usage(12, 30)], Some(CallEnd::Finished { reason: "tool_calls".into() }));
    world
}

pub(super) fn tool_calls_retracted() -> World {
    let mut world = started();
    world.model(vec![words("Let me look."), tool_call("call_1", json!({"path": "a.rs"}))], None);
    break_off(&mut world);
    world.wait();
    let both = vec![tool_call("call_9", json!({"path": "b.rs"})), words("Looking.")];
    world.model(both, Some(broke(FailureClass::Transient)));
    world.wait();
    answer_with(&mut world, "Hello, world.");
    world
}

pub(super) fn goes_on_from_the_last_word() -> World {
    let prefill = ["default".to_owned()].into();
    let mut world = started().with(Rules { prefill, ..Rules::default() });
    world.model(vec![words("Hello, ")], None);
    break_off(&mut world);
    world.wait();
    world.model(vec![words(" "), words("wor")], None);
    world.crash();
    world.settle();
    world.model(vec![words("ld."), usage(12, 3)], Some(finished()));
    world
}

/// The client sends the history and chooses the answer's id. A second attempt uses the same id.
pub(super) fn prompted() -> World {
    let said = |role, text: &str| ContextMessage { role, parts: vec![Part::Text { text: text.into() }] };
    let prompt = Prompt {
        messages: vec![
            said(Role::System, "Be brief."),
            said(Role::User, "Hi."),
            said(Role::Assistant, "Hello."),
            ContextMessage {
                role: Role::User,
                parts: vec![
                    Part::Image { url: "data:image/png;base64,AA==".into() },
                    Part::Text { text: "What is this?".into() },
                ],
            },
        ],
        tools: vec![ToolSpec {
            name: "read".into(),
            description: Some("Reads a file.".into()),
            parameters: Some(json!({"type": "object"})),
            strict: None,
        }],
        options: serde_json::Map::from_iter([("temperature".to_owned(), json!(0.5))]),
    };
    let parts = prompt.messages[3].parts.clone();
    let answer_id = Some("the-answer".into());
    let mut world = World::new();
    let brief = Brief { prompt: Some(prompt), answer_id, ..Brief::default() };
    let asked = Start { parts, brief, ..request(G1) };
    world.command(Command::Start(asked)).unwrap();
    world.model(vec![words("A pic")], Some(broke(FailureClass::Transient)));
    world.wait();
    answer_with(&mut world, "A picture.");
    world
}
