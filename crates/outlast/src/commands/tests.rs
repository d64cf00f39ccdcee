use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Part, Seq};
use outlast_engine::{Clock, DemoModel, Engine, Ids, Models, Parts, Settings, StartRequest};
use outlast_store::{MemoryStore, Store};

use super::export::ExportCommand;
use super::import::{Imported, import};

async fn exported(store: &dyn Store) -> String {
    let mut out = Vec::new();
    ExportCommand::everything().write(store, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

/// A store with one finished conversation, whose first events are removed if `trims`.
async fn store_with_a_conversation(trims: bool) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new());
    let model: Arc<dyn outlast_engine::Model> = Arc::new(DemoModel::with_pace(Duration::ZERO));
    let engine = Engine::new(Parts {
        store: store.clone(),
        models: Models::new([("default".to_owned(), model)].into()),
        workshop: Err("no tools here".to_owned()),
        settings: Settings::default(),
        clock: Clock::System,
        ids: Ids::Random,
    });
    let said = vec![Part::Text { text: "hello \u{1F600} \"quoted\"".to_owned() }];
    let started = engine.start(&"ann".into(), StartRequest::new(said)).await.unwrap();
    let mut events = engine.stream_generation(&"ann".into(), &started.generation, None).await.unwrap();
    while events.next().await.is_ok() {}
    engine.stop().await;
    if trims {
        store.trim(&started.conversation, Seq(2), Seq(4)).await.unwrap();
    }
    store
}

#[tokio::test]
async fn what_was_exported_can_be_imported_and_exported_again_byte_for_byte() {
    for trims in [false, true] {
        let first = exported(&*store_with_a_conversation(trims).await).await;
        assert!(first.lines().count() > 8, "{first}");
        let second = MemoryStore::new();
        let done = import(&second, first.as_bytes()).await.unwrap();
        assert_eq!(done, Imported { written: 1, existed: 0 });
        assert_eq!(exported(&second).await, first);
        let again = import(&second, first.as_bytes()).await.unwrap();
        assert_eq!(again, Imported { written: 0, existed: 1 });
        assert_eq!(exported(&second).await, first, "what exists is left as it is");
    }
}

#[tokio::test]
async fn an_export_that_was_cut_off_or_damaged_is_refused_and_can_be_imported_later() {
    let whole = exported(&*store_with_a_conversation(false).await).await;
    let lines: Vec<&str> = whole.lines().collect();
    let store = MemoryStore::new();
    for end in 1..lines.len() {
        let cut = lines[..end].join("\n");
        let outcome = import(&store, cut.as_bytes()).await;
        assert!(end == 1 || outcome.is_err(), "{end} lines");
    }
    for damaged in [
        whole.replace("\"version\":1", "\"version\":2"),
        lines[1..].join("\n"),
        [&lines[..2], &lines[1..]].concat().join("\n"),
        whole.replace("{\"event\":", "{\"evil\":"),
        "not JSON".to_owned(),
    ] {
        assert!(import(&store, damaged.as_bytes()).await.is_err(), "{damaged}");
    }
    assert_eq!(import(&store, whole.as_bytes()).await.unwrap().written, 1);
    assert_eq!(exported(&store).await, whole);
}
