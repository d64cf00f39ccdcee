//! Tests of the promises over whole logs: the logs in `fixtures/`, a crash at every event of them, every
//! transition, and random logs.

mod agents;
mod crashes;
mod delegations;
mod elsewhere;
mod fixtures;
mod races;
mod random;
mod scenarios;
mod screens;
mod snapshots;
mod transitions;
