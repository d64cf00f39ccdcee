//! The promises, proved over whole logs: those of `fixtures/`, every crash in them, every transition,
//! and random ones.

mod crashes;
mod fixtures;
mod races;
mod random;
mod scenarios;
mod snapshots;
mod transitions;
