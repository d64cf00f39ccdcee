//! The engine on a paused clock and a store without faults: waiting, following, lagging, saving late.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

#[path = "engine/races.rs"]
mod races;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::poll_fn;
use outlast_core::{
    Context, ConversationId, Durability, GenerationDocument, GenerationStatus, Part, Retention, Seq,
    Timestamp, UserId, plain_text,
};
use outlast_engine::{
    Clock, Engine, EngineError, FollowError, Follower, Ids, Model, ModelStream, Models, Parts, ScriptedModel,
    Settings, StartRequest, Started, Step,
};
use outlast_store::{MemoryStore, Newest, Record, Store};

const MINUTE: Duration = Duration::from_secs(60);

struct Bench {
    engine: Engine,
    store: Arc<MemoryStore>,
}

impl Bench {
    fn new(script: Vec<Step>, settings: Settings) -> Bench {
        Bench::over(Arc::new(MemoryStore::new()), script, settings)
    }

    fn over(store: Arc<MemoryStore>, script: Vec<Step>, settings: Settings) -> Bench {
        Bench::with(store, Arc::new(ScriptedModel::new(vec![script])), settings)
    }

    fn with(store: Arc<MemoryStore>, model: Arc<dyn Model>, settings: Settings) -> Bench {
        let kept: Arc<dyn Store> = store.clone();
        let engine = Engine::new(Parts {
            store: kept,
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Err("no tools here".to_owned()),
            settings,
            clock: Clock::simulated(Timestamp(1_767_225_600_000)),
            ids: Ids::Counting(AtomicU64::new(0)),
        });
        Bench { engine, store }
    }

    async fn start(&self) -> Result<Started, EngineError> {
        let request = StartRequest::new(vec![Part::Text { text: "hello".into() }]);
        self.engine.start(&user(), request).await
    }

    async fn follow(&self, started: &Started) -> Follower {
        self.engine.follow_generation(&user(), &started.generation, None).await.unwrap()
    }

    async fn generation(&self, started: &Started) -> GenerationDocument {
        self.engine.generation(&user(), &started.generation).await.unwrap()
    }
}

fn user() -> UserId {
    "ann".into()
}

fn say(words: &[&str], pause: Duration) -> Vec<Step> {
    let spoken = words.iter().flat_map(|word| [Step::Wait(pause), Step::Say((*word).to_owned())]);
    spoken.chain([Step::Finish]).collect()
}

async fn read_to_end(follower: &mut Follower) -> Vec<Seq> {
    let mut seqs = Vec::new();
    while let Some(batch) = follower.next().await.unwrap() {
        seqs.extend(batch.records().iter().map(|record| record.seq));
    }
    seqs
}

#[tokio::test(start_paused = true)]
async fn g2_g4_a_generation_that_nobody_follows_is_finished_and_saved() {
    let bench = Bench::new(say(&["a", "b"], MINUTE), Settings::default());
    let started = bench.start().await.unwrap();
    tokio::time::sleep(3 * MINUTE).await;
    let generation = bench.generation(&started).await;
    assert_eq!(generation.status, GenerationStatus::Completed);
    assert_eq!(plain_text(generation.parts()), "ab");
    assert_eq!(bench.engine.owners(), 0, "a conversation at rest has no owner");
}

/// The document and the conversation are read one after the other, and the generation may end in between.
#[tokio::test(flavor = "multi_thread")]
async fn b3_a_completed_generation_is_always_read_with_its_text() {
    for _ in 0..300 {
        let bench = Bench::new(say(&["a", "b"], Duration::ZERO), Settings::default());
        let started = bench.start().await.unwrap();
        let read = async {
            loop {
                let generation = bench.generation(&started).await;
                if generation.status == GenerationStatus::Completed {
                    break plain_text(generation.parts());
                }
                tokio::task::yield_now().await;
            }
        };
        assert_eq!(tokio::time::timeout(MINUTE, read).await.unwrap(), "ab");
    }
}

#[tokio::test(start_paused = true)]
async fn g9_x7_a_long_answer_is_not_replayed_from_the_start() {
    for durability in [Durability::Commit, Durability::Debounce(Duration::from_secs(1)), Durability::Boundary]
    {
        // Each small word is an event, so the log is many times longer than the text.
        let script = say(&["some twenty bytes "; 45_000], Duration::from_millis(1));
        let bench = Bench::new(script, Settings { durability, ..Settings::default() });
        let started = bench.start().await.unwrap();
        tokio::time::sleep(Duration::from_secs(43)).await;
        let generation = bench.generation(&started).await;
        assert_eq!(generation.status, GenerationStatus::Running);
        let size = |records: &[Record]| records.iter().map(|record| record.bytes.len()).sum::<usize>() >> 20;
        let loaded = bench.store.load(&started.conversation, Newest::NONE).await.unwrap().unwrap();
        let log = bench.store.read(&started.conversation, Seq::ZERO, usize::MAX).await.unwrap();
        let (log, replayed) = (size(&log), size(&loaded.records));
        assert!(log >= 6 && replayed <= 4, "{durability:?}: {replayed} of {log} MiB");
    }
}

/// Panics in the middle of its first answer.
struct Clumsy(ScriptedModel);

impl Model for Clumsy {
    fn call(&self, context: Context) -> ModelStream {
        let first = self.0.calls() == 0;
        let answer = self.0.call(context);
        if first { answer.take(1).chain(poll_fn(|_| panic!("the model is broken"))).boxed() } else { answer }
    }
}

#[tokio::test(start_paused = true)]
async fn i10_an_owner_that_panics_is_replaced_without_a_request() {
    let model = Clumsy(ScriptedModel::saying(&["a", "b"], Duration::from_secs(1)));
    let bench = Bench::with(Arc::default(), Arc::new(model), Settings::default());
    let started = bench.start().await.unwrap();
    let mut follower = bench.follow(&started).await;
    let seqs = read_to_end(&mut follower).await;
    assert_eq!(seqs, (2..=seqs.len() as u64 + 1).map(Seq).collect::<Vec<_>>());
    let generation = bench.generation(&started).await;
    assert_eq!((generation.status, generation.attempt), (GenerationStatus::Completed, 2));
    assert_eq!(plain_text(generation.parts()), "ab");
}

#[tokio::test(start_paused = true)]
async fn g12_a_generation_without_followers_is_abandoned_and_a_followed_one_is_not() {
    let slow = || say(&["a", "b"], 29 * MINUTE);
    let settings = || Settings { upstream_idle: 60 * MINUTE, ..Settings::default() };
    let unwatched = Bench::new(slow(), settings());
    let lonely = unwatched.start().await.unwrap();
    let watched = Bench::new(slow(), settings());
    let popular = watched.start().await.unwrap();
    let mut follower = watched.follow(&popular).await;
    let seqs = read_to_end(&mut follower).await;
    assert_eq!(seqs, (2..=seqs.len() as u64 + 1).map(Seq).collect::<Vec<_>>());
    assert_eq!(watched.generation(&popular).await.status, GenerationStatus::Completed);

    let abandoned = unwatched.generation(&lonely).await;
    assert_eq!(abandoned.status, GenerationStatus::Cancelled);
    assert_eq!(abandoned.end_reason.as_deref(), Some("abandoned"));
    assert_eq!(plain_text(abandoned.parts()), "a", "what was said is kept");
}

#[tokio::test(start_paused = true)]
async fn b4_g11_silence_of_the_upstream_is_retried_and_ends_as_timed_out() {
    let bench = Bench::new(vec![Step::Say("a".into()), Step::Wait(1_000 * MINUTE)], Settings::default());
    let started = bench.start().await.unwrap();
    let mut follower = bench.follow(&started).await;
    read_to_end(&mut follower).await;
    let generation = bench.generation(&started).await;
    assert_eq!((generation.status, generation.attempt), (GenerationStatus::Error, 3));
    assert!(generation.error_message.as_ref().unwrap().contains("timed out"));
    assert_eq!(plain_text(generation.parts()), "a", "the last attempt's text is kept, once");
}

#[tokio::test(start_paused = true)]
async fn b4_i10_readers_that_connect_and_disconnect_do_not_extend_the_upstream_timeout() {
    let bench = Bench::new(vec![Step::Wait(1_000 * MINUTE)], Settings::default());
    let started = bench.start().await.unwrap();
    for _ in 0..10 {
        drop(bench.follow(&started).await);
        tokio::time::sleep(4 * MINUTE).await;
    }
    assert_eq!(bench.generation(&started).await.status, GenerationStatus::Error);
}

#[tokio::test(start_paused = true)]
async fn g13_i2_a_gap_is_never_skipped_silently() {
    let bench = Bench::new(say(&["a"], MINUTE), Settings::default());
    let first = bench.start().await.unwrap();
    let all = read_to_end(&mut bench.follow(&first).await).await;
    bench.store.trim(&first.conversation, Seq(3), Seq(4)).await.unwrap();

    let mut follower =
        bench.engine.follow_conversation(&user(), &first.conversation, Seq::ZERO).await.unwrap();
    let before = follower.next().await.unwrap().unwrap();
    assert_eq!(before.last(), Some(Seq(2)), "the events before the gap are read");
    assert!(matches!(follower.next().await, Err(FollowError::Trimmed { after: Seq(2) })));

    let mut own = bench.follow(&first).await; // its first event exists, so the gap belongs to another generation
    assert_eq!(read_to_end(&mut own).await.len(), all.len() - 2);
}

#[tokio::test(start_paused = true)]
async fn g13_a_reader_of_removed_events_is_told_and_messages_are_kept() {
    let bench = Bench::new(say(&["a"], MINUTE), Settings::default());
    let started = bench.start().await.unwrap();
    read_to_end(&mut bench.follow(&started).await).await;
    assert_eq!(bench.engine.trim().await.unwrap(), 0, "it is too early");
    tokio::time::sleep(8 * 24 * 60 * MINUTE).await;
    assert_eq!(bench.engine.trim().await.unwrap(), 1);
    assert_eq!(bench.engine.trim().await.unwrap(), 0, "a second pass changes nothing");
    assert!(matches!(bench.follow(&started).await.next().await, Err(FollowError::Trimmed { .. })));
    let page = bench.engine.events(&user(), &started.generation, None, 10).await.unwrap();
    assert_eq!((page.records.len(), page.ended), (0, true), "polling reports the end");
    let longer = Retention { completed: 60 * 24 * 60 * MINUTE, ..Settings::default().retention };
    let later =
        Bench::over(bench.store.clone(), vec![], Settings { retention: longer, ..Settings::default() });
    assert!(matches!(later.follow(&started).await.next().await, Err(FollowError::Trimmed { .. })));
    let (messages, _) = bench.engine.messages(&user(), &started.conversation, None, 10).await.unwrap();
    assert_eq!(messages.iter().map(|message| &*message.content).collect::<Vec<_>>(), ["hello", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_conversation_is_gone_and_stays_gone() {
    let bench = Bench::new(say(&["a"], MINUTE), Settings::default());
    let started = bench.start().await.unwrap();
    let mut follower = bench.follow(&started).await;
    bench.engine.delete_conversation(&user(), &started.conversation).await.unwrap();
    while let Ok(Some(_)) = follower.next().await {}
    drop(follower);
    let found = bench.engine.view(&user(), &started.conversation, 1).await;
    assert!(matches!(found, Err(EngineError::NotFound)));
    tokio::time::sleep(2 * MINUTE).await;
    assert!(bench.store.read(&started.conversation, Seq::ZERO, usize::MAX).await.unwrap().is_empty());
    assert_eq!(bench.engine.owners(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reader_of_a_deleted_empty_conversation_is_disconnected() {
    let bench = Bench::new(say(&["a"], MINUTE), Settings::default());
    let id = ConversationId::from("empty");
    bench.engine.create_if_missing(&user(), &id).await.unwrap();
    let mut follower = bench.engine.follow_conversation(&user(), &id, Seq(1)).await.unwrap();
    follower.check().await.unwrap();
    let reading = tokio::spawn(async move { follower.next().await.is_err() });
    tokio::task::yield_now().await;
    bench.engine.delete_conversation(&user(), &id).await.unwrap();
    assert!(tokio::time::timeout(MINUTE, reading).await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn o6_i12_a_lagging_reader_returns_to_the_log_and_misses_nothing() {
    let words = vec!["x"; 500];
    let bench = Bench::new(say(&words, Duration::from_millis(1)), Settings::default());
    let started = bench.start().await.unwrap();
    let mut lazy = bench.follow(&started).await;
    let mut quick = bench.follow(&started).await;
    lazy.next().await.unwrap().unwrap();
    let all = read_to_end(&mut quick).await; // meanwhile the other one reads nothing
    let rest = read_to_end(&mut lazy).await;
    assert_eq!(rest.last(), all.last());
    assert!(rest.windows(2).all(|pair| pair[1] == pair[0].next()));
}

#[tokio::test(start_paused = true)]
async fn b4_live_generations_of_one_user_are_limited() {
    let settings = Settings { live_generations_per_user: 2, ..Settings::default() };
    let bench = Bench::new(say(&["a"], MINUTE), settings);
    bench.start().await.unwrap();
    bench.start().await.unwrap();
    assert!(matches!(bench.start().await, Err(EngineError::TooManyLive { limit: 2 })));
    tokio::time::sleep(2 * MINUTE).await;
    bench.start().await.expect("ended generations do not count");
}

#[tokio::test(start_paused = true)]
async fn o6_readers_of_one_conversation_are_limited() {
    let settings = Settings { followers_per_conversation: 1, ..Settings::default() };
    let bench = Bench::new(say(&["a"], MINUTE), settings);
    let started = bench.start().await.unwrap();
    let first = bench.follow(&started).await;
    let second = bench.engine.follow_generation(&user(), &started.generation, None).await;
    assert!(matches!(second, Err(EngineError::TooManyReaders { limit: 1 })));
    drop(first);
    bench.follow(&started).await;
}

/// What a reader sees while text is saved late, and what is in the log at that moment.
async fn saved_late(durability: Durability, wait: Duration) -> (u64, u64) {
    let settings = Settings { durability, ..Settings::default() };
    let words = vec!["x"; 10];
    let bench = Bench::new(say(&words, Duration::from_millis(100)), settings);
    let started = bench.start().await.unwrap();
    let mut follower = bench.follow(&started).await;
    let mut seen = 0;
    let watching = async {
        while let Some(batch) = follower.next().await.unwrap() {
            seen = batch.last().unwrap().0;
        }
    };
    tokio::time::timeout(wait, watching).await.ok();
    let saved = bench.store.read(&started.conversation, Seq::ZERO, usize::MAX).await.unwrap().len() as u64;

    let mut late = bench.follow(&started).await; // a second reader also gets unsaved text
    let all = read_to_end(&mut late).await;
    assert_eq!(all, (2..=all.len() as u64 + 1).map(Seq).collect::<Vec<_>>(), "the first event is the title");
    let log = bench.store.read(&started.conversation, Seq(1), usize::MAX).await.unwrap();
    assert!(log.iter().map(|record| record.seq).take(all.len()).eq(all), "everything is saved at the end");
    assert_eq!(plain_text(bench.generation(&started).await.parts()), "xxxxxxxxxx");
    (seen, saved)
}

#[tokio::test(start_paused = true)]
async fn g10_commit_shows_nothing_that_is_not_saved() {
    let (seen, saved) = saved_late(Durability::Commit, Duration::from_millis(550)).await;
    assert!(seen > 5 && seen <= saved, "{seen} seen, {saved} saved");
}

#[tokio::test(start_paused = true)]
async fn g10_debounce_saves_text_a_little_later() {
    let delay = Duration::from_millis(300);
    let (seen, saved) = saved_late(Durability::Debounce(delay), Duration::from_millis(450)).await;
    assert!(seen > saved, "{seen} seen, {saved} saved");
    let (seen, saved) = saved_late(Durability::Debounce(delay), Duration::from_millis(550)).await;
    assert!(saved >= 8, "{seen} seen, {saved} saved");
}

#[tokio::test(start_paused = true)]
async fn g10_boundary_saves_text_when_its_segment_closes() {
    let (seen, saved) = saved_late(Durability::Boundary, Duration::from_millis(950)).await;
    assert!(seen > 10 && saved == 6, "{seen} seen, {saved} saved");
}
