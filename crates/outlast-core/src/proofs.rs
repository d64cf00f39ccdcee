//! Tests of the promises over whole logs: the logs in `fixtures/`, a crash at every event of them, every
//! transition, and random logs.

mod crashes;
mod fixtures;
mod races;
mod random;
mod scenarios;
mod snapshots;
mod transitions;
