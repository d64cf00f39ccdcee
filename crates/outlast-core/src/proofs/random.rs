//! Random histories: commands, answers, failures, stale reports and crashes in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use crate::testing::*;
use crate::{
    Brief, Command, Conversation, Earlier, Entry, FailureClass, GenerationId, GenerationStatus, Phase,
    Recovery, Refusal, Report, RetryMode, Rules, Start, WhenBusy,
};

/// One thing that happens. The numbers select a generation, an attempt and so on.
#[derive(Clone, Debug)]
enum Step {
    Start {
        request: u8,
        body: u8,
        when_busy: WhenBusy,
    },
    Cancel(u8),
    Resume(u8),
    Dismiss(u8),
    Retry(u8, RetryMode),
    Rename,
    Says(String),
    Thinks(String),
    Finishes,
    Breaks(FailureClass),
    /// A report of a call that is no longer running.
    Stale {
        which: u8,
        older: u8,
        end: u8,
    },
    /// A timer report that may come too early, too late or twice.
    Reminder {
        which: u8,
        kind: u8,
    },
    Crash,
    Wait(u16),
    Snapshot,
}

fn step() -> impl Strategy<Value = Step> {
    let busy = prop_oneof![Just(WhenBusy::Reject), Just(WhenBusy::Queue), Just(WhenBusy::Interrupt)];
    let mode = prop_oneof![Just(RetryMode::Retry), Just(RetryMode::Continue)];
    let class = prop_oneof![
        3 => Just(FailureClass::Transient),
        1 => Just(FailureClass::RateLimited),
        1 => Just(FailureClass::Timeout),
        1 => Just(FailureClass::Invalid),
    ];
    prop_oneof![
        6 => (0..12u8, 0..5u8, busy)
            .prop_map(|(request, body, when_busy)| Step::Start { request, body: body / 4, when_busy }),
        2 => any::<u8>().prop_map(Step::Cancel),
        2 => any::<u8>().prop_map(Step::Resume),
        1 => any::<u8>().prop_map(Step::Dismiss),
        3 => (any::<u8>(), mode).prop_map(|(which, mode)| Step::Retry(which, mode)),
        1 => Just(Step::Rename),
        12 => "[a-z ]{0,6}".prop_map(Step::Says),
        3 => "[a-z ]{1,6}".prop_map(Step::Thinks),
        5 => Just(Step::Finishes),
        5 => class.prop_map(Step::Breaks),
        4 => (any::<u8>(), 1..4u8, 0..3u8).prop_map(|(which, older, end)| Step::Stale { which, older, end }),
        3 => (any::<u8>(), 0..3u8).prop_map(|(which, kind)| Step::Reminder { which, kind }),
        4 => Just(Step::Crash),
        4 => (0..2_000u16).prop_map(Step::Wait),
        2 => Just(Step::Snapshot),
    ]
}

/// A world, and the text that clients should see.
struct Life {
    world: World,
    said: BTreeMap<(GenerationId, u32), String>,
    continues: BTreeMap<GenerationId, GenerationId>,
    dropped: BTreeSet<GenerationId>,
    accepted: BTreeMap<String, GenerationId>,
    count: usize,
    snapshot: Conversation,
}

impl Life {
    fn new(recovery: Recovery) -> Life {
        let world = World::new().with(Rules { recovery, ..Rules::default() });
        Life {
            snapshot: world.transcript.state.clone(),
            world,
            said: BTreeMap::new(),
            continues: BTreeMap::new(),
            dropped: BTreeSet::new(),
            accepted: BTreeMap::new(),
            count: 0,
        }
    }

    fn pick(&self, which: u8) -> Option<GenerationId> {
        let all: Vec<&GenerationId> = self.world.stored.generations.keys().collect();
        all.get(usize::from(which) % all.len().max(1)).map(|id| (*id).clone())
    }

    fn command(&mut self, command: Command) -> Result<(), Refusal> {
        let length = self.world.log.len();
        let result = self.world.command(command);
        assert!(result.is_ok() || self.world.log.len() == length, "a refusal changes nothing");
        self.world.report(Report::TurnCame { generation: "nobody".into() }); // drops a call that has ended
        result
    }

    fn live(&mut self, step: Step) {
        match step {
            Step::Start { request, body, when_busy } => self.start(request, body, when_busy),
            Step::Cancel(which) => self.ask(which, cancel),
            Step::Resume(which) => self.ask(which, resume),
            Step::Dismiss(which) => self.ask(which, dismiss),
            Step::Retry(which, mode) => self.retry(which, mode),
            Step::Rename => self.command(rename("Tea")).unwrap(),
            Step::Says(text) => self.speak(vec![words(&text)], &text, None),
            Step::Thinks(text) => self.speak(vec![thoughts(&text)], "", None),
            Step::Finishes => self.speak(vec![words("The end.")], "The end.", Some(finished())),
            Step::Breaks(class) => self.speak(vec![words("Aargh")], "Aargh", Some(broke(class))),
            Step::Stale { which, older, end } => self.stale(which, older, end),
            Step::Reminder { which, kind } => self.remind(which, kind),
            Step::Crash => self.world.crash(),
            Step::Wait(millis) => {
                self.world.now = self.world.now.after(Duration::from_millis(millis.into()));
                self.world.settle();
            }
            Step::Snapshot => {
                let state = self.world.transcript.state.clone();
                self.snapshot = serde_json::from_slice(&serde_json::to_vec(&state).unwrap()).unwrap();
            }
        }
        self.check();
    }

    fn ask(&mut self, which: u8, command: fn(&str) -> Command) {
        let Some(id) = self.pick(which) else { return };
        let answer = self.command(command(id.as_str()));
        // I9: an accepted command has taken effect.
        if answer.is_ok() && matches!(command("x"), Command::Cancel { .. } | Command::Dismiss { .. }) {
            assert_eq!(self.world.stored.generations[&id].status, GenerationStatus::Cancelled);
        }
    }

    /// I4: a request starts one generation, however often it is sent.
    fn start(&mut self, request_number: u8, body: u8, when_busy: WhenBusy) {
        let name = format!("request_{request_number}");
        let digest = format!("body {body}");
        let known = self.accepted.get(&name).map(|id| &self.world.stored.generations[id]);
        let earlier = known.map(|document| Earlier {
            generation: document.id.clone(),
            message: document.message_id.clone(),
            digest: document.digest.clone(),
        });
        self.count += 1;
        let id = format!("gen_{}", self.count);
        let asked = Start { request: (&name).into(), digest, when_busy, ..request(&id) };
        self.world.facts.earlier = earlier.clone();
        let result = self.command(Command::Start(asked.clone()));
        self.world.facts.earlier = None;
        match (result, earlier) {
            (Ok(()), None) => assert_eq!(self.accepted.insert(name, id.into()), None),
            (Err(Refusal::Repeated(named)), Some(earlier)) => {
                assert_eq!(named, earlier);
                assert_eq!(named.digest, asked.digest);
            }
            (Err(Refusal::IdempotencyConflict { generation }), Some(earlier)) => {
                assert_eq!(generation, earlier.generation);
                assert_ne!(earlier.digest, asked.digest);
            }
            (Err(Refusal::Busy { .. } | Refusal::QueueFull), None) => {}
            (answer, earlier) => panic!("{answer:?} to {asked:?}, started before: {earlier:?}"),
        }
    }

    fn retry(&mut self, which: u8, mode: RetryMode) {
        let Some(of) = self.pick(which) else { return };
        self.count += 1;
        let id = format!("gen_{}", self.count);
        if self.command(retry(of.as_str(), mode, &id)).is_err() {
            return;
        }
        match mode {
            RetryMode::Continue => {
                self.continues.insert(id.into(), of);
            }
            RetryMode::Retry => {
                let mut next = Some(of);
                while let Some(dropped) = next {
                    next = self.continues.get(&dropped).cloned();
                    self.dropped.insert(dropped);
                }
            }
        }
    }

    fn speak(&mut self, pieces: Vec<crate::Piece>, text: &str, end: Option<crate::CallEnd>) {
        self.world.settle();
        let Some((generation, attempt)) = self.world.call.clone() else { return };
        self.said.entry((generation.clone(), attempt)).or_default().push_str(text);
        self.world.report(stream(generation.as_str(), attempt, pieces, end));
    }

    fn stale(&mut self, which: u8, older: u8, end: u8) {
        let Some(id) = self.pick(which) else { return };
        let document = &self.world.stored.generations[&id];
        // After the end, even the last attempt is stale.
        let older = if document.completed_at.is_some() { u32::from(older) - 1 } else { older.into() };
        let attempt = document.attempt.wrapping_sub(older);
        let end = [None, Some(finished()), Some(broke(FailureClass::Transient))][usize::from(end)].clone();
        let report = stream(id.as_str(), attempt, vec![words("stale"), usage(1, 1)], end);
        assert_eq!(self.world.report(report.clone()), 0, "{report:?} is stale");
    }

    fn remind(&mut self, which: u8, kind: u8) {
        let Some(id) = self.pick(which) else { return };
        let reminder = [retry_due, turn_came, abandoned][usize::from(kind)];
        self.world.report(reminder(id.as_str()));
    }

    /// No duplicates, no gaps: the text of an answer is what its last attempt said.
    fn check(&self) {
        for (id, document) in &self.world.stored.generations {
            let withdrawn = self.failed_last(id);
            let expected = match self.said.get(&(id.clone(), document.attempt)) {
                Some(said) if !withdrawn && !self.dropped.contains(id) => said.as_str(),
                _ => "",
            };
            assert_eq!(self.world.answer_shown(id), expected, "{id}");
        }
        let open = self.world.view().overlays.len();
        assert!(open <= 1, "two answers are being written");
    }

    /// Whether its last attempt failed and none was started since, so that its text stays withdrawn.
    fn failed_last(&self, id: &GenerationId) -> bool {
        let of_it = self.world.log.iter().rev().filter(|entry| entry.generation.as_ref() == Some(id));
        let last = of_it.map(kind).find(|kind| kind == "retry.scheduled" || kind == "chat.started");
        last.is_some_and(|last| last == "retry.scheduled")
    }

    /// I10: if the model answers and the person resumes, every generation ends.
    fn finish(&mut self) {
        for _ in 0..500 {
            self.world.settle();
            if self.world.call.is_some() {
                self.speak(vec![words("Done.")], "Done.", Some(finished()));
            } else if let Some(time) = self.world.next().wake_at {
                self.world.now = time;
            } else if let Some(active) = self.world.transcript.state.active() {
                assert_eq!(active.progress.phase, Phase::Interrupted);
                let id = active.id.to_string();
                self.command(resume(&id)).unwrap();
            } else {
                return;
            }
            self.check();
        }
        panic!("the generation never ends");
    }

    /// I11: a snapshot plus the events after it gives the same state.
    fn check_snapshot(&self) {
        let mut state = self.snapshot.clone();
        let tail: Vec<Entry> = self.world.log.iter().filter(|entry| entry.seq > state.seq).cloned().collect();
        state.apply_all(&tail);
        assert_eq!(state, self.world.transcript.state.clone());
    }
}

/// JSON as a client may send it, with numbers of every kind.
fn json() -> impl Strategy<Value = serde_json::Value> {
    let number = prop_oneof![
        any::<f64>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
    ];
    let leaf = prop_oneof![Just(serde_json::Value::Null), number, any::<String>().prop_map(Into::into)];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_promises_hold(
        recovery in prop_oneof![Just(Recovery::Safe), Just(Recovery::Auto), Just(Recovery::Ask)],
        steps in prop::collection::vec(step(), 1..60),
    ) {
        let mut life = Life::new(recovery);
        for step in steps {
            life.live(step);
        }
        life.check_snapshot();
        life.finish();
        life.check_snapshot();
        let live = |document: &&crate::GenerationDocument| document.completed_at.is_none();
        prop_assert_eq!(life.world.stored.generations.values().filter(live).count(), 0);
    }
    #[test]
    fn whatever_a_client_sends_reads_back_from_the_log_unchanged(
        title in any::<Option<String>>(),
        metadata in json(),
        text in any::<String>(),
    ) {
        let mut world = World::new();
        let parts = vec![crate::Part::Text { text }];
        let brief = Brief { metadata: Some(metadata.clone()), ..Brief::default() };
        let asked = Start { parts, brief, ..request(G1) };
        world.command(Command::Start(asked)).unwrap();
        world.command(Command::Update { title: title.map(Some), metadata: Some(metadata) }).unwrap();
        let (view, state) = (world.view(), world.transcript.state.clone());
        world.crash();
        prop_assert_eq!(world.view(), view);
        prop_assert_eq!(world.transcript.state, state);
    }
}
