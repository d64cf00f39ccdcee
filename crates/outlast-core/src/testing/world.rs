//! A conversation with its log, its documents, a clock, an owner and a model, all scripted.

use std::time::Duration;

use super::{CREATED, Outside, Past, Stored, answer, check_log, nothing_yet};
use crate::message::plain_text;
use crate::{
    CallEnd, Command, ConversationView, Earlier, Effect, Entry, Event, Facts, Generation, GenerationId,
    Message, Next, Piece, Refusal, Report, Rules, Seq, Streamed, Surroundings, Timestamp, Transcript,
    WorkerAppend, WorkerEnd, decide, decode, due, encode, next, observe, owe_notifications,
};

/// How much time passes with every append.
const TICK: Duration = Duration::from_millis(100);

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) transcript: Transcript,
    pub(crate) stored: Stored,
    pub(crate) log: Vec<Entry>,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    /// The running call.
    pub(crate) call: Option<(GenerationId, u32)>,
    pub(crate) owned_after: Seq,
    pub(crate) unwatched_since: Option<Timestamp>,
    /// Whether unwatched ends create notifications. Most tests leave them out.
    pub(crate) notifies: bool,
    pub(crate) worker_heard: Timestamp,
    /// The epoch of the worker that is alive.
    pub(crate) worker: Option<u32>,
    /// What the owner looks up for the next command.
    pub(crate) facts: Facts,
    pub(crate) outside: Outside,
}

/// A conversation with these events, a tenth of a second apart. Its owner recorded all of them.
pub(crate) fn given(past: impl IntoIterator<Item = Past>) -> World {
    let mut world = World::new();
    for (generation, mut event) in past.into_iter().flatten() {
        world.now = world.now.after(TICK);
        let (seq, ts) = (world.transcript.state.seq.next(), world.now);
        if let Event::MessageAdded { message, .. } = &mut event {
            (message.seq, message.created_at) = (seq, ts);
        }
        let request = generation.as_ref().map(|id| format!("request_of_{id}").into());
        world.append(vec![Entry { seq, ts, generation, request, event }]);
    }
    world
}

impl World {
    pub(crate) fn new() -> World {
        World {
            transcript: Transcript::new(nothing_yet()),
            stored: Stored::new(nothing_yet()),
            log: Vec::new(),
            rules: Rules::default(),
            now: CREATED,
            call: None,
            owned_after: Seq::ZERO,
            unwatched_since: None,
            notifies: false,
            worker_heard: CREATED,
            worker: None,
            facts: Facts::default(),
            outside: Outside::default(),
        }
    }

    /// The world after this log, with an owner that just took over.
    pub(crate) fn recovered(log: &[Entry], rules: &Rules) -> World {
        let mut world = World::new();
        world.rules = rules.clone();
        world.now = log.last().map_or(CREATED, |entry| entry.ts);
        world.worker_heard = world.now;
        world.append(log.to_vec());
        world.outside = Outside::after(log, true);
        world.owned_after = world.transcript.state.seq;
        world
    }

    pub(crate) fn with(mut self, rules: Rules) -> World {
        self.rules = rules;
        self
    }

    /// Lets the owner find what an earlier request with the same id started.
    pub(crate) fn knowing(mut self, earlier: Earlier) -> World {
        self.facts.earlier = Some(earlier);
        self
    }

    pub(crate) fn later(mut self, duration: Duration) -> World {
        self.now = self.now.after(duration);
        self
    }

    pub(crate) fn generation(&self, id: &str) -> &Generation {
        self.transcript.state.generation(&id.into()).expect("the state knows it")
    }

    pub(crate) fn view(&self) -> ConversationView {
        self.transcript.view()
    }

    /// What a client shows: the contents of the messages, with the text of open ones taken from the overlay.
    pub(crate) fn shown(&self) -> Vec<String> {
        let view = self.view();
        let shown = |message: &Message| view.overlays.get(&message.id).unwrap_or(&message.content).clone();
        view.messages.iter().map(shown).collect()
    }

    /// What a client shows of one generation's answer.
    pub(crate) fn answer_shown(&self, id: &GenerationId) -> String {
        let view = self.view();
        let mut shown = String::new();
        for message in &view.messages {
            if message.generation_id.as_ref() == Some(id) && message.role == crate::Role::Assistant {
                let parts = view.overlay_parts.get(&message.id).unwrap_or(&message.parts);
                shown.push_str(&plain_text(parts));
            }
        }
        shown
    }

    // ── given/when/then ──

    pub(crate) fn when(mut self, command: Command) -> Answer {
        self.now = self.now.after(TICK);
        let result = decide(&self.transcript.state, command, self.facts.clone(), &self.rules, self.now);
        Answer { world: self, result }
    }

    pub(crate) fn observed(mut self, report: Report) -> Answer {
        self.now = self.now.after(TICK);
        let result = Ok(observe(&self.transcript.state, report, &self.rules, self.now));
        Answer { world: self, result }
    }

    pub(crate) fn next(&self) -> Next {
        let around = Surroundings {
            now: self.now,
            owned_after: self.owned_after,
            unwatched_since: self.unwatched_since,
            worker_heard: self.worker_heard,
            rules: &self.rules,
        };
        next(&self.transcript.state, &around)
    }

    // ── a run of many steps ──

    /// Like `when`, in place. A refusal changes nothing.
    pub(crate) fn command(&mut self, command: Command) -> Result<(), Refusal> {
        self.now = self.now.after(TICK);
        let entries = decide(&self.transcript.state, command, self.facts.clone(), &self.rules, self.now)?;
        self.record(entries);
        Ok(())
    }

    /// Like `observed`, in place. Returns the number of new events.
    pub(crate) fn report(&mut self, report: Report) -> usize {
        self.now = self.now.after(TICK);
        let entries = observe(&self.transcript.state, report, &self.rules, self.now);
        let count = entries.len();
        self.record(entries);
        // The owner drops a call when its generation has ended or waits.
        let attempt =
            self.transcript.state.active().map(|active| (active.id.clone(), active.progress.attempt));
        self.call = self.call.take().filter(|call| Some(call) == attempt.as_ref());
        count
    }

    /// Carries out one thing that `next` wants. Returns false when nothing is left until time passes or a
    /// command comes.
    pub(crate) fn step(&mut self) -> bool {
        let next = self.next();
        if let Some(report) = next.report {
            assert_ne!(self.report(report.clone()), 0, "`next` wants {report:?}, but it has no effect");
            return true;
        }
        let call = |effect| match effect {
            Effect::CallModel { generation, attempt } => Some((generation, attempt)),
            _ => None,
        };
        let wanted = next.effects.into_iter().filter_map(call).next_back();
        let started = wanted.is_some() && self.call != wanted;
        self.call = wanted;
        started || self.carry_out()
    }

    /// Carries out one effect other than the call.
    fn carry_out(&mut self) -> bool {
        let state = &self.transcript.state;
        let mut effects = self.next().effects.into_iter();
        let Some(report) = effects.find_map(|effect| self.outside.carry_out(&effect, state)) else {
            return false;
        };
        assert_ne!(self.report(report.clone()), 0, "{report:?} was reported but produced no events");
        true
    }

    /// Advances the clock until the conversation is due, then settles it.
    pub(crate) fn wait_until_due(&mut self) {
        let due = due(&self.transcript.state, &self.rules).expect("something falls due");
        self.now = self.now.max(due);
        self.settle();
    }

    /// Does what `next` wants until the model is being called or nothing is left.
    pub(crate) fn settle(&mut self) {
        for _ in 0..1_000 {
            if !self.step() {
                return;
            }
        }
        panic!("`next` always wants something: {:?}", self.next());
    }

    /// Lets time pass until the next wake-up.
    pub(crate) fn wait(&mut self) {
        let time = self.next().wake_at.expect("there is a wake-up");
        self.now = time;
        self.settle();
    }

    pub(crate) fn claim(&mut self, keep: bool) {
        let active = self.transcript.state.active().expect("a generation is active");
        self.command(Command::Claim { generation: active.id.clone(), keep }).unwrap();
        self.worker_heard = self.now;
        self.worker = self.transcript.state.active().map(|active| active.progress.attempt);
    }

    /// The current worker appends this.
    pub(crate) fn produce(&mut self, pieces: Vec<Piece>, end: Option<WorkerEnd>) {
        let active = self.transcript.state.active().expect("a generation is active");
        let fresh = format!(
            "{}_{}",
            answer(active.id.as_str(), active.progress.attempt),
            active.progress.shown.len()
        );
        let produce = WorkerAppend {
            generation: active.id.clone(),
            epoch: self.worker.expect("a worker is alive"),
            expected: Some(active.progress.produced),
            pieces,
            end,
            new_message: fresh.into(),
        };
        self.command(Command::Append(produce)).unwrap();
        self.worker_heard = self.now;
    }

    /// The running call returns this.
    pub(crate) fn model(&mut self, pieces: Vec<Piece>, end: Option<CallEnd>) {
        self.settle();
        let (generation, attempt) = self.call.clone().expect("a call is running");
        let run = self.generation(generation.as_str());
        let shown = run.progress.shown.len();
        let fresh = match shown {
            0 => answer(generation.as_str(), attempt),
            n => format!("{}_{n}", answer(generation.as_str(), attempt)),
        };
        let new_message = run.next_message().cloned().unwrap_or_else(|| fresh.into());
        let streamed = Streamed { generation, attempt, pieces, end, new_message };
        assert_ne!(self.report(Report::Streamed(streamed)), 0);
    }

    /// The owner crashes and another takes over, reading the log from its bytes.
    pub(crate) fn crash(&mut self) {
        let log: Vec<Entry> = self.log.iter().map(|entry| decode(&encode(entry)).unwrap()).collect();
        let outside = std::mem::take(&mut self.outside);
        let (now, notifies) = (self.now, self.notifies);
        *self = World { now, outside, notifies, ..World::recovered(&log, &self.rules) };
    }

    /// Like the owner: if nobody is watching, also records that the user must be notified.
    fn record(&mut self, mut entries: Vec<Entry>) {
        if self.notifies && self.unwatched_since.is_some() {
            owe_notifications(&self.transcript.state, &mut entries);
        }
        self.append(entries);
    }

    pub(crate) fn append(&mut self, entries: Vec<Entry>) {
        if entries.is_empty() {
            return;
        }
        for entry in &entries {
            self.transcript.apply(entry);
        }
        self.stored.append(&entries);
        self.log.extend(entries);
        check_log(&self.log);
        self.stored.must_agree_with(&self.transcript);
    }
}

/// The result of a command or a report.
#[derive(Debug)]
pub(crate) struct Answer {
    world: World,
    result: Result<Vec<Entry>, Refusal>,
}

impl Answer {
    /// Checks the names of the new events.
    #[track_caller]
    pub(crate) fn then<const N: usize>(self, kinds: [&str; N]) -> World {
        let entries = self.result.expect("not refused");
        let mut world = self.world;
        assert_eq!(entries.iter().map(kind).collect::<Vec<_>>(), kinds);
        world.append(entries);
        world
    }

    #[track_caller]
    pub(crate) fn then_nothing(self) -> World {
        self.then([])
    }

    #[track_caller]
    pub(crate) fn refused(self, refusal: Refusal) -> World {
        assert_eq!(self.result, Err(refusal));
        self.world
    }
}

/// The event's name on the wire.
pub(crate) fn kind(entry: &Entry) -> String {
    crate::head(&encode(entry)).unwrap().kind.into_owned()
}
