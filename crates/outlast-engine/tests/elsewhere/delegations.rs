//! A parent and its sub-agents in a whole engine, on a paused clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use outlast_core::{
    Context, ConversationId, Decided, Decision, GenerationId, GenerationStatus, Part, Piece, Place, Policy,
    Refusal, Rules, TextKind, Timestamp, ToolRule, ToolSpec, UserId, plain_text,
};
use outlast_engine::tools::{Answer, Asked, ToolElsewhere, Toolbox};
use outlast_engine::{
    Arrived, Clock, ConversationFilter, Engine, EngineError, Ids, Model, ModelStream, Models, Paging, Parts,
    Settings, StartRequest, Started, ToolDecision,
};
use outlast_store::{MemoryStore, Query, Store, Table};
use serde_json::json;

/// Longer than anything takes here, by the paused clock.
const LONG: Duration = Duration::from_secs(3_600);

/// Delegates twice and then sums up. Its sub-agents plan, send a letter, which needs a person, and then say so.
struct Boss;

impl Model for Boss {
    fn call(&self, context: Context) -> ModelStream {
        let is_child = context.tools.iter().any(|tool| tool.name == "update_plan");
        let parts = context.messages.iter().flat_map(|message| &message.parts);
        let has_results = parts.into_iter().any(|part| matches!(part, Part::ToolResult { .. }));
        let call = |id: &str, name: &str, input| Piece::ToolCall { id: id.into(), name: name.into(), input };
        let pieces = match (is_child, has_results) {
            (false, false) => vec![
                call("c1", "delegate", json!({"task": "one"})),
                call("c2", "delegate", json!({"task": "two"})),
            ],
            (true, false) => {
                vec![call("p", "update_plan", json!({"plan": ["send"]})), call("s", "send", json!({}))]
            }
            (true, true) => vec![said("Sent.")],
            (false, true) => vec![said("All done.")],
        };
        let reason = if has_results { "stop" } else { "tool_calls" };
        let end = Ok(Arrived::Finished { reason: reason.to_owned() });
        futures_util::stream::iter(pieces.into_iter().map(|piece| Ok(Arrived::Piece(piece))).chain([end]))
            .boxed()
    }
}

fn said(text: &str) -> Piece {
    Piece::Text { kind: TextKind::Answer, text: text.into(), chunks: 1 }
}

/// What the sub-agents do: letters, each sent once per idempotency key.
#[derive(Default)]
struct Post {
    sent: Mutex<BTreeSet<String>>,
}

#[async_trait]
impl ToolElsewhere for Post {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "send".to_owned(), description: None, parameters: None, strict: None }
    }

    async fn ask(&self, asked: Asked<'_>) -> Answer {
        self.sent.lock().unwrap().insert(asked.execution.as_str().to_owned());
        Answer::Said { result: "sent".into(), is_error: false }
    }
}

struct Office {
    store: Arc<dyn Store>,
    post: Arc<Post>,
    live_generations: usize,
}

impl Office {
    fn new() -> Office {
        Office { store: Arc::new(MemoryStore::new()), post: Arc::default(), live_generations: 20 }
    }

    fn engine(&self) -> Engine {
        let rule = |place, policy| ToolRule {
            place,
            read_only: place == Place::Log,
            idempotent: true,
            policy,
            rules: vec![],
            shell_argument: None,
        };
        let tools = [
            ("delegate", rule(Place::Child, Policy::Allow)),
            ("update_plan", rule(Place::Log, Policy::Allow)),
            ("send", rule(Place::Elsewhere, Policy::Ask)),
        ];
        let tools = tools.map(|(name, rule)| (name.to_owned(), rule)).into();
        let rules = Rules { tools, max_depth: 1, ..Rules::default() };
        let mut toolbox = Toolbox::default();
        toolbox.add(self.post.clone());
        let model: Arc<dyn Model> = Arc::new(Boss);
        let live_generations_per_user = self.live_generations;
        Engine::new(Parts {
            store: self.store.clone(),
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Err("no sandboxes here".to_owned()),
            settings: Settings { rules, toolbox, live_generations_per_user, ..Settings::default() },
            clock: Clock::simulated(Timestamp(1_767_225_600_000)),
            ids: Ids::Counting(AtomicU64::new(0)),
        })
    }
}

fn user() -> UserId {
    "ann".into()
}

fn request() -> StartRequest {
    StartRequest { request: Some("r1".into()), ..StartRequest::new(vec![Part::Text { text: "go".into() }]) }
}

async fn start(engine: &Engine) -> Started {
    engine.start(&user(), request()).await.unwrap()
}

async fn until(engine: &Engine, id: &GenerationId, status: GenerationStatus) {
    let reached = async {
        while engine.generation(&user(), id).await.unwrap().status != status {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(LONG, reached).await.expect("it gets there");
}

/// A person who sees only the parent, and approves whatever it asks.
async fn approve(engine: &Engine, id: &GenerationId) -> Result<(), EngineError> {
    let Some(asked) = engine.generation(&user(), id).await?.pending_approval else { return Ok(()) };
    let decision = Decision::Approve;
    let decided = Decided { decision, by: "ann".into(), reason: None, always: false, pattern: None };
    let decision = ToolDecision { tool_use_id: asked.tool_use_id, hash: Some(asked.hash), decided };
    engine.decide(&user(), id, decision).await.map(|_| ())
}

async fn children_of(engine: &Engine, started: &Started) -> Vec<(ConversationId, GenerationId)> {
    let view = engine.view(&user(), &started.conversation, 10).await.unwrap();
    let delegations = view.active_run.unwrap().delegations;
    delegations.into_iter().map(|child| (child.conversation_id, child.state.generation_id)).collect()
}

/// Waits until both sub-agents ask.
async fn until_both_ask(engine: &Engine, started: &Started) -> Vec<(ConversationId, GenerationId)> {
    until(engine, &started.generation, GenerationStatus::AwaitingApproval).await;
    loop {
        let children = children_of(engine, started).await;
        if children.len() == 2 {
            for (_, child) in &children {
                until(engine, child, GenerationStatus::AwaitingApproval).await;
            }
            return children;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn p4_questions_of_sub_agents_are_decided_in_the_parent_and_results_come_back_once() {
    let office = Office::new();
    let engine = office.engine();
    let started = start(&engine).await;
    let children = until_both_ask(&engine, &started).await;
    while engine.generation(&user(), &started.generation).await.unwrap().status != GenerationStatus::Completed
    {
        match approve(&engine, &started.generation).await {
            // The child has the decision, and its parent has not heard of it yet.
            Ok(()) | Err(EngineError::Refused(Refusal::AlreadyDecided(_) | Refusal::NotAsked { .. })) => {}
            Err(error) => panic!("{error}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answer = engine.generation(&user(), &started.generation).await.unwrap();
    let results: Vec<&Part> =
        answer.parts().iter().filter(|part| matches!(part, Part::ToolResult { .. })).collect();
    for (result, (conversation, _)) in results.iter().zip(&children) {
        let Part::ToolResult { content, is_error: false, conversation_id, .. } = result else {
            panic!("{result:?}")
        };
        assert_eq!((content, conversation_id.as_ref()), (&json!("Sent."), Some(conversation)));
    }
    assert_eq!((results.len(), plain_text(answer.parts())), (2, "All done.".to_owned()));
    assert_eq!(office.post.sent.lock().unwrap().len(), 2);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p4_lists_leave_sub_agents_out_and_they_are_deleted_with_their_parent() {
    let office = Office::new();
    let engine = office.engine();
    let started = start(&engine).await;
    let children = until_both_ask(&engine, &started).await;
    let paging = || Paging { cursor: None, limit: 10 };
    let listed = engine.conversations(&user(), ConversationFilter::default(), paging()).await.unwrap();
    let ids: Vec<&ConversationId> = listed.data.iter().map(|listed| &listed.id).collect();
    assert_eq!(ids, [&started.conversation]);
    let listed = engine.generations(&user(), None, None, paging()).await.unwrap();
    assert_eq!(listed.data.len(), 1);
    let (child, _) = &children[0];
    let own = engine.generations(&user(), Some(child.clone()), None, paging()).await.unwrap();
    assert_eq!(own.data.len(), 1, "a sub-agent's own page has it");
    let refused = engine.delete_conversation(&user(), child).await.unwrap_err();
    assert!(matches!(refused, EngineError::Refused(Refusal::BelongsToParent { .. })), "{refused}");
    let message = StartRequest { conversation: Some(child.clone()), request: None, ..request() };
    let refused = engine.start(&user(), message).await.unwrap_err();
    assert!(matches!(refused, EngineError::Refused(Refusal::BelongsToParent { .. })), "{refused}");
    engine.delete_conversation(&user(), &started.conversation).await.unwrap();
    let left = office
        .store
        .list(Query { table: Some(Table::Conversations), limit: 10, ..Query::default() })
        .await
        .unwrap();
    assert!(left.documents.is_empty(), "{:?}", left.documents);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i9_p4_cancelling_the_parent_cancels_its_sub_agents_within_a_second() {
    let office = Office::new();
    let engine = office.engine();
    let started = start(&engine).await;
    let children = until_both_ask(&engine, &started).await;
    engine.cancel(&user(), &started.generation).await.unwrap();
    let gone = async {
        for (_, child) in &children {
            until(&engine, child, GenerationStatus::Cancelled).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(1), gone).await.unwrap();
    assert!(office.post.sent.lock().unwrap().is_empty());
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p4_b4_a_sub_agent_over_the_limit_of_live_generations_is_an_error_that_the_model_reads() {
    let office = Office { live_generations: 1, ..Office::new() };
    let engine = office.engine();
    let started = start(&engine).await;
    until(&engine, &started.generation, GenerationStatus::Completed).await;
    let answer = engine.generation(&user(), &started.generation).await.unwrap();
    let refused = |part: &&Part| match part {
        Part::ToolResult { content, is_error, .. } => {
            *is_error && content.as_str().is_some_and(|said| said.contains("the sub-agent cannot start"))
        }
        _ => false,
    };
    assert_eq!(answer.parts().iter().filter(refused).count(), 2, "{:?}", answer.parts());
    engine.stop().await;
}
