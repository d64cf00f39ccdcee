//! Several engines on one store and a paused clock: any of them serves anyone, and a dead one is replaced.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{
    Event, GenerationStatus, NotificationKind, Part, Producer, Retention, Rules, Seq, Timestamp, UserId,
    WhenBusy, decode, plain_text,
};
use outlast_engine::{
    Clock, Engine, EngineError, Follower, Ids, Model, Models, Parts, ScriptedModel, Settings, StartRequest,
    Started, Step, WorkerBatch,
};
use outlast_store::{FaultyStore, Item, ItemQuery, Items, MemoryStore, Rates, Store};
use tokio::runtime::Runtime;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(15);

/// Three instances on one store and one model.
struct Cluster {
    store: MemoryStore,
    model: Arc<ScriptedModel>,
    settings: Settings,
    clock: Clock,
    joined: u64,
}

impl Cluster {
    fn new(script: Vec<Step>, settings: Settings) -> Cluster {
        let model = Arc::new(ScriptedModel::new(vec![script]));
        let clock = Clock::simulated(Timestamp(1_767_225_600_000));
        Cluster { store: MemoryStore::new(), model, settings, clock, joined: 0 }
    }

    async fn join(&mut self) -> Engine {
        let engine = self.engine();
        engine.take_up().await.unwrap();
        engine
    }

    fn engine(&mut self) -> Engine {
        let store = self.store.join(&format!("instance {}", self.joined + 1));
        self.engine_on(Arc::new(store))
    }

    fn engine_on(&mut self, store: Arc<dyn Store>) -> Engine {
        self.joined += 1;
        let model: Arc<dyn Model> = self.model.clone();
        Engine::new(Parts {
            store,
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Err("no tools here".to_owned()),
            settings: self.settings.clone(),
            clock: self.clock,
            ids: Ids::Counting(AtomicU64::new(1_000 * self.joined)),
        })
    }
}

impl Cluster {
    async fn log(&self, started: &Started) -> Vec<Event> {
        let records = self.store.read(&started.conversation, Seq::ZERO, usize::MAX).await.unwrap();
        records.iter().map(|record| decode(&record.bytes).unwrap().event).collect()
    }
}

fn user() -> UserId {
    "ann".into()
}

fn say(words: usize, pause: Duration) -> Vec<Step> {
    let spoken = (0..words).flat_map(|word| [Step::Wait(pause), Step::Say(format!("{word} "))]);
    spoken.chain([Step::Finish]).collect()
}

async fn start(engine: &Engine) -> Started {
    try_start(engine, None).await.unwrap()
}

async fn try_start(engine: &Engine, request: Option<&str>) -> Result<Started, EngineError> {
    let request = StartRequest {
        request: request.map(Into::into),
        ..StartRequest::new(vec![Part::Text { text: "hello".into() }])
    };
    engine.start(&user(), request).await
}

async fn follow(engine: &Engine, started: &Started) -> Follower {
    engine.follow_generation(&user(), &started.generation, None).await.unwrap()
}

async fn read_to_end(mut follower: Follower) -> Vec<(Seq, Bytes)> {
    let mut seen = Vec::new();
    while let Some(batch) = follower.next().await.unwrap() {
        seen.extend(batch.records().iter().map(|record| (record.seq, record.bytes.clone())));
    }
    seen
}

fn kinds(seen: &[(Seq, Bytes)]) -> Vec<Event> {
    seen.iter().map(|(_, bytes)| decode(bytes).unwrap().event).collect()
}

#[tokio::test(start_paused = true)]
async fn x2_a_follower_at_another_instance_gets_the_same_bytes_live() {
    let mut cluster = Cluster::new(say(20, SECOND), Settings::default());
    let (a, b) = (cluster.join().await, cluster.join().await);
    let started = start(&a).await;
    let mut live = follow(&b, &started).await;
    let first = live.next().await.unwrap().unwrap();
    assert!(!first.records().iter().any(|record| decode(&record.bytes).unwrap().event.is_end()));
    let (at_a, at_b) = tokio::join!(read_to_end(follow(&a, &started).await), read_to_end(live));
    assert!(at_a.ends_with(&at_b) && at_b.len() >= 20, "{} and {}", at_a.len(), at_b.len());
    assert_eq!(cluster.model.calls(), 1);
    assert_eq!((a.owners(), b.owners()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn i19_a_cancel_at_another_instance_is_carried_out_once() {
    let mut cluster = Cluster::new(say(100, SECOND), Settings::default());
    let (a, b) = (cluster.join().await, cluster.join().await);
    let started = start(&a).await;
    let reading = tokio::spawn(read_to_end(follow(&b, &started).await));
    tokio::time::sleep(5 * SECOND).await;
    let cancelled = b.cancel(&user(), &started.generation).await.unwrap();
    assert!(cancelled.success);
    let again = b.cancel(&user(), &started.generation).await.unwrap();
    assert!(!again.success && again.status == GenerationStatus::Cancelled, "{again:?}");
    let seen = reading.await.unwrap();
    assert!(matches!(kinds(&seen).last(), Some(Event::ChatCancelled { .. })));
    assert_eq!(kinds(&seen).iter().filter(|event| event.is_end()).count(), 1);
    assert_eq!((a.owners(), b.owners()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn i19_every_command_reaches_the_owner() {
    let mut cluster = Cluster::new(say(3, SECOND), Settings::default());
    let (a, b) = (cluster.join().await, cluster.join().await);
    let brief = outlast_core::Brief { producer: Some(Producer::External), ..Default::default() };
    let request = StartRequest { brief, ..StartRequest::new(vec![Part::Text { text: "hello".into() }]) };
    let started = a.start(&user(), request).await.unwrap();
    let (conversation, generation) = (&started.conversation, &started.generation);
    b.update_conversation(&user(), conversation, Some(Some("Renamed".into())), None).await.unwrap();
    b.update_conversation(&user(), conversation, None, None).await.expect("a command without events");
    let position = b.claim(&user(), generation, false).await.unwrap();
    let batch = |expected, text: &str| WorkerBatch {
        epoch: position.epoch,
        expected,
        pieces: vec![outlast_core::Piece::Text {
            kind: outlast_core::TextKind::Answer,
            text: text.to_owned(),
            chunks: 1,
        }],
        end: None,
    };
    let first = b.produce(&user(), generation, batch(Some(position.last), "so ")).await.unwrap();
    let stale = b.produce(&user(), generation, batch(Some(position.last), "so ")).await;
    assert!(matches!(stale, Err(EngineError::Refused(_))), "{stale:?}");
    let heartbeat = WorkerBatch { pieces: Vec::new(), expected: None, ..batch(None, "") };
    b.produce(&user(), generation, heartbeat).await.unwrap();
    a.produce(&user(), generation, batch(Some(first.last), "far")).await.unwrap();
    assert!(b.cancel(&user(), generation).await.unwrap().success);
    let retried = b.retry(&user(), generation, outlast_core::RetryMode::Continue, None, None).await.unwrap();
    let queued = StartRequest {
        conversation: Some(conversation.clone()),
        when_busy: WhenBusy::Queue,
        ..StartRequest::new(vec![Part::Text { text: "and?".into() }])
    };
    let queued = a.start(&user(), queued).await.unwrap();
    assert!(a.cancel(&user(), &retried.generation).await.unwrap().success);
    let seen = read_to_end(follow(&b, &queued).await).await;
    assert!(matches!(kinds(&seen).last(), Some(Event::ChatDone { .. })));
    let view = b.view(&user(), conversation, 10).await.unwrap();
    assert_eq!(view.conversation.title.as_deref(), Some("Renamed"));
    assert!(view.messages.iter().any(|message| plain_text(&message.parts) == "so far"));

    let busy = StartRequest {
        conversation: Some(conversation.clone()),
        ..StartRequest::new(vec![Part::Text { text: "more".into() }])
    };
    a.start(&user(), busy).await.unwrap();
    b.delete_conversation(&user(), conversation).await.unwrap();
    for engine in [&a, &b] {
        let gone = engine.view(&user(), conversation, 1).await;
        assert!(matches!(gone, Err(EngineError::NotFound)), "{gone:?}");
    }
}

/// Starts a generation at an instance that dies: it renews its lease once and never again, and its tasks end with their
/// runtime.
fn start_and_die_after(instance: &Engine, lives: Duration) -> Started {
    std::thread::scope(|scope| {
        let life = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                instance.take_up().await.unwrap();
                let started = start(instance).await;
                tokio::time::sleep(lives).await;
                started
            })
        });
        life.join().unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn b6_x2_one_cause_makes_one_notification_whenever_its_instance_dies() {
    // The answer takes 3 s: the instance dies before, around and after its end.
    for lives_ms in [500, 2_500, 2_999, 3_000, 3_001, 3_002, 3_500, 6_000] {
        let mut cluster = Cluster::new(say(3, SECOND), Settings::default());
        let started = start_and_die_after(&cluster.engine(), Duration::from_millis(lives_ms));
        let (b, c) = (cluster.join().await, cluster.join().await);
        let mut waited = 0;
        while b.notifications(&user()).await.unwrap().notifications.is_empty() {
            tokio::time::sleep(SECOND).await;
            waited += 1;
            assert!(waited < 60, "died after {lives_ms} ms: nobody was told");
        }
        tokio::time::sleep(60 * SECOND).await;
        let told = c.notifications(&user()).await.unwrap().notifications;
        let told: Vec<_> = told.iter().map(|one| (one.kind, &one.generation_id)).collect();
        assert_eq!(told, [(NotificationKind::Completed, &started.generation)], "died after {lives_ms} ms");
        b.stop().await;
        c.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn x2_what_a_dead_instance_did_is_taken_over_after_its_lease() {
    let mut cluster = Cluster::new(say(60, SECOND), Settings::default());
    let started = start_and_die_after(&cluster.engine(), 4 * SECOND);
    let b = cluster.join().await;
    let reader = follow(&b, &started).await;
    let cancelling = tokio::time::Instant::now();
    let renamed =
        b.update_conversation(&user(), &started.conversation, Some(Some("Later".into())), None).await;
    renamed.expect("a command waits for the takeover");
    let took = cancelling.elapsed();
    assert!(took > LEASE - 5 * SECOND && took < LEASE + 5 * SECOND, "{took:?}");
    let seen = read_to_end(reader).await;
    let starts = kinds(&seen).iter().filter(|event| matches!(event, Event::ChatStarted { .. })).count();
    assert_eq!((starts, cluster.model.calls()), (2, 2));
    assert!(matches!(kinds(&seen).last(), Some(Event::ChatDone { .. })));
}

#[tokio::test(start_paused = true)]
async fn x2_an_instance_that_stops_hands_over_at_once_and_a_hundred_deploys_lose_nothing() {
    let mut cluster = Cluster::new(say(30, SECOND), Settings::default());
    let mut owner = cluster.join().await;
    let started = start(&owner).await;
    for _ in 0..30 {
        let next = cluster.join().await;
        tokio::time::sleep(2 * SECOND).await;
        let stopped = tokio::time::Instant::now();
        owner.stop().await;
        while next.owners() == 0 {
            tokio::time::sleep(SECOND / 100).await;
        }
        assert!(stopped.elapsed() < SECOND, "{:?}", stopped.elapsed());
        owner = next;
    }
    let seen = read_to_end(follow(&owner, &started).await).await;
    assert!(matches!(kinds(&seen).last(), Some(Event::ChatDone { .. })));
    assert_eq!(cluster.model.calls(), 31);
}

#[tokio::test(start_paused = true)]
async fn b4_a_limit_holds_over_three_instances() {
    let settings = Settings { live_generations_per_user: 5, ..Settings::default() };
    let mut cluster = Cluster::new(say(60, SECOND), settings);
    let engines = [cluster.join().await, cluster.join().await, cluster.join().await];
    let starts = (0..30).map(|number| {
        let engine = engines[number % 3].clone();
        tokio::spawn(async move { try_start(&engine, None).await })
    });
    let starts: Vec<_> = starts.collect();
    let mut accepted = 0;
    for start in starts {
        match start.await.unwrap() {
            Ok(_) => accepted += 1,
            Err(EngineError::TooManyLive { limit: 5 }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(accepted, 5);
}

#[tokio::test(start_paused = true)]
async fn i4_equal_starts_at_three_instances_make_one_generation() {
    let mut cluster = Cluster::new(say(3, SECOND), Settings::default());
    let engines = [cluster.join().await, cluster.join().await, cluster.join().await];
    let starts = (0..30).map(|number| {
        let engine = engines[number % 3].clone();
        tokio::spawn(async move { try_start(&engine, Some("once")).await.unwrap() })
    });
    let starts: Vec<_> = starts.collect();
    let mut made = std::collections::BTreeSet::new();
    for start in starts {
        made.insert(start.await.unwrap().generation);
    }
    assert_eq!(made.len(), 1);
    tokio::time::sleep(10 * SECOND).await;
    assert_eq!(cluster.model.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn g12_a_follower_at_another_instance_keeps_a_generation_alive() {
    let rules = Rules { unwatched: Duration::from_secs(60), ..Rules::default() };
    let mut cluster =
        Cluster::new(say(2, Duration::from_secs(250)), Settings { rules, ..Settings::default() });
    let (a, b) = (cluster.join().await, cluster.join().await);
    let (watched, alone) = (start(&a).await, start(&a).await);
    let seen = read_to_end(follow(&b, &watched).await).await;
    assert!(matches!(kinds(&seen).last(), Some(Event::ChatDone { .. })));
    let alone = b.generation(&user(), &alone.generation).await.unwrap();
    assert_eq!(alone.status, GenerationStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn x2_an_instance_leaves_what_it_cannot_read_to_a_newer_one() {
    let mut cluster = Cluster::new(say(3, SECOND), Settings::default());
    let a = cluster.join().await;
    let started = start(&a).await;
    tokio::time::sleep(10 * SECOND).await;
    let newer = cluster.store.join("newer");
    newer.renew(LEASE).await.unwrap();
    let fence = newer.claim(&started.conversation).await.unwrap();
    let last = newer.load(&started.conversation, outlast_store::Newest::NONE).await.unwrap().unwrap().last;
    let line = format!(
        r#"{{"seq":{},"ts":"2026-01-01T00:00:00.000Z","generationId":null,"requestId":null,"type":"tea.made","payload":{{}}}}"#,
        last.next()
    );
    newer
        .append(outlast_store::Append {
            conversation: started.conversation.clone(),
            fence,
            expected: last,
            records: vec![outlast_store::Record { seq: last.next(), bytes: line.into() }],
            changes: Vec::new(),
            replies: Vec::new(),
            limits: Vec::new(),
        })
        .await
        .unwrap();
    newer.release(&started.conversation, fence).await.unwrap();
    let refused = a.update_conversation(&user(), &started.conversation, Some(Some("no".into())), None).await;
    assert!(matches!(refused, Err(EngineError::Broken(_))), "{refused:?}");
    newer.claim(&started.conversation).await.expect("the older instance gave it back");
}

#[tokio::test(start_paused = true)]
async fn g13_housekeeping_has_one_holder() {
    let retention = Retention { completed: 60 * SECOND, error: 60 * SECOND };
    let mut cluster = Cluster::new(say(1, SECOND), Settings { retention, ..Settings::default() });
    let (a, b) = (cluster.join().await, cluster.join().await);
    start(&a).await;
    tokio::time::sleep(70 * SECOND).await;
    let trimmed = (a.trim().await.unwrap(), b.trim().await.unwrap());
    assert_eq!(trimmed, (1, 0));
    a.stop().await;
    start(&b).await;
    tokio::time::sleep(70 * SECOND).await;
    assert_eq!(b.trim().await.unwrap(), 1);
}

/// The instances that an engine shows: name, lease, version and live generations.
async fn shown(engine: &Engine) -> Vec<(String, bool, String, usize)> {
    let instances = engine.instances(engine.about("this", Timestamp(0))).await.unwrap();
    let row = |one: outlast_engine::Instance| {
        let about = one.about.unwrap();
        (one.id, one.has_lease, about.version, about.live)
    };
    instances.into_iter().map(row).collect()
}

#[tokio::test(start_paused = true)]
async fn x6_operators_see_every_instance_what_it_holds_and_which_one_died() {
    let mut cluster = Cluster::new(say(600, SECOND), Settings::default());
    let (a, b) = (cluster.join().await, cluster.join().await);
    a.introduce("1.0");
    b.introduce("1.1");
    start(&b).await;
    tokio::time::sleep(6 * SECOND).await;
    let row = |id: &str, has_lease, version: &str, live| (id.to_owned(), has_lease, version.to_owned(), live);
    assert_eq!(shown(&a).await, [row("instance 1", true, "this", 0), row("instance 2", true, "1.1", 1)]);
    a.stop().await;
    assert_eq!(shown(&b).await, [row("instance 2", true, "this", 1)], "one that stopped is not shown");
    // An instance that dies leaves its item behind, and its lease expires.
    let left = cluster.store.list_items(ItemQuery::newest("instance", 10)).await.unwrap().items.remove(0);
    let soon = Some(cluster.clock.now().after(60 * SECOND).0); // instead of a day
    let dead = Item { id: "instance 0".to_owned(), version: 0, due: soon, ..left };
    cluster.store.put_item(dead).await.unwrap();
    assert_eq!(shown(&b).await[1], row("instance 0", false, "1.1", 1));
    tokio::time::sleep(62 * 60 * SECOND).await;
    assert_eq!(shown(&b).await, [row("instance 2", true, "this", 0)], "it is forgotten");
    b.stop().await;
}

/// Instances whose clocks stand still while they are not run. The store's clock is that of the cluster.
struct Apart {
    cluster: Cluster,
    now: Arc<AtomicU64>,
}

impl Apart {
    fn new(script: Vec<Step>) -> Apart {
        let now = Arc::new(AtomicU64::new(0));
        let clock = now.clone();
        let store = MemoryStore::with_clock(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
        let cluster = runtime().block_on(async { Cluster::new(script, Settings::default()) });
        Apart { cluster: Cluster { store, ..cluster }, now }
    }

    fn join(&mut self) -> (Runtime, Engine) {
        let runtime = runtime();
        let engine = runtime.block_on(async {
            self.cluster.clock = Clock::simulated(Timestamp(1_767_225_600_000));
            self.cluster.join().await
        });
        (runtime, engine)
    }

    /// Runs one instance for a while, and nobody else.
    fn run(&self, runtime: &Runtime, seconds: u64) {
        for _ in 0..10 * seconds {
            self.now.fetch_add(100, Ordering::SeqCst);
            runtime.block_on(async { tokio::time::sleep(SECOND / 10).await });
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

#[test]
fn x2_i6_an_instance_that_stood_still_ends_its_call_as_soon_as_it_goes_on() {
    let silent = vec![Step::Wait(3_600 * SECOND), Step::Say("late".to_owned()), Step::Finish];
    let mut apart = Apart::new(silent);
    let (first, a) = apart.join();
    let (second, b) = apart.join();
    first.block_on(start(&a));
    apart.run(&first, 2);
    assert_eq!((apart.cluster.model.live(), a.owners()), (1, 1));
    apart.run(&second, 20);
    assert_eq!((apart.cluster.model.live(), b.owners()), (2, 1), "the other one has taken over");
    // It goes on: its clock has moved, and its timers ring. The model says nothing, so there is nothing to write.
    first.block_on(async {
        tokio::time::advance(20 * SECOND).await;
        tokio::time::sleep(SECOND / 100).await;
    });
    assert_eq!(apart.cluster.model.live(), 1, "the call of the former owner has ended");
    apart.run(&first, 2);
    assert_eq!((a.owners(), b.owners(), apart.cluster.model.calls()), (0, 1, 2));
}

#[test]
fn x2_g11_an_answer_that_ended_with_the_lease_of_its_own_instance_is_not_lost() {
    let mut apart = Apart::new(vec![Step::Wait(3_600 * SECOND), Step::Finish]);
    let (runtime, a) = apart.join();
    let started = runtime.block_on(start(&a));
    // More often than attempts may be lost in a row.
    for _ in 0..12 {
        apart.run(&runtime, 2);
        apart.now.fetch_add(20_000, Ordering::SeqCst);
        runtime.block_on(async { tokio::time::advance(20 * SECOND).await });
        apart.run(&runtime, 2);
    }
    let log = runtime.block_on(apart.cluster.log(&started));
    let handed_over = |event: &&Event| matches!(event, Event::RetryScheduled { handed_over: true, .. });
    assert_eq!(log.iter().filter(handed_over).count(), 12, "{log:?}");
    assert!(!log.iter().any(|event| matches!(event, Event::ChatInterrupted { .. })));
    assert_eq!((apart.cluster.model.calls(), apart.cluster.model.live()), (13, 1));
}

#[tokio::test(start_paused = true)]
async fn b6_a_follower_at_another_instance_is_watching_until_it_leaves() {
    let mut cluster = Cluster::new(say(20, SECOND), Settings::default());
    let (a, b) = (cluster.join().await, cluster.join().await);
    let (watched, left, alone) = (start(&a).await, start(&a).await, start(&a).await);
    let leaving = follow(&b, &left).await;
    let reading = tokio::spawn(read_to_end(follow(&b, &watched).await));
    tokio::time::sleep(10 * SECOND).await;
    drop(leaving);
    reading.await.unwrap();
    tokio::time::sleep(10 * SECOND).await;
    let mut owed = Vec::new();
    for started in [&watched, &left, &alone] {
        let log = cluster.log(started).await;
        owed.push(log.iter().filter(|event| matches!(event, Event::NotificationOwed { .. })).count());
    }
    assert_eq!(owed, [0, 1, 1], "watched to the end, left before it, never watched");
}

#[tokio::test(start_paused = true)]
async fn x2_i10_an_instance_keeps_its_lease_while_it_takes_over_many_generations_from_a_slow_store() {
    const MANY: usize = 300;
    let settings = Settings { live_generations_per_user: MANY, ..Settings::default() };
    let mut cluster = Cluster::new(say(1, 3_600 * SECOND), settings);
    let dying = cluster.engine(); // without a lease
    for _ in 0..MANY {
        start(&dying).await;
    }
    dying.stop().await;

    let slow = Arc::new(FaultyStore::new(Arc::new(cluster.store.join("slow")), 1));
    slow.set_rates(Rates { delayed: 1_000, delay_at_most: 2 * SECOND, ..Rates::default() });
    let engine = cluster.engine_on(slow.clone());
    let (began, taking) = (tokio::time::Instant::now(), engine.clone());
    let taking = tokio::spawn(async move { taking.take_up().await.unwrap() });
    tokio::time::sleep(5 * SECOND).await;
    while !taking.is_finished() || cluster.model.live() < MANY {
        let live = cluster.store.others().await.unwrap();
        assert!(live.contains(slow.instance()), "its lease ran out after {:?}", began.elapsed());
        assert!(began.elapsed() < 3_000 * SECOND, "{} of {MANY} go on", cluster.model.live());
        tokio::time::sleep(SECOND).await;
    }
    assert_eq!(taking.await.unwrap(), MANY);
    assert!(began.elapsed() > 2 * LEASE, "it took only {:?}", began.elapsed());
    assert!(slow.most_at_once() < 64, "{} calls at once", slow.most_at_once());
    assert_eq!(cluster.model.calls(), 2 * MANY, "nothing was taken over twice");
}
