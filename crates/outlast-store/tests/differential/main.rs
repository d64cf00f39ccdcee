//! Random operations have the same results in the memory store, in SQLite, in PostgreSQL and in Redis. SQLite is
//! reopened in between, and settles with tiny limits or on request.
#![allow(clippy::unwrap_used)]

mod step;
mod stores;

use outlast_store::suite::{postgres, redis};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use step::step;
use stores::Stores;

/// 50 runs of 400 operations.
const RUNS: u64 = 50;
const OPERATIONS: usize = 400;

/// Repeats one run: `OUTLAST_SEED=7 cargo test -p outlast-store --test differential`. More of them:
/// `OUTLAST_SEEDS=1000`.
#[test]
fn all_stores_answer_as_memory_does() {
    let number = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let seeds: Vec<u64> = match number("OUTLAST_SEED") {
        Some(seed) => vec![seed],
        None => (0..number("OUTLAST_SEEDS").unwrap_or(RUNS)).collect(),
    };
    let (postgres, redis) = (postgres::Server::start(), redis::Server::start());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut stores = runtime.block_on(Stores::open(postgres.url(), redis.url()));
    for seed in seeds {
        let steps = (prop::collection::vec(step(), OPERATIONS), any::<bool>());
        let mut seeded = [0; 32];
        seeded[..8].copy_from_slice(&seed.to_le_bytes());
        let config = ProptestConfig {
            cases: 1,
            failure_persistence: None,
            max_shrink_iters: 500,
            ..ProptestConfig::default()
        };
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seeded);
        let stores = std::cell::RefCell::new(&mut stores);
        let ran = TestRunner::new_with_rng(config, rng).run(&steps, |(steps, tiny)| {
            runtime.block_on(stores.borrow_mut().run(steps, tiny));
            Ok(())
        });
        if let Err(error) = ran {
            panic!("OUTLAST_SEED={seed} repeats this: {error}");
        }
    }
}
