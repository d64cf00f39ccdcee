//! What is kept, and when: the words of workers in every mode, and prompts that are no longer there.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test ends where it fails")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outlast_core::{
    ContextMessage, Durability, Event, Failure, FailureClass, Part, Piece, Producer, Prompt, RetryMode, Role,
    Seq, TextKind, Timestamp, UserId, decode,
};
use outlast_engine::{
    Clock, Engine, Ids, Model, Models, Parts, ProducedBatch, ScriptedModel, Settings, StartRequest, Step,
};
use outlast_store::{MemoryStore, Store};

fn engine(store: &Arc<MemoryStore>, durability: Durability, scripts: Vec<Vec<Step>>) -> Engine {
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(scripts));
    Engine::new(Parts {
        store: store.clone(),
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        settings: Settings { durability, ..Settings::default() },
        clock: Clock::simulated(Timestamp(1_767_225_600_000)),
        ids: Ids::Counting(AtomicU64::new(0)),
    })
}

fn user() -> UserId {
    "ann".into()
}

fn says(text: &str) -> Vec<Part> {
    vec![Part::Text { text: text.into() }]
}

#[tokio::test(start_paused = true)]
async fn x3_g10_what_a_worker_was_told_is_taken_is_in_the_log_in_every_mode() {
    for durability in [Durability::Commit, Durability::Debounce(Duration::from_secs(2)), Durability::Boundary]
    {
        let store = Arc::new(MemoryStore::new());
        let engine = engine(&store, durability, Vec::new());
        let external =
            StartRequest { producer: Some(Producer::External), ..StartRequest::new(says("hello")) };
        let started = engine.start(&user(), external).await.unwrap();
        let mut worker = engine.claim(&user(), &started.generation, true).await.unwrap();
        for word in ["one ", "two ", "three "] {
            let pieces = vec![Piece::Text { kind: TextKind::Answer, text: word.into(), chunks: 1 }];
            let batch = ProducedBatch { epoch: worker.epoch, expected: Some(worker.last), pieces, end: None };
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
async fn g7_g13_a_retry_whose_prompt_is_no_longer_kept_ends_and_says_so() {
    let store = Arc::new(MemoryStore::new());
    let class = FailureClass::Invalid;
    let broken = Step::Fail(Failure { class, message: "no".into(), retry_after: None });
    let engine = engine(&store, Durability::Commit, vec![vec![broken], vec![Step::Finish]]);
    let said = ContextMessage { role: Role::User, parts: says("hello") };
    let prompt = Some(Prompt { messages: vec![said], ..Prompt::default() });
    let started =
        engine.start(&user(), StartRequest { prompt, ..StartRequest::new(says("hello")) }).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &started.generation, None).await.unwrap();
    while follower.next().await.unwrap().is_some() {}
    let records = store.read(&started.conversation, Seq::ZERO, 1 << 20).await.unwrap();
    let last = records.last().unwrap().seq;
    store.trim(&started.conversation, Seq(1), last).await.unwrap();

    let again = engine.retry(&user(), &started.generation, RetryMode::Retry, None).await.unwrap();
    let mut follower = engine.follow_generation(&user(), &again.generation, None).await.unwrap();
    let ended = async { while follower.next().await.unwrap().is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it does not wait for what is gone");
    let document = engine.generation(&user(), &again.generation).await.unwrap();
    assert_eq!(document.end_reason.as_deref(), Some("upstream_invalid_request"));
    let error = document.error_message.unwrap();
    assert!(error.contains("no longer kept"), "{error}");
    engine.stop().await;
}
