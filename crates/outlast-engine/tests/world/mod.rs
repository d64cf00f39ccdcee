//! A world determined by one seed: a store and a model that fail, clients and readers, and a process that
//! crashes and is restarted.

mod checker;
mod cluster;
mod people;
mod pollers;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_core::{Durability, Failure, FailureClass, Rules, Timestamp};
use outlast_engine::{Clock, Engine, Ids, Model, Models, Parts, ScriptedModel, Settings, Step};
use outlast_store::{FaultyStore, MemoryStore, Rates, Store};

pub(crate) use cluster::Cluster;
use people::Ledger;

/// The time at which every simulation starts: 2026-01-01.
const BEGIN: Timestamp = Timestamp(1_767_225_600_000);
/// The maximum number of crashes.
const LIVES: u64 = 4;
const CONVERSATIONS: usize = 3;
/// After the last crash and without faults, everything must end within this time.
const SETTLE: Duration = Duration::from_secs(3_600);

/// What happened, for the totals.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) events: u64,
    pub(crate) crashes: u64,
    pub(crate) faults: u64,
    pub(crate) completed: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: u64,
    pub(crate) retracted: u64,
    /// How often an instance was stopped for a while.
    pub(crate) stops: u64,
}

impl Summary {
    pub(crate) fn add(&mut self, other: &Summary) {
        self.events += other.events;
        self.crashes += other.crashes;
        self.faults += other.faults;
        self.completed += other.completed;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.retracted += other.retracted;
        self.stops += other.stops;
    }
}

/// SplitMix64: the only source of randomness in a world.
#[derive(Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub(crate) fn fork(&mut self) -> Dice {
        Dice(self.roll(u64::MAX))
    }
}

pub(crate) struct World {
    dice: Dice,
    memory: Arc<MemoryStore>,
    store: Arc<FaultyStore>,
    model: Arc<ScriptedModel>,
    ledger: Arc<Mutex<Ledger>>,
    durability: Durability,
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let memory = Arc::new(MemoryStore::new());
        let store = Arc::new(FaultyStore::new(memory.clone(), dice.roll(u64::MAX)));
        let scripts = (0..64).map(|_| script(&mut dice)).collect();
        let durability = match seed % 8 {
            6 => Durability::Debounce(Duration::from_millis(100)),
            7 => Durability::Boundary,
            _ => Durability::Commit,
        };
        let model = Arc::new(ScriptedModel::new(scripts));
        World { memory, store, model, ledger: Arc::default(), dice, durability }
    }

    pub(crate) fn run(mut self) -> Summary {
        let lives = 1 + self.dice.roll(LIVES);
        for life in 0..lives {
            let rates = rates(&mut self.dice);
            self.store.set_rates(rates);
            let lifetime = Duration::from_millis(1 + self.dice.roll(4_000));
            self.live(life, lifetime);
        }
        self.store.calm();
        self.settle(lives);
        checker::check(&self.memory, &self.ledger.lock().unwrap(), lives - 1, &self.store.faults())
    }

    /// Runs the process until it crashes. Dropping the runtime drops every task where it is.
    fn live(&mut self, life: u64, lifetime: Duration) {
        let runtime = runtime();
        runtime.block_on(async {
            self.memory.leave().await.unwrap(); // nothing is held by a process that is gone
            let engine = self.engine(life);
            // Only in this mode is everything that readers saw saved.
            let faithful = self.durability == Durability::Commit;
            people::arrive(&engine, &self.ledger, &mut self.dice, CONVERSATIONS, life, faithful);
            if engine.take_up().await.is_err() {
                return; // the store was not reachable: the process exits and is restarted
            }
            tokio::time::sleep(lifetime).await;
        });
    }

    /// The last run, without faults: everything must end.
    fn settle(&mut self, life: u64) {
        runtime().block_on(async {
            self.memory.leave().await.unwrap();
            let engine = self.engine(life);
            engine.take_up().await.expect("the store has no faults");
            let asking = people::ask_until_answered(&engine, &self.ledger);
            tokio::time::timeout(SETTLE, asking).await.expect("clients get their replies");
            let quiet = async {
                while engine.owners() > 0 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::time::timeout(SETTLE, quiet).await.expect("every owner finishes");
            tokio::time::timeout(SETTLE, people::read_to_the_end(&engine, &self.ledger))
                .await
                .expect("every reader reaches the end");
            engine.stop().await;
        });
    }

    fn engine(&self, life: u64) -> Engine {
        let model: Arc<dyn Model> = self.model.clone();
        let store: Arc<dyn Store> = self.store.clone();
        Engine::new(Parts {
            store,
            models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
            workshop: Err("no tools here".to_owned()),
            settings: Settings {
                durability: self.durability,
                rules: Rules { backoff: Duration::from_millis(50), ..Rules::default() },
                upstream_idle: Duration::from_secs(2),
                ..Settings::default()
            },
            clock: Clock::simulated(BEGIN.after(Duration::from_secs(10_000 * life))),
            ids: Ids::Counting(AtomicU64::new(1_000_000 * life)),
        })
    }
}

fn rates(dice: &mut Dice) -> Rates {
    let harsh = u32::try_from(dice.roll(4)).unwrap() * 15;
    Rates {
        append_refused: harsh,
        append_unanswered: harsh,
        append_lost: harsh,
        append_late: harsh,
        call_refused: harsh,
        claim_failed: harsh,
        send_failed: harsh,
        delayed: 200,
        delay_at_most: Duration::from_millis(30),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// What one call of the model does. Its words are numbered, so that a checker notices a gap or a duplicate.
fn script(dice: &mut Dice) -> Vec<Step> {
    let words = 1 + dice.roll(12);
    let mut steps = Vec::new();
    for word in 0..words {
        match dice.roll(40) {
            0 => return failing(steps, FailureClass::Transient),
            1 => return failing(steps, FailureClass::RateLimited),
            2 if dice.roll(4) == 0 => return failing(steps, FailureClass::Invalid),
            3 => return steps,                                   // ends too early
            4 => steps.push(Step::Wait(Duration::from_secs(5))), // longer than the idle limit
            _ => {}
        }
        if dice.roll(3) > 0 {
            steps.push(Step::Wait(Duration::from_millis(dice.roll(60))));
        }
        steps.push(Step::Say(format!("{word} ")));
    }
    steps.push(Step::Finish);
    steps
}

fn failing(mut steps: Vec<Step>, class: FailureClass) -> Vec<Step> {
    steps.push(Step::Fail(Failure { class, message: "scripted".to_owned(), retry_after: None }));
    steps
}
