//! Three instances on one store. Each has a runtime of its own, so its clock can run fast or slow, stop, and jump
//! when it goes on, and dropping the runtime kills the instance wherever it is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_core::{Durability, Rules};
use outlast_engine::{Clock, Engine, Ids, Model, Models, Parts, ScriptedModel, Settings};
use outlast_store::{Faults, FaultyStore, MemoryStore, Store};
use tokio::runtime::Runtime;

use super::people::{self, Ledger};
use super::{BEGIN, Dice, Summary, checker, rates, runtime, script};

const INSTANCES: usize = 3;
const CONVERSATIONS: usize = 3;
/// Short, so that a run of a few seconds has many takeovers.
const LEASE: Duration = Duration::from_secs(3);
/// How many turns the instances take while things go wrong.
const TURNS: u64 = 150;
/// After that, everything must end within this many turns.
const TURNS_TO_SETTLE: u64 = 40_000;

/// The time on the store's clock, in milliseconds.
type Now = Arc<AtomicU64>;

pub(crate) struct Cluster {
    dice: Dice,
    now: Now,
    memory: Arc<MemoryStore>,
    model: Arc<ScriptedModel>,
    ledger: Arc<Mutex<Ledger>>,
    durability: Durability,
    instances: [Option<Instance>; INSTANCES],
    /// How many instances there were so far.
    lives: u64,
    summary: Summary,
}

struct Instance {
    runtime: Runtime,
    engine: Engine,
    store: Arc<FaultyStore>,
    /// How far its clock moves while the store's moves by 100.
    pace: u64,
    /// Until when it is stopped, and since when, on the store's clock.
    stopped: Option<(u64, u64)>,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Cluster {
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x3333);
        let now = Now::default();
        let clock = now.clone();
        let memory = MemoryStore::with_clock(move || Duration::from_millis(clock.load(Ordering::SeqCst)));
        let scripts = (0..64).map(|_| script(&mut dice)).collect();
        let durability = match seed % 8 {
            6 => Durability::Debounce(Duration::from_millis(100)),
            7 => Durability::Boundary,
            _ => Durability::Commit,
        };
        Cluster {
            now,
            memory: Arc::new(memory),
            model: Arc::new(ScriptedModel::new(scripts)),
            ledger: Arc::new(Mutex::new(Ledger { several: true, ..Ledger::default() })),
            durability,
            instances: [const { None }; INSTANCES],
            lives: 0,
            summary: Summary::default(),
            dice,
        }
    }

    pub(crate) fn run(mut self) -> Summary {
        for _ in 0..TURNS {
            for place in 0..INSTANCES {
                self.happen(place);
            }
            self.turn();
        }
        self.settle();
        let Summary { crashes, stops, faults, .. } = self.summary;
        let ledger = self.ledger.lock().unwrap();
        let checked = checker::check(&self.memory, &ledger, crashes, &Faults::default());
        Summary { stops, faults, ..checked }
    }

    /// Something may happen to an instance: it dies, leaves, or is stopped for a while; a dead one is replaced.
    fn happen(&mut self, place: usize) {
        let Some(instance) = &mut self.instances[place] else {
            if self.dice.roll(20) == 0 || self.lives < INSTANCES as u64 {
                self.instances[place] = self.join();
            }
            return;
        };
        if instance.stopped.is_some() {
            return;
        }
        match self.dice.roll(400) {
            0 | 1 => {
                self.summary.crashes += 1;
                self.bury(place);
            }
            2 => {
                let engine = instance.engine.clone();
                instance.runtime.block_on(async {
                    // A store that fails may make this long; then the process is killed.
                    tokio::time::timeout(Duration::from_secs(20), engine.stop()).await.ok();
                });
                self.bury(place);
            }
            // Sometimes for less than the lease, sometimes for much longer.
            3..6 => {
                let now = self.now.load(Ordering::SeqCst);
                let most = 3 * u64::try_from(LEASE.as_millis()).unwrap();
                instance.stopped = Some((now, now + self.dice.roll(most)));
                self.summary.stops += 1;
            }
            _ => {}
        }
    }

    fn bury(&mut self, place: usize) {
        if let Some(instance) = self.instances[place].take() {
            self.summary.faults += checker::count(&instance.store.faults());
        }
    }

    /// A new instance with clients of its own. `None` if the store did not let it start.
    fn join(&mut self) -> Option<Instance> {
        self.lives += 1;
        let (life, now) = (self.lives, self.now.load(Ordering::SeqCst));
        let runtime = runtime();
        let memory: Arc<dyn Store> = Arc::new(self.memory.join(&format!("instance {life}")));
        let store = Arc::new(FaultyStore::new(memory, self.dice.roll(u64::MAX)));
        store.set_rates(rates(&mut self.dice));
        let skew = Duration::from_millis(now + self.dice.roll(1_000));
        let parts = Parts {
            store: store.clone(),
            models: Models::new(BTreeMap::from([(
                "default".to_owned(),
                self.model.clone() as Arc<dyn Model>,
            )])),
            workshop: Err("no tools here".to_owned()),
            settings: Settings {
                durability: self.durability,
                rules: Rules { backoff: Duration::from_millis(50), ..Rules::default() },
                upstream_idle: Duration::from_secs(2),
                lease: LEASE,
                renew: LEASE / 3,
                ..Settings::default()
            },
            clock: runtime.block_on(async { Clock::simulated(BEGIN.after(skew)) }),
            ids: Ids::Counting(AtomicU64::new(1_000_000 * life)),
        };
        let engine = runtime.block_on(async { Engine::new(parts) });
        runtime.block_on(engine.take_up()).ok()?;
        let faithful = self.durability == Durability::Commit;
        runtime.block_on(async {
            people::arrive(&engine, &self.ledger, &mut self.dice, CONVERSATIONS, life, faithful);
        });
        let pace = 90 + self.dice.roll(21);
        Some(Instance { runtime, engine, store, pace, stopped: None })
    }

    /// Every instance runs for a moment.
    fn turn(&mut self) {
        let step = 5 + self.dice.roll(60);
        let now = self.now.fetch_add(step, Ordering::SeqCst) + step;
        for instance in self.instances.iter_mut().flatten() {
            let mut own = Duration::from_millis(step * instance.pace / 100);
            match instance.stopped {
                Some((_, until)) if now < until => continue,
                Some((since, _)) => {
                    // It goes on: its clock has moved, and everything that it waited for happens now.
                    instance.stopped = None;
                    own = Duration::from_millis(1);
                    let missed = Duration::from_millis(now - since);
                    instance.runtime.block_on(async { tokio::time::advance(missed).await });
                }
                None => {}
            }
            instance.runtime.block_on(async { tokio::time::sleep(own).await });
        }
    }

    /// Without faults everything must end, and every reader must get everything.
    fn settle(&mut self) {
        for place in 0..INSTANCES {
            if self.instances[place].is_none() {
                self.instances[place] = self.join();
            }
        }
        for instance in self.instances.iter_mut().flatten() {
            instance.store.calm();
        }
        while self.instances.iter().all(Option::is_none) {
            self.instances[0] = self.join();
            self.instances.iter().flatten().for_each(|instance| instance.store.calm());
        }
        let first = self.instances.iter().flatten().next().expect("one joined");
        let (engine, ledger) = (first.engine.clone(), self.ledger.clone());
        let asking = first.runtime.spawn(async move { people::ask_until_answered(&engine, &ledger).await });
        let mut turns = 0;
        let is_busy = |cluster: &Cluster| {
            let mut instances = cluster.instances.iter().flatten();
            instances.any(|instance| instance.stopped.is_some() || instance.engine.owners() > 0)
        };
        // An orphan is found a second after its owner's lease has expired.
        let mut quiet = 0;
        while quiet < 2 * LEASE.as_millis() {
            let before = self.now.load(Ordering::SeqCst);
            self.turn();
            let passed = u128::from(self.now.load(Ordering::SeqCst) - before);
            quiet = if asking.is_finished() && !is_busy(self) { quiet + passed } else { 0 };
            turns += 1;
            assert!(turns < TURNS_TO_SETTLE, "I10: something never ends");
        }
        let last = self.instances.iter().flatten().next_back().expect("one joined");
        last.runtime.block_on(people::read_to_the_end(&last.engine, &self.ledger));
        for place in 0..INSTANCES {
            self.bury(place);
        }
    }
}
