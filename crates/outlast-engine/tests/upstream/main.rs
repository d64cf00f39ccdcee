//! Upstreams that misbehave, at the level of bytes: a raw server plays what it is told, and the engine with a
//! store is asked what came of it. Each row of the table in docs/models.md is one of these tests.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test ends where it fails")]

mod answers;
mod bench;
mod cancels;
mod cuts;
mod keys;
mod prefill;
mod server;
mod silence;
mod statuses;
mod streams;
