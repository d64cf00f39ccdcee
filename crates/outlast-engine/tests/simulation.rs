//! The whole engine on a paused clock, with a store that fails and a process that crashes at random.
//!
//! A seed determines everything: what the model says and when it fails, what the store does, what clients
//! send, when the process crashes. `OUTLAST_SEED=17 cargo test -p outlast-engine --test simulation` repeats
//! one seed; `OUTLAST_SEEDS=100000` runs more than usual.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

mod world;

use std::cell::Cell;

use world::{Cluster, Summary, World};

/// The number of seeds in a normal run.
const SEEDS: u64 = 2_000;
/// The same for three instances, which take about twenty times as long.
const SEEDS_OF_THREE: u64 = 100;
const THREADS: u64 = 2;

#[test]
fn i1_i2_i3_i4_i10_i11_hold_for_every_seed() {
    let Some((seeds, totals)) = run(SEEDS, |seed| World::new(seed).run()) else { return };
    // A simulation without faults proves nothing.
    assert!(totals.crashes > seeds / 2, "{totals:?}");
    check_variety(seeds, &totals);
}

/// `OUTLAST_SEEDS=100000 cargo test --release -p outlast-engine --test simulation x2_` runs more than usual.
#[test]
fn x2_i1_i2_i3_i4_i10_i11_i19_hold_with_three_instances_for_every_seed() {
    let Some((seeds, totals)) = run(SEEDS_OF_THREE, |seed| Cluster::new(seed).run()) else { return };
    assert!(totals.crashes > seeds && totals.stops > seeds, "{totals:?}");
    check_variety(seeds, &totals);
}

fn check_variety(seeds: u64, totals: &Summary) {
    assert!(totals.faults > seeds, "{totals:?}");
    assert!(
        totals.completed > seeds && totals.cancelled > seeds / 10 && totals.failed > seeds / 50,
        "{totals:?}"
    );
    assert!(totals.retracted > seeds / 10, "{totals:?}");
}

/// Runs all seeds and adds up what happened; `None` if only one was asked for.
fn run(usual: u64, world: fn(u64) -> Summary) -> Option<(u64, Summary)> {
    count_panics();
    if let Some(seed) = number("OUTLAST_SEED") {
        let summary = run_one(seed, world);
        eprintln!("seed {seed}: {summary:?}");
        return None;
    }
    let seeds = number("OUTLAST_SEEDS").unwrap_or(usual);
    let totals = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut total = Summary::default();
                    for seed in (thread..seeds).step_by(usize::try_from(THREADS).unwrap()) {
                        total.add(&run_one(seed, world));
                    }
                    total
                })
            })
            .collect();
        let mut total = Summary::default();
        threads.into_iter().for_each(|thread| total.add(&thread.join().expect("a seed failed; see above")));
        total
    });
    eprintln!("{seeds} seeds: {totals:?}");
    Some((seeds, totals))
}

thread_local! {
    /// Panics of this thread's tasks: failed assertions of clients, and panics of owners, which would otherwise be
    /// replaced without a failure.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

fn count_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.set(PANICS.get() + 1);
        usual(panic);
    }));
}

fn run_one(seed: u64, world: fn(u64) -> Summary) -> Summary {
    let run = std::panic::catch_unwind(|| {
        let summary = world(seed);
        assert_eq!(PANICS.get(), 0, "a task panicked");
        summary
    });
    run.unwrap_or_else(|panic| {
        eprintln!("seed {seed} failed; repeat it with OUTLAST_SEED={seed} cargo test -p outlast-engine --test simulation");
        std::panic::resume_unwind(panic)
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}
