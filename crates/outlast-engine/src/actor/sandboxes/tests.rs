//! Owners and sandboxes on paused time: what becomes of a run when the provider fails, is missing, or comes back.

mod leftovers;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use async_trait::async_trait;
use outlast_core::{
    ConversationId, Event, GenerationStatus, Part, Place, Policy, Rules, Seq, Timestamp, ToolRule, UserId,
    decode,
};
use outlast_store::{FaultyStore, MemoryStore, Rates, Store};
use serde_json::{Value, json};

use super::*;
use crate::checkpoints::Workspace;
use crate::sandbox::{Act, Acts, MemorySandboxes, Outcome, Presence, Progress, Started};
use crate::{Clock, Engine, Ids, Model, Models, Parts, ScriptedModel, Settings, StartRequest, Step};

const START: Timestamp = Timestamp(1_767_225_600_000);
const MINUTE: Duration = Duration::from_secs(60);

/// Sandboxes that fail on demand.
struct Flaky {
    inner: Arc<MemorySandboxes>,
    failing_pauses: AtomicUsize,
    kills_fail: AtomicBool,
    /// The next start succeeds, and is reported as failed.
    start_unanswered: AtomicBool,
    /// ... and then the sandbox is gone.
    and_lost: AtomicBool,
    /// No start gets through.
    starts_hang: AtomicBool,
    /// A pause may lose files.
    forgets_files: AtomicBool,
    deadlines: Mutex<Vec<Option<jiff::Timestamp>>>,
}

fn fault() -> SandboxError {
    SandboxError::Io { what: "the disk is full".to_owned(), error: std::io::ErrorKind::StorageFull.into() }
}

#[async_trait]
impl Sandboxes for Flaky {
    async fn create(&self, id: &SandboxId, label: &str) -> Result<(), SandboxError> {
        self.inner.create(id, label).await
    }

    async fn labels(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        self.inner.labels().await
    }

    async fn look(&self, id: &SandboxId) -> Result<Presence, SandboxError> {
        self.inner.look(id).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), SandboxError> {
        let left = |left: usize| left.checked_sub(1);
        match self.failing_pauses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) {
            Ok(_) => Err(fault()),
            Err(_) => self.inner.pause(id).await,
        }
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), SandboxError> {
        self.inner.resume(id).await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), SandboxError> {
        match self.kills_fail.load(Ordering::SeqCst) {
            true => Err(fault()),
            false => self.inner.kill(id).await,
        }
    }

    async fn start(&self, id: &SandboxId, execution: &Execution) -> Result<Started, SandboxError> {
        if self.starts_hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let started = self.inner.start(id, execution).await?;
        self.deadlines.lock().unwrap().push(execution.deadline);
        if !self.start_unanswered.swap(false, Ordering::SeqCst) {
            return Ok(started);
        }
        if self.and_lost.load(Ordering::SeqCst) {
            self.inner.lose(id);
        }
        Err(fault())
    }

    async fn read(&self, id: &SandboxId, span: &Span) -> Result<Bytes, SandboxError> {
        self.inner.read(id, span).await
    }

    async fn wait(
        &self,
        id: &SandboxId,
        execution: &ExecutionId,
        beyond: Offsets,
    ) -> Result<Progress, SandboxError> {
        self.inner.wait(id, execution, beyond).await
    }

    fn keeps_files_asleep(&self) -> bool {
        !self.forgets_files.load(Ordering::SeqCst)
    }

    fn workspace(&self, id: &SandboxId) -> Result<Arc<dyn Workspace>, SandboxError> {
        self.inner.workspace(id)
    }

    async fn running_here(&self) -> Result<Vec<(SandboxId, String)>, SandboxError> {
        self.inner.running_here().await
    }

    async fn stop(&self, id: &SandboxId, execution: &ExecutionId) -> Result<(), SandboxError> {
        self.inner.stop(id, execution).await
    }
}

/// `bash hang` never ends, `bash lose` is lost at once, everything else ends well.
fn act(execution: &Execution) -> Acts {
    match execution.program.last().map(String::as_str) {
        Some("hang") => Vec::new(),
        Some("lose") => vec![(Duration::ZERO, Act::End(Outcome::Lost))],
        _ => vec![(Duration::ZERO, Act::End(Outcome::Exited { code: 0 }))],
    }
}

/// A store and sandboxes that outlive the servers.
struct Machine {
    memory: Arc<MemoryStore>,
    store: Arc<FaultyStore>,
    sandboxes: Arc<Flaky>,
    workshop: Workshop,
    began: tokio::time::Instant,
    servers: AtomicU64,
    _folder: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        Machine::on(Arc::new(MemoryStore::new()))
    }

    /// Another machine that shares the store, and has sandboxes of its own.
    fn beside(&self, name: &str) -> Machine {
        Machine::on(Arc::new(self.memory.join(name)))
    }

    fn on(memory: Arc<MemoryStore>) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let workspaces = folder.path().join("sandboxes");
        let sandboxes = Arc::new(Flaky {
            inner: MemorySandboxes::new(Box::new(act), workspaces),
            failing_pauses: AtomicUsize::new(0),
            kills_fail: AtomicBool::new(false),
            start_unanswered: AtomicBool::new(false),
            and_lost: AtomicBool::new(false),
            starts_hang: AtomicBool::new(false),
            forgets_files: AtomicBool::new(false),
            deadlines: Mutex::default(),
        });
        let workshop = Workshop {
            sandboxes: sandboxes.clone(),
            checkpoints: Checkpoints::in_folder(&folder.path().join("checkpoints")).unwrap(),
            tool_timeout: 2 * MINUTE,
        };
        Machine {
            store: Arc::new(FaultyStore::new(memory.clone(), 1)),
            memory,
            sandboxes,
            workshop,
            began: tokio::time::Instant::now(),
            servers: AtomicU64::new(0),
            _folder: folder,
        }
    }

    /// A server whose model makes these calls of `bash`, each in a round of its own, and then says that it is done.
    fn server(&self, workshop: Result<Workshop, String>, rules: Rules, calls: &[Value]) -> Engine {
        let rule = ToolRule {
            place: Place::Sandbox,
            read_only: false,
            idempotent: false,
            policy: Policy::Allow,
            rules: Vec::new(),
            shell_argument: None,
        };
        let call = |input: &Value| {
            let (id, name, input) = ("c".to_owned(), "bash".to_owned(), input.clone());
            vec![Step::Call { id, name, input }, Step::Finish]
        };
        let done = vec![Step::Say("Done.".to_owned()), Step::Finish];
        let turns = calls.iter().map(call).chain([done]).collect();
        let model: Arc<dyn Model> = Arc::new(ScriptedModel::new(turns));
        let rules = Rules { tools: [("bash".to_owned(), rule)].into(), ..rules };
        let ids = self.servers.fetch_add(1_000, Ordering::SeqCst);
        Engine::new(Parts {
            store: self.store.clone(),
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop,
            settings: Settings { rules, ..Settings::default() },
            clock: Clock::simulated(START.after(self.began.elapsed())),
            ids: Ids::Counting(AtomicU64::new(ids)),
        })
    }

    async fn kinds(&self, conversation: &ConversationId) -> Vec<&'static str> {
        let records = self.store.read(conversation, Seq::ZERO, 1 << 20).await.unwrap();
        records.iter().map(|record| decode(&record.bytes).unwrap().event.kind()).collect()
    }

    async fn has(&self, conversation: &ConversationId, kind: &str) -> bool {
        self.kinds(conversation).await.contains(&kind)
    }

    async fn result(&self, conversation: &ConversationId) -> String {
        let records = self.store.read(conversation, Seq::ZERO, 1 << 20).await.unwrap();
        let results = records.iter().find_map(|record| match decode(&record.bytes).unwrap().event {
            Event::ToolEnd { result, .. } => result.as_str().map(str::to_owned),
            _ => None,
        });
        results.unwrap_or_default()
    }

    async fn presence(&self) -> Presence {
        let ids = self.sandboxes.inner.ids();
        self.sandboxes.look(ids.first().unwrap()).await.unwrap()
    }
}

fn user() -> UserId {
    "ann".into()
}

async fn begin(engine: &Engine) -> crate::Started {
    let request = StartRequest::new(vec![Part::Text { text: "go".into() }]);
    engine.start(&user(), request).await.unwrap()
}

/// Lets time pass until this is true. The clock is paused, so the bound costs nothing unless the test fails.
async fn until<F: Future<Output = bool>>(is_true: impl Fn() -> F) {
    for _ in 0..10_000 {
        if is_true().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("this did not become true");
}

async fn until_status(engine: &Engine, id: &GenerationId, status: GenerationStatus) {
    until(|| async { engine.generation(&user(), id).await.unwrap().status == status }).await;
}

#[tokio::test(start_paused = true)]
async fn s2_a_pause_that_fails_is_tried_again_and_never_kills_the_sandbox() {
    let machine = Machine::new();
    let engine =
        machine.server(Ok(machine.workshop.clone()), Rules::default(), &[json!({"command": "true"})]);
    engine.take_up().await.unwrap();
    let started = begin(&engine).await;
    until_status(&engine, &started.generation, GenerationStatus::Completed).await;
    let sandbox = machine.sandboxes.inner.ids();
    machine.sandboxes.failing_pauses.store(5, Ordering::SeqCst);
    until(|| async { machine.presence().await == Presence::Paused }).await;
    assert_eq!(machine.sandboxes.inner.ids(), sandbox);
    until(|| async { engine.owners() == 0 }).await;
    let lost = |kinds: Vec<&str>| kinds.iter().filter(|kind| **kind == "sandbox.changed").count();
    assert_eq!(lost(machine.kinds(&started.conversation).await), 2, "created and paused, never lost");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i7_a_server_without_sandboxes_leaves_them_to_one_that_has_some() {
    let machine = Machine::new();
    let first = machine.server(Ok(machine.workshop.clone()), Rules::default(), &[json!({"command": "hang"})]);
    let started = begin(&first).await;
    until(|| async { machine.sandboxes.inner.runs() == 1 }).await;
    first.stop().await;
    let before = machine.kinds(&started.conversation).await;

    let without = machine.server(Err("no bubblewrap here".to_owned()), Rules::default(), &[]);
    without.take_up().await.unwrap();
    tokio::time::sleep(10 * MINUTE).await;
    assert_eq!(
        machine.kinds(&started.conversation).await,
        before,
        "it says nothing about what it cannot see"
    );
    without.cancel(&user(), &started.generation).await.unwrap();
    until(|| async { without.owners() == 0 }).await;
    assert!(without.shared.left_to_others.has(&started.conversation), "it is not woken every second");
    tokio::time::sleep(10 * MINUTE).await;
    assert!(!machine.has(&started.conversation, "tool.stopped").await, "the tool still runs");
    without.stop().await;

    let third = machine.server(Ok(machine.workshop.clone()), Rules::default(), &[]);
    assert_eq!(third.take_up().await.unwrap(), 1, "it is still due");
    until(|| async { machine.has(&started.conversation, "tool.stopped").await }).await;
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_tool_counts_from_its_start_and_not_from_its_call() {
    let machine = Machine::new();
    let calls = [json!({"command": "true"})];
    machine.sandboxes.starts_hang.store(true, Ordering::SeqCst);
    let first = machine.server(Ok(machine.workshop.clone()), Rules::default(), &calls);
    let started = begin(&first).await;
    until(|| async { machine.has(&started.conversation, "tool.began").await }).await;
    first.stop().await;
    tokio::time::sleep(60 * MINUTE).await;
    machine.sandboxes.starts_hang.store(false, Ordering::SeqCst);
    let second = machine.server(Ok(machine.workshop.clone()), Rules::default(), &[]);
    let now = START.after(machine.began.elapsed());
    second.take_up().await.unwrap();
    until_status(&second, &started.generation, GenerationStatus::Completed).await;
    let deadline = machine.sandboxes.deadlines.lock().unwrap()[0].unwrap().as_millisecond();
    assert!(deadline >= now.after(2 * MINUTE).0, "{deadline}");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i7_a_background_command_that_was_lost_is_not_said_to_run() {
    let machine = Machine::new();
    machine.sandboxes.start_unanswered.store(true, Ordering::SeqCst);
    let calls = [json!({"command": "lose", "background": true})];
    let engine = machine.server(Ok(machine.workshop.clone()), Rules::default(), &calls);
    let started = begin(&engine).await;
    until_status(&engine, &started.generation, GenerationStatus::Interrupted).await;
    let result = machine.result(&started.conversation).await;
    assert!(result.starts_with("outcome unknown"), "{result}");
    engine.stop().await;

    let runs = Machine::new();
    let calls = [json!({"command": "hang", "background": true})];
    let engine = runs.server(Ok(runs.workshop.clone()), Rules::default(), &calls);
    let started = begin(&engine).await;
    until_status(&engine, &started.generation, GenerationStatus::Completed).await;
    assert!(runs.result(&started.conversation).await.starts_with("runs in the background"));
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i7_a_call_that_may_have_started_in_a_lost_sandbox_does_not_run_again() {
    let machine = Machine::new();
    machine.sandboxes.start_unanswered.store(true, Ordering::SeqCst);
    machine.sandboxes.and_lost.store(true, Ordering::SeqCst);
    let calls = [json!({"command": "true"})];
    let engine = machine.server(Ok(machine.workshop.clone()), Rules::default(), &calls);
    let started = begin(&engine).await;
    until_status(&engine, &started.generation, GenerationStatus::Interrupted).await;
    assert_eq!(machine.sandboxes.deadlines.lock().unwrap().len(), 1, "started once");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_sandbox_is_empty_even_if_an_earlier_owner_had_begun_to_fill_it() {
    let machine = Machine::new();
    let id = SandboxId::from("sbx_1");
    machine.sandboxes.create(&id, "").await.unwrap();
    machine.workshop.said(&id, "left".into(), "true", START).await.unwrap();
    let conversation = ConversationId::from("conv_1");
    let (label, sandbox) = (String::new(), id.clone());
    let wanted = Wanted { conversation, label, sandbox, how: Ensure::Create, saved: None };
    machine.workshop.try_to_ensure(&wanted).await.unwrap();
    assert_eq!((machine.sandboxes.inner.ids(), machine.sandboxes.inner.runs()), (vec![id], 0));
}

#[tokio::test]
async fn g6_a_sandbox_that_lost_files_in_its_sleep_is_restored_from_its_checkpoint() {
    let machine = Machine::new();
    machine.sandboxes.forgets_files.store(true, Ordering::SeqCst);
    let (id, conversation) = (SandboxId::from("sbx_1"), ConversationId::from("conv_1"));
    let workshop = &machine.workshop;
    let wanted = |how| Wanted {
        conversation: conversation.clone(),
        label: String::new(),
        sandbox: id.clone(),
        how,
        saved: Some(CheckpointId::from("cp_1")),
    };
    workshop.try_to_ensure(&wanted(Ensure::Create)).await.unwrap();
    let workspace = workshop.sandboxes.workspace(&id).unwrap();
    for name in ["kept", "lost"] {
        workspace.put_file(Path::new(name), b"one").unwrap();
    }
    let (conversation, git, now) = (conversation.clone(), None, Timestamp(1));
    let take = Take { conversation, id: "cp_1".to_owned(), workspace: workspace.clone(), git, now };
    workshop.checkpoints.take(&take).await.unwrap();

    workshop.sandboxes.pause(&id).await.unwrap();
    workspace.put_file(Path::new("later"), b"two").unwrap(); // what is more than the checkpoint is no loss
    let resumed = workshop.try_to_ensure(&wanted(Ensure::Resume)).await.unwrap();
    assert_eq!(resumed, SandboxState::Resumed);

    workshop.sandboxes.pause(&id).await.unwrap();
    workspace.remove_file(Path::new("lost")).unwrap();
    let resumed = workshop.try_to_ensure(&wanted(Ensure::Resume)).await;
    assert!(matches!(resumed, Err(NotReady::Sandbox(SandboxError::Gone(_)))), "{resumed:?}");
    assert_eq!(machine.sandboxes.inner.ids(), Vec::<SandboxId>::new(), "nobody uses it any more");
}

#[tokio::test(start_paused = true)]
async fn g6_a_time_that_could_not_be_stored_is_stored_later_and_kept() {
    let machine = Machine::new();
    let first = machine.server(Ok(machine.workshop.clone()), Rules::default(), &[json!({"command": "true"})]);
    let started = begin(&first).await;
    until_status(&first, &started.generation, GenerationStatus::Completed).await;
    until(|| async { first.owners() == 0 }).await;
    first.stop().await;
    let patient = Rules { sandbox_idle_pause: 30 * MINUTE, ..Rules::default() };
    let second = machine.server(Ok(machine.workshop.clone()), patient, &[]);
    second.take_up().await.unwrap();
    machine.store.set_rates(Rates { append_refused: 1_000, ..Rates::default() });
    // The stored time is that of the former settings: the owner wakes, and cannot write the new one.
    tokio::time::sleep(20 * MINUTE).await;
    assert!(machine.store.faults().append_refused > 0);
    machine.store.calm();
    until(|| async { machine.presence().await == Presence::Paused }).await;
    assert!(machine.began.elapsed() < 40 * MINUTE);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i9_x2_a_tool_that_was_cancelled_at_another_machine_is_ended_by_the_next_server_on_its_own() {
    let here = Machine::new();
    let first = here.server(Ok(here.workshop.clone()), Rules::default(), &[json!({"command": "hang"})]);
    let started = begin(&first).await;
    until(|| async { here.sandboxes.inner.runs() == 1 }).await;
    first.stop().await;

    let there = here.beside("there");
    let other = there.server(Ok(there.workshop.clone()), Rules::default(), &[]);
    other.take_up().await.unwrap();
    other.cancel(&user(), &started.generation).await.unwrap();
    until(|| async { other.owners() == 0 }).await;
    assert_eq!(here.sandboxes.running_here().await.unwrap().len(), 1, "nobody can reach it");
    assert!(!here.has(&started.conversation, "tool.stopped").await, "nobody says that it was ended");

    let next = here.server(Ok(here.workshop.clone()), Rules::default(), &[]);
    next.take_up().await.unwrap();
    until(|| async { here.sandboxes.running_here().await.unwrap().is_empty() }).await;
    assert_eq!(here.sandboxes.inner.ids(), []);
    next.stop().await;
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i7_x2_a_neighbour_on_the_same_machine_leaves_a_tool_alone_that_is_wanted() {
    let here = Machine::new();
    let owner = here.server(Ok(here.workshop.clone()), Rules::default(), &[json!({"command": "hang"})]);
    owner.take_up().await.unwrap();
    let neighbour = here.beside("neighbour");
    let neighbour = neighbour.server(Ok(here.workshop.clone()), Rules::default(), &[]);
    neighbour.take_up().await.unwrap();
    let started = begin(&owner).await;
    until(|| async { here.sandboxes.inner.runs() == 1 }).await;
    tokio::time::sleep(MINUTE).await;
    assert_eq!(here.sandboxes.running_here().await.unwrap().len(), 1);
    neighbour.cancel(&user(), &started.generation).await.unwrap();
    until(|| async { here.has(&started.conversation, "tool.stopped").await }).await;
    assert!(here.sandboxes.running_here().await.unwrap().is_empty());
    neighbour.stop().await;
    owner.stop().await;
}
