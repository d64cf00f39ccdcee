//! What a stream of events yields: snapshots where events were removed, keep-alives, and bounded pages.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use outlast_core::{Part, Seq, Timestamp, UserId};
use outlast_engine::{
    Clock, Engine, EngineError, EventStream, Frame, Ids, Model, Models, Parts, ScriptedModel, Settings,
    StartRequest, Started, Step, StreamEnd,
};
use outlast_store::{Append, Change, MemoryStore, Store, Table};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The maximum size of a page or snapshot.
const PAGE_BYTES: usize = 1 << 20;

fn engine(scripts: Vec<Vec<Step>>) -> Engine {
    engine_on(Arc::new(MemoryStore::new()), scripts)
}

fn engine_on(store: Arc<MemoryStore>, scripts: Vec<Vec<Step>>) -> Engine {
    let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(scripts));
    Engine::new(Parts {
        store,
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        settings: Settings::default(),
        clock: Clock::simulated(Timestamp(1_767_225_600_000)),
        ids: Ids::Counting(AtomicU64::new(0)),
    })
}

fn user() -> UserId {
    "ann".into()
}

fn say(words: &[&str]) -> Vec<Step> {
    let spoken = words.iter().flat_map(|word| [Step::Wait(MINUTE), Step::Say((*word).to_owned())]);
    spoken.chain([Step::Finish]).collect()
}

/// Sends a message, in the conversation of an earlier one if given, and waits for the end of the answer.
async fn ask(engine: &Engine, text: &str, before: Option<&Started>) -> Started {
    let request = StartRequest::new(vec![Part::Text { text: text.into() }]);
    let conversation = before.map(|before| before.conversation.clone());
    let started = engine.start(&user(), StartRequest { conversation, ..request }).await.unwrap();
    let mut events = engine.stream_generation(&user(), &started.generation, None).await.unwrap();
    while events.next().await.is_ok() {}
    started
}

async fn snapshot(events: &mut EventStream) -> Value {
    match events.next().await.unwrap() {
        Frame::Snapshot(snapshot) => serde_json::to_value(&snapshot).unwrap(),
        Frame::Events(batch) => panic!("events {:?} instead of a snapshot", batch.records()),
        Frame::KeepAlive => panic!("a keep-alive instead of a snapshot"),
    }
}

fn contents(snapshot: &Value) -> Vec<&str> {
    let messages = snapshot["payload"]["messages"].as_array().unwrap();
    messages.iter().map(|message| message["content"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn g13_the_stream_of_a_trimmed_generation_has_that_generations_messages_and_its_end() {
    let engine = engine(vec![say(&["one"]), say(&["two"]), say(&["three"])]);
    let first = ask(&engine, "first", None).await;
    let second = ask(&engine, "second", Some(&first)).await;
    ask(&engine, "third", Some(&first)).await;
    tokio::time::sleep(WEEK + MINUTE).await;
    engine.trim().await.unwrap();

    let last_seq = engine.generation(&user(), &second.generation).await.unwrap().last_seq;
    for after in [None, Some(Seq(1)), Some(Seq(last_seq.0 - 1))] {
        let mut events = engine.stream_generation(&user(), &second.generation, after).await.unwrap();
        let snapshot = snapshot(&mut events).await;
        assert_eq!(contents(&snapshot), ["second", "two"], "after {after:?}");
        assert_eq!(snapshot["seq"], json!(last_seq));
        assert_eq!(snapshot["generationId"], json!(second.generation));
        let view = &snapshot["payload"];
        assert_eq!(
            (&view["hasMore"], &view["activeRun"], &view["overlays"]),
            (&json!(false), &json!(null), &json!({}))
        );
        assert_eq!(view["lastEnd"]["generationId"], json!(second.generation));
        assert_eq!(view["lastEnd"]["status"], "completed");
        assert!(matches!(events.next().await, Err(StreamEnd::Complete)));
    }
    let mut behind = engine.stream_generation(&user(), &second.generation, Some(last_seq)).await.unwrap();
    assert!(
        matches!(behind.next().await, Err(StreamEnd::Complete)),
        "a follower that has everything gets nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn g13_a_conversation_read_from_a_trimmed_position_starts_with_a_snapshot_and_continues() {
    let engine = engine(vec![say(&["one"]), say(&["two"])]);
    let first = ask(&engine, "first", None).await;
    tokio::time::sleep(WEEK + MINUTE).await;
    engine.trim().await.unwrap();

    let conversation = &first.conversation;
    let titled = Some(Seq(1)); // belongs to no generation, so it is kept
    let mut events = engine.stream_conversation(&user(), conversation, titled).await.unwrap();
    let snapshot = snapshot(&mut events).await;
    assert_eq!(contents(&snapshot), ["first", "one"]);
    ask(&engine, "second", Some(&first)).await;
    let Frame::Events(batch) = events.next().await.unwrap() else { panic!("events follow the snapshot") };
    assert_eq!(json!(batch.records()[0].seq.0 - 1), snapshot["seq"], "no gaps, no duplicates");
}

#[tokio::test(start_paused = true)]
async fn o6_a_silent_stream_sends_keep_alives_and_ends_when_the_server_stops() {
    let engine = engine(vec![say(&["one"])]);
    let first = ask(&engine, "first", None).await;
    let mut events = engine.stream_conversation(&user(), &first.conversation, None).await.unwrap();
    snapshot(&mut events).await;
    let begun = tokio::time::Instant::now();
    for _ in 0..3 {
        while let Frame::Events(_) = events.next().await.unwrap() {}
    }
    assert_eq!(begun.elapsed().as_secs(), 3 * 15);
    engine.stop().await;
    assert!(matches!(events.next().await, Err(StreamEnd::Stopping)));
}

#[tokio::test(start_paused = true)]
async fn i2_a_stream_does_not_start_after_the_end_of_the_log() {
    let engine = engine(vec![say(&["one"])]);
    let first = ask(&engine, "first", None).await;
    let tail = engine.view(&user(), &first.conversation, 0).await.unwrap().last_seq;
    let ahead = engine.stream_conversation(&user(), &first.conversation, Some(tail.next())).await;
    assert!(matches!(ahead.err(), Some(EngineError::CursorAhead { tail: at }) if at == tail));
    let page = engine.events(&user(), &first.generation, Some(tail.next()), 10).await;
    assert!(matches!(page.err(), Some(EngineError::CursorAhead { tail: at }) if at == tail));
}

#[tokio::test(start_paused = true)]
async fn i12_a_page_of_events_is_limited_by_bytes_and_the_next_continues_after_it() {
    let long = "x".repeat(300_000);
    let engine = engine(vec![say(&[long.as_str(); 10])]);
    let started = ask(&engine, "hello", None).await;
    let (mut after, mut pages, mut seqs) = (None, 0, Vec::new());
    loop {
        let page = engine.events(&user(), &started.generation, after, 1_000).await.unwrap();
        let bytes: usize = page.records.iter().map(|record| record.bytes.len()).sum();
        assert!(bytes <= PAGE_BYTES, "{bytes} bytes");
        seqs.extend(page.records.iter().map(|record| record.seq.0));
        (after, pages) = (Some(page.after), pages + 1);
        if page.ended {
            break;
        }
    }
    assert!(pages >= 3, "3 MB on {pages} pages");
    let end = engine.generation(&user(), &started.generation).await.unwrap().last_seq;
    assert_eq!(seqs, (2..=end.0).collect::<Vec<_>>(), "the first event is the title");
}

#[tokio::test(start_paused = true)]
async fn i12_views_and_snapshots_are_limited_by_bytes_and_say_that_there_is_more() {
    let engine = engine(vec![say(&["ok"])]);
    let long = "x".repeat(300_000);
    let mut last = None;
    for _ in 0..6 {
        last = Some(ask(&engine, &long, last.as_ref()).await);
    }
    let started = last.unwrap();
    let view = engine.view(&user(), &started.conversation, 200).await.unwrap();
    let bytes = serde_json::to_vec(&view.messages).unwrap().len();
    assert!(view.has_more && bytes <= PAGE_BYTES, "{bytes} bytes, more: {}", view.has_more);
    assert_eq!(view.messages.last().unwrap().content, "ok", "the newest messages");

    let mut events = engine.stream_conversation(&user(), &started.conversation, None).await.unwrap();
    let snapshot = snapshot(&mut events).await;
    assert_eq!(snapshot["payload"]["hasMore"], true);
    assert!(snapshot.to_string().len() <= PAGE_BYTES + 16 * 1024, "{} bytes", snapshot.to_string().len());
}

#[tokio::test(start_paused = true)]
async fn g13_a_snapshot_of_a_trimmed_generation_is_limited_by_bytes() {
    let call = |n: usize| Step::Call {
        id: format!("call_{n}"),
        name: "write".into(),
        input: json!({"text": "x".repeat(200_000)}),
    };
    let engine = engine(vec![(0..12).map(call).chain([Step::Finish]).collect()]);
    let started = ask(&engine, "hello", None).await;
    tokio::time::sleep(5 * WEEK).await;
    engine.trim().await.unwrap();
    let mut events = engine.stream_generation(&user(), &started.generation, None).await.unwrap();
    let snapshot = snapshot(&mut events).await;
    let bytes = snapshot["payload"]["messages"].to_string().len();
    assert!((PAGE_BYTES / 2..PAGE_BYTES).contains(&bytes), "{bytes} bytes");
    assert_eq!(snapshot["payload"]["hasMore"], true);
    assert!(matches!(events.next().await, Err(StreamEnd::Complete)));
}

/// The same conversation in another store, where some lines of its log are garbage.
async fn damaged(store: &MemoryStore, started: &Started, lines: &[u64]) -> Arc<MemoryStore> {
    let (conversation, copy) = (started.conversation.clone(), Arc::new(MemoryStore::new()));
    let mut records = store.read(&conversation, Seq::ZERO, PAGE_BYTES).await.unwrap();
    for record in records.iter_mut().filter(|record| lines.contains(&record.seq.0)) {
        record.bytes = "no JSON".into();
    }
    let documents =
        [(Table::Conversations, conversation.as_str()), (Table::Generations, started.generation.as_str())];
    let mut changes = Vec::new();
    for (table, id) in documents {
        changes.push(Change::Put(store.get(table, id).await.unwrap().unwrap()));
    }
    let fence = copy.claim(&conversation).await.unwrap();
    copy.append(Append {
        conversation,
        fence,
        expected: Seq::ZERO,
        records,
        changes,
        replies: Vec::new(),
        limits: Vec::new(),
    })
    .await
    .unwrap();
    copy
}

#[tokio::test(start_paused = true)]
async fn i20_a_line_that_cannot_be_read_hides_no_other_and_its_position_is_passed_on() {
    let store = Arc::new(MemoryStore::new());
    let started = ask(&engine_on(store.clone(), vec![say(&["one", "two"])]), "hello", None).await;
    let last = store.read(&started.conversation, Seq::ZERO, PAGE_BYTES).await.unwrap().last().unwrap().seq;
    let engine = engine_on(damaged(&store, &started, &[4, 6]).await, Vec::new());

    let page = engine.events(&user(), &started.generation, None, 100).await.unwrap();
    let seqs: Vec<u64> = page.records.iter().map(|record| record.seq.0).collect();
    let expected: Vec<u64> = (2..=last.0).filter(|seq| ![4, 6].contains(seq)).collect();
    assert_eq!((seqs, page.ended), (expected, true));

    let mut events =
        engine.stream_conversation(&user(), &started.conversation, Some(Seq::ZERO)).await.unwrap();
    let mut next = 1;
    while next <= last.0 {
        let Frame::Events(batch) = events.next().await.unwrap() else { panic!("no events") };
        for (record, head) in batch.iter() {
            let line: Value = serde_json::from_slice(&record.bytes).unwrap();
            assert_eq!((&line["seq"], &line["type"]), (&json!(next), &json!(head.kind)));
            assert_eq!(head.kind == "event.unreadable", [4, 6].contains(&next), "{line}");
            next += 1;
        }
    }
    engine.stop().await;
}
