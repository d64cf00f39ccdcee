//! Everything that can happen to a question at the same time: two decisions, a cancel, the pause and the removal of the
//! sandbox, and a worker that asks something else under the same id. One of them wins, and nothing runs before an
//! approval is durable.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use outlast_core::{
    Approval, Brief, ConversationId, Decided, Decision, Entry, Event, GenerationId, GenerationStatus, Part,
    Piece, Place, Policy, Producer, Refusal, Rules, Seq, Timestamp, ToolRule, decode,
};
use outlast_engine::checkpoints::Checkpoints;
use outlast_engine::sandbox::{Act, MemorySandboxes, Outcome, Output};
use outlast_engine::{
    Clock, Engine, EngineError, Ids, Model, Models, Parts, ScriptedModel, Settings, StartRequest, Started,
    Step, ToolDecision, WorkerBatch, Workshop,
};
use outlast_store::{MemoryStore, Store};
use serde_json::json;

use super::user;

/// How often each race is run.
const RACES: u64 = 120;
/// When the sandbox is paused, and how much later it is removed.
const PAUSE: Duration = Duration::from_millis(1_000);
const KILL: Duration = Duration::from_millis(1_000);
/// The moments at which racers start: together, and just before, at and after each timer.
const MOMENTS: [u64; 9] = [0, 0, 1, 999, 1_000, 1_001, 1_999, 2_000, 2_001];

const CALL: &str = "call_1";

/// The numbers of a race: the same in every run.
struct Dice(u64);

impl Dice {
    fn moment(&mut self) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis(MOMENTS[usize::try_from(self.0 >> 33).unwrap() % MOMENTS.len()])
    }
}

fn entries(store: &MemoryStore, conversation: &ConversationId) -> Vec<Entry> {
    let read = store.read(conversation, Seq::ZERO, usize::MAX).now_or_never();
    let read = read.expect("memory answers at once").unwrap();
    read.iter().map(|record| decode(&record.bytes).unwrap()).collect()
}

fn is_approval(event: &Event) -> bool {
    matches!(event, Event::ApprovalResolved { decision: Decision::Approve, .. })
}

/// An engine whose only tool asks first. What runs looks into the log: is there an approval?
struct Bench {
    engine: Engine,
    store: Arc<MemoryStore>,
    /// How often the tool ran, and how often without an approval in the log.
    ran: Arc<AtomicUsize>,
    too_early: Arc<AtomicUsize>,
}

impl Bench {
    fn new(folder: &Path) -> Bench {
        let store = Arc::new(MemoryStore::new());
        let (ran, too_early) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let sandboxes = folder.join("sandboxes");
        std::fs::create_dir(&sandboxes).unwrap();
        let (log, runs, early) = (store.clone(), ran.clone(), too_early.clone());
        let script = move |execution: &outlast_engine::sandbox::Execution| {
            if execution.program.iter().any(|word| word.contains("dangerous")) {
                let approved = entries(&log, &"conv".into()).iter().any(|entry| is_approval(&entry.event));
                runs.fetch_add(1, Ordering::SeqCst);
                early.fetch_add(usize::from(!approved), Ordering::SeqCst);
            }
            let write = Act::Write(Output::Stdout, Bytes::from_static(b"done\n"));
            vec![(Duration::ZERO, write), (Duration::from_millis(1), Act::End(Outcome::Exited { code: 0 }))]
        };
        let workshop = Workshop {
            sandboxes: MemorySandboxes::new(Box::new(script), sandboxes),
            checkpoints: Checkpoints::in_folder(&folder.join("checkpoints")).unwrap(),
            tool_timeout: Duration::from_secs(60),
        };
        let rule = ToolRule {
            place: Place::Sandbox,
            read_only: false,
            idempotent: false,
            policy: Policy::Ask,
            rules: Vec::new(),
            shell_argument: None,
        };
        let tools = [("bash".to_owned(), rule)].into();
        let rules = Rules { tools, approval_pause: PAUSE, sandbox_kill: KILL, ..Rules::default() };
        let input = json!({"command": "dangerous"});
        let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(vec![
            vec![Step::Call { id: CALL.into(), name: "bash".into(), input }, Step::Finish],
            vec![Step::Say("Done.".into()), Step::Finish],
        ]));
        let engine = Engine::new(Parts {
            store: store.clone(),
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Ok(workshop),
            settings: Settings { rules, ..Settings::default() },
            clock: Clock::simulated(Timestamp(1_767_225_600_000)),
            ids: Ids::Counting(AtomicU64::new(0)),
        });
        Bench { engine, store, ran, too_early }
    }

    async fn start(&self, producer: Option<Producer>) -> Started {
        let request = StartRequest {
            conversation: Some("conv".into()),
            create: true,
            brief: Brief { producer, ..Brief::default() },
            ..StartRequest::new(vec![Part::Text { text: "go".into() }])
        };
        self.engine.start(&user(), request).await.unwrap()
    }

    /// Waits for the question.
    async fn asked(&self, id: &GenerationId) -> Approval {
        loop {
            let document = self.engine.generation(&user(), id).await.unwrap();
            if let Some(asked) = document.pending_approval {
                return asked;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn decide(
        &self,
        id: &GenerationId,
        hash: &str,
        decision: Decision,
        at: Duration,
    ) -> Result<(), Refusal> {
        tokio::time::sleep(at).await;
        let decided = Decided { decision, by: "ann".into(), reason: None, always: false, pattern: None };
        let decision = ToolDecision { tool_use_id: CALL.into(), hash: Some(hash.to_owned()), decided };
        match self.engine.decide(&user(), id, decision).await {
            Ok(_) => Ok(()),
            Err(EngineError::Refused(refusal)) => Err(refusal),
            Err(error) => panic!("{error}"),
        }
    }

    async fn cancel(&self, id: &GenerationId, at: Option<Duration>) -> bool {
        let Some(at) = at else { return false };
        tokio::time::sleep(at).await;
        self.engine.cancel(&user(), id).await.unwrap().success
    }

    async fn ended(&self, id: &GenerationId) -> GenerationStatus {
        loop {
            let status = self.engine.generation(&user(), id).await.unwrap().status;
            if matches!(
                status,
                GenerationStatus::Completed | GenerationStatus::Cancelled | GenerationStatus::Error
            ) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn i8_approve_deny_cancel_and_the_timers_race_and_one_wins() {
    let mut winners = BTreeMap::<&str, u64>::new();
    for race in 0..RACES {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::new(folder.path());
        let mut dice = Dice(race);
        let started = bench.start(None).await;
        let id = &started.generation;
        let asked = bench.asked(id).await;
        let (approve, deny) = (dice.moment(), dice.moment());
        let cancel = (race % 2 == 0).then(|| dice.moment());
        let (approved, denied, cancelled) = tokio::join!(
            bench.decide(id, &asked.hash, Decision::Approve, approve),
            bench.decide(id, &asked.hash, Decision::Deny, deny),
            bench.cancel(id, cancel),
        );
        let status = bench.ended(id).await;
        let log = entries(&bench.store, &started.conversation);
        let resolved =
            log.iter().filter(|entry| matches!(entry.event, Event::ApprovalResolved { .. })).count();
        let accepted = usize::from(approved.is_ok()) + usize::from(denied.is_ok());
        assert_eq!(resolved, accepted, "race {race}: what was acknowledged is in the log");
        assert!(accepted <= 1, "race {race}: two decisions");
        assert!(accepted == 1 || cancelled, "race {race}: nobody won");
        assert_eq!(status == GenerationStatus::Cancelled, cancelled, "race {race}");
        let began = log.iter().position(|entry| matches!(entry.event, Event::ToolBegan { .. }));
        let durable = log.iter().position(|entry| is_approval(&entry.event));
        assert!(began.is_none() || durable.is_some_and(|durable| Some(durable) < began), "race {race}");
        let ran = bench.ran.load(Ordering::SeqCst);
        assert!(ran <= usize::from(approved.is_ok()), "race {race}: it ran {ran} times");
        assert!(ran == 1 || approved.is_err() || cancelled, "race {race}: approved, and it did not run");
        assert_eq!(
            bench.too_early.load(Ordering::SeqCst),
            0,
            "race {race}: it ran before the approval was durable"
        );
        let winner = if approved.is_ok() {
            "approve"
        } else if denied.is_ok() {
            "deny"
        } else {
            "cancel"
        };
        *winners.entry(winner).or_default() += 1;
        bench.engine.stop().await;
    }
    println!("{winners:?}");
    assert_eq!(winners.len(), 3, "each wins now and then: {winners:?}");
}

/// A worker asks something else under the same id: it starts over, as one that lost its place would.
async fn swap(bench: &Bench, id: &GenerationId, at: Duration) -> Option<Approval> {
    tokio::time::sleep(at).await;
    let claimed = bench.engine.claim(&user(), id, false).await.ok()?;
    let batch = question(claimed.epoch, claimed.last, "rm -rf /");
    bench
        .engine
        .produce(&user(), id, batch)
        .await
        .ok()?
        .approvals
        .into_iter()
        .find(|asked| asked.decided.is_none())
}

fn question(epoch: u32, last: Seq, command: &str) -> WorkerBatch {
    let (id, name, input) = (CALL.to_owned(), "bash".to_owned(), json!({"command": command}));
    WorkerBatch { epoch, expected: Some(last), pieces: vec![Piece::Approval { id, name, input }], end: None }
}

#[tokio::test(start_paused = true)]
async fn i8_a_worker_that_swaps_its_question_gets_no_answer_to_the_other() {
    let mut swaps_first = 0;
    for race in 0..RACES {
        let folder = tempfile::tempdir().unwrap();
        let bench = Bench::new(folder.path());
        let mut dice = Dice(1_000 + race);
        let started = bench.start(Some(Producer::External)).await;
        let id = &started.generation;
        let claimed = bench.engine.claim(&user(), id, true).await.unwrap();
        bench.engine.produce(&user(), id, question(claimed.epoch, claimed.last, "ls")).await.unwrap();
        let asked = bench.asked(id).await;
        let (approve, deny, swapped) = (dice.moment(), dice.moment(), dice.moment());
        let cancel = (race % 3 == 0).then(|| dice.moment());
        let (approved, denied, cancelled, other) = tokio::join!(
            bench.decide(id, &asked.hash, Decision::Approve, approve),
            bench.decide(id, &asked.hash, Decision::Deny, deny),
            bench.cancel(id, cancel),
            swap(&bench, id, swapped),
        );
        let log = entries(&bench.store, &started.conversation);
        let accepted = usize::from(approved.is_ok()) + usize::from(denied.is_ok());
        let resolved: Vec<usize> = log
            .iter()
            .enumerate()
            .filter(|(_, entry)| matches!(entry.event, Event::ApprovalResolved { .. }))
            .map(|(place, _)| place)
            .collect();
        assert_eq!(resolved.len(), accepted, "race {race}");
        assert!(accepted <= 1, "race {race}: two decisions");
        // The question that stands when a decision is recorded is the one that the person saw.
        for place in resolved {
            let shown = log[..place].iter().rev().find_map(|entry| match &entry.event {
                Event::ApprovalRequested { hash, .. } => Some(Some(hash.clone())),
                Event::AttemptRetracted { .. } => Some(None),
                _ => None,
            });
            assert_eq!(shown.flatten().as_ref(), Some(&asked.hash), "race {race}");
        }
        if let Some(other) = other {
            assert_ne!(other.hash, asked.hash);
            assert_eq!(other.decided, None, "race {race}: the other question was answered");
            swaps_first += u64::from(accepted == 0 && !cancelled);
        } else {
            assert!(cancelled, "race {race}: only the end keeps a worker from asking");
        }
        for refusal in [approved, denied].into_iter().filter_map(Result::err) {
            let known = matches!(
                refusal,
                Refusal::ApprovalChanged { .. }
                    | Refusal::AlreadyDecided(_)
                    | Refusal::NotAsked { .. }
                    | Refusal::AlreadyEnded { .. }
            );
            assert!(known, "race {race}: {refusal:?}");
        }
        bench.engine.stop().await;
    }
    assert!(swaps_first > 0, "the worker is first now and then");
}
