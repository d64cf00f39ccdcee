//! What is kept, and for how long: a worker's text in every durability mode, and prompts.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outlast_core::{
    Brief, ContextMessage, Decided, Decision, Durability, Event, Failure, FailureClass, GenerationStatus,
    Part, Piece, Producer, Prompt, Refusal, RetryMode, Role, Seq, TextKind, Timestamp, UserId, WhenBusy,
    decode,
};
use outlast_engine::{
    Account, Clock, Engine, EngineError, Ids, Model, Models, Parts, ScriptedModel, Settings, StartRequest,
    Started, Step, ToolDecision, WorkerBatch,
};
use outlast_store::{Append, Change, Document, MemoryStore, Newest, Store, Table};

fn engine(store: &Arc<MemoryStore>, durability: Durability, scripts: Vec<Vec<Step>>) -> Engine {
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(scripts));
    Engine::new(Parts {
        store: store.clone(),
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        workshop: Err("no tools here".to_owned()),
        settings: Settings { durability, ..Settings::default() },
        clock: Clock::simulated(Timestamp(1_767_225_600_000)),
        ids: Ids::Counting(AtomicU64::new(0)),
    })
}

fn user() -> UserId {
    "ann".into()
}

fn for_a_worker() -> Brief {
    Brief { producer: Some(Producer::External), ..Brief::default() }
}

/// A generation whose worker waits for a person's decision about `call_1`.
async fn asks_a_person(engine: &Engine) -> Started {
    let asks = StartRequest { brief: for_a_worker(), ..StartRequest::new(says("hello")) };
    let started = engine.start(&user(), asks).await.unwrap();
    let worker = engine.claim(&user(), &started.generation, true).await.unwrap();
    let question = Piece::Approval { id: "call_1".into(), name: "bash".into(), input: "ls".into() };
    let (epoch, expected) = (worker.epoch, Some(worker.last));
    let batch = WorkerBatch { epoch, expected, pieces: vec![question], end: None };
    engine.produce(&user(), &started.generation, batch).await.unwrap();
    started
}

fn says(text: &str) -> Vec<Part> {
    vec![Part::Text { text: text.into() }]
}

#[tokio::test(start_paused = true)]
async fn x3_g10_acknowledged_text_of_a_worker_is_in_the_log_in_every_mode() {
    for durability in [Durability::Commit, Durability::Debounce(Duration::from_secs(2)), Durability::Boundary]
    {
        let store = Arc::new(MemoryStore::new());
        let engine = engine(&store, durability, Vec::new());
        let external = StartRequest { brief: for_a_worker(), ..StartRequest::new(says("hello")) };
        let started = engine.start(&user(), external).await.unwrap();
        let mut worker = engine.claim(&user(), &started.generation, true).await.unwrap();
        for word in ["one ", "two ", "three "] {
            let pieces = vec![Piece::Text { kind: TextKind::Answer, text: word.into(), chunks: 1 }];
            let batch = WorkerBatch { epoch: worker.epoch, expected: Some(worker.last), pieces, end: None };
            worker = engine.produce(&user(), &started.generation, batch).await.unwrap();
            let records = store.read(&started.conversation, Seq::ZERO, 1 << 20).await.unwrap();
            let last = decode(&records.last().unwrap().bytes).unwrap();
            assert_eq!(last.seq, worker.last, "{durability:?}");
            assert!(matches!(last.event, Event::ChatDelta { text, .. } if text == word), "{durability:?}");
        }
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn g7_g13_a_retry_whose_prompt_is_gone_is_refused_before_anything_is_retracted() {
    let store = Arc::new(MemoryStore::new());
    let class = FailureClass::Invalid;
    let broken = Step::Fail(Failure { class, message: "no".into(), retry_after: None });
    let engine =
        engine(&store, Durability::Commit, vec![vec![Step::Say("Hel".into()), broken], vec![Step::Finish]]);
    let said = ContextMessage { role: Role::User, parts: says("hello") };
    let prompt = Some(Prompt { messages: vec![said], ..Prompt::default() });
    let brief = Brief { prompt, ..Brief::default() };
    let started =
        engine.start(&user(), StartRequest { brief, ..StartRequest::new(says("hello")) }).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let records = store.read(&started.conversation, Seq::ZERO, 1 << 20).await.unwrap();
    let last = records.last().unwrap().seq;
    store.trim(&started.conversation, Seq(1), last).await.unwrap();

    let again = engine.retry(&user(), &started.generation, RetryMode::Retry, None, None).await;
    assert!(matches!(again, Err(EngineError::Refused(Refusal::PromptGone))), "{again:?}");
    let view = engine.view(&user(), &started.conversation, 10).await.unwrap();
    assert_eq!(view.messages.last().unwrap().content, "Hel", "the text is kept");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g7_g13_retention_keeps_a_prompt_that_a_retry_may_need() {
    let store = Arc::new(MemoryStore::new());
    let class = FailureClass::Invalid;
    let broken = Step::Fail(Failure { class, message: "no".into(), retry_after: None });
    let engine =
        engine(&store, Durability::Commit, vec![vec![broken], vec![Step::Say("Hello".into()), Step::Finish]]);
    let said = ContextMessage { role: Role::User, parts: says("hello") };
    let prompt = Some(Prompt { messages: vec![said], ..Prompt::default() });
    let brief = Brief { prompt, ..Brief::default() };
    let started =
        engine.start(&user(), StartRequest { brief, ..StartRequest::new(says("hello")) }).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    drop(follower);
    tokio::time::advance(Duration::from_secs(31 * 24 * 60 * 60)).await;
    assert_eq!(engine.trim().await.unwrap(), 1);
    let left = store.read(&started.conversation, Seq::ZERO, 1 << 20).await.unwrap();
    let kinds: Vec<String> =
        left.iter().map(|record| outlast_core::head(&record.bytes).unwrap().kind.to_string()).collect();
    assert_eq!(kinds, ["conversation.updated", "generation.queued"], "what was told about it is gone too");
    let again = engine.retry(&user(), &started.generation, RetryMode::Retry, None, None).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &again.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let view = engine.view(&user(), &started.conversation, 10).await.unwrap();
    assert_eq!(view.messages.last().unwrap().content, "Hello");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_retry_due_after_a_restart_has_no_owner_until_then() {
    let store = Arc::new(MemoryStore::new());
    let retry_after = Some(Duration::from_secs(60));
    let failure = Failure { class: FailureClass::RateLimited, message: "slow down".into(), retry_after };
    let before = engine(&store, Durability::Commit, vec![vec![Step::Fail(failure)]]);
    let started = before.start(&user(), StartRequest::new(says("hello"))).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    before.stop().await;

    let after = engine(&store, Durability::Commit, vec![vec![Step::Say("Hello".into()), Step::Finish]]);
    assert_eq!((after.take_up().await.unwrap(), after.owners()), (0, 0), "its time has not come");
    tokio::time::sleep(Duration::from_secs(70)).await;
    let view = after.view(&user(), &started.conversation, 10).await.unwrap();
    assert_eq!(view.messages.last().unwrap().content, "Hello");
    assert_eq!(after.owners(), 0);
    after.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i18_a_generation_that_waits_for_a_person_is_woken_once_after_an_upgrade() {
    let store = Arc::new(MemoryStore::new());
    let before = engine(&store, Durability::Commit, Vec::new());
    let started = asks_a_person(&before).await;
    before.stop().await;

    // As the upgrade from the first version leaves it.
    let found = store.get(Table::Conversations, started.conversation.as_str()).await.unwrap().unwrap();
    assert_eq!(found.due, None, "it waits for a person");
    let fence = store.claim(&started.conversation).await.unwrap();
    let last = store.load(&started.conversation, Newest::NONE).await.unwrap().unwrap().last;
    let changes = vec![Change::Put(Document { due: Some(0), state: None, ..found })];
    let conversation = started.conversation.clone();
    let (records, replies, limits) = (Vec::new(), Vec::new(), Vec::new());
    let append = Append { conversation, fence, expected: last, records, changes, replies, limits };
    store.append(append).await.unwrap();
    store.release(&started.conversation, fence).await.unwrap();

    for expected in [1, 0] {
        let after = engine(&store, Durability::Commit, Vec::new());
        assert_eq!(after.take_up().await.unwrap(), expected);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(after.owners(), 0);
        after.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn g13_i11_retention_removes_no_event_that_the_stored_state_lacks() {
    let store = Arc::new(MemoryStore::new());
    let before = engine(&store, Durability::Commit, Vec::new());
    let started = asks_a_person(&before).await;
    // The log ends with a generation that was cancelled in the queue.
    let behind = StartRequest {
        conversation: Some(started.conversation.clone()),
        when_busy: WhenBusy::Queue,
        ..StartRequest::new(says("and?"))
    };
    let behind = before.start(&user(), behind).await.unwrap();
    before.cancel(&user(), &behind.generation).await.unwrap();
    tokio::time::advance(Duration::from_secs(8 * 24 * 60 * 60)).await;
    assert_eq!(before.trim().await.unwrap(), 1);
    before.stop().await;

    let after = engine(&store, Durability::Commit, Vec::new());
    let decided =
        Decided { decision: Decision::Approve, by: "ann".into(), reason: None, always: false, pattern: None };
    let decision = ToolDecision { tool_use_id: "call_1".into(), hash: None, decided };
    let status = after.decide(&user(), &started.generation, decision).await.unwrap();
    assert_eq!(status, GenerationStatus::Running);
    after.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b4_what_was_used_survives_a_restart_and_is_freed_by_deleting() {
    let store = Arc::new(MemoryStore::new());
    let said = vec![Step::Say("x".repeat(10_000)), Step::Say("y".repeat(10_000)), Step::Finish];
    let first = engine(&store, Durability::Commit, vec![said]);
    let request = StartRequest { api_key_id: Some("key1".to_owned()), ..StartRequest::new(says("hello")) };
    let started = first.start(&user(), request).await.unwrap();
    let mut follower = first.follow_generation(&user(), &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let ann = Account::User(user());
    let used = first.used(&ann).await.unwrap();
    assert!((20_000..30_000).contains(&used.bytes), "{used:?}");
    // The upstream reported no tokens, so the pieces of the answer count.
    assert!((1..=2).contains(&used.tokens), "{used:?}");
    first.stop().await;
    let second = engine(&store, Durability::Commit, Vec::new());
    assert_eq!(second.used(&ann).await.unwrap(), used);
    for account in [Account::Everyone, Account::Key("key1".to_owned())] {
        assert_eq!(second.used(&account).await.unwrap().tokens, used.tokens, "{account:?}");
    }
    second.delete_conversation(&user(), &started.conversation).await.unwrap();
    assert_eq!(second.used(&ann).await.unwrap().bytes, 0);
    second.stop().await;
    let third = engine(&store, Durability::Commit, Vec::new());
    tokio::time::advance(Duration::from_secs(24 * 60 * 60)).await;
    let used = third.used(&ann).await.unwrap();
    assert_eq!((used.tokens, used.bytes), (0, 0), "a new day");
}

#[tokio::test(start_paused = true)]
async fn s6_i20_a_message_that_cannot_be_read_is_left_out_and_the_next_question_is_answered() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, Durability::Commit, vec![vec![Step::Say("Hello".into()), Step::Finish]]);
    let first = engine.start(&user(), StartRequest::new(says("hello"))).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &first.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    drop(follower);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(engine.owners(), 0);

    let loaded = store.load(&first.conversation, Newest::of(10)).await.unwrap().unwrap();
    let broken = |message: Document| Change::Put(Document { body: "{".to_owned(), ..message });
    let changes = loaded.messages.into_iter().map(broken).collect();
    let fence = store.claim(&first.conversation).await.unwrap();
    let (conversation, expected) = (first.conversation.clone(), loaded.last);
    let (records, replies, limits) = (Vec::new(), Vec::new(), Vec::new());
    let append = Append { conversation, fence, expected, records, changes, replies, limits };
    store.append(append).await.unwrap();
    store.release(&first.conversation, fence).await.unwrap();

    let conversation = Some(first.conversation.clone());
    let again = StartRequest { conversation, ..StartRequest::new(says("and?")) };
    let second = engine.start(&user(), again).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &second.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let status = engine.generation(&user(), &second.generation).await.unwrap().status;
    assert_eq!(status, GenerationStatus::Completed);
    engine.stop().await;
}
