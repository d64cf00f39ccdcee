//! Owns running generations: one task per conversation that has something to do, the models it calls, and the
//! streams for followers. Knows no HTTP server and no SQL.

mod actor;
mod call;
mod clock;
mod commands;
mod documents;
mod engine;
mod error;
mod feed;
mod follower;
mod housekeeping;
mod journal;
mod live;
mod models;
mod owners;
mod pace;
mod reading;
pub mod sandbox;
mod settings;
mod slots;
mod stream;
pub mod tools;
mod workers;

pub use clock::{Clock, Ids};
pub use commands::{Cancelled, StartRequest, Started, ToolDecision, thread_name};
pub use engine::{Engine, Parts};
pub use error::EngineError;
pub use feed::Batch;
pub use follower::{FollowError, Follower};
pub use models::*;
pub use reading::{EventPage, Page, Paging};
pub use settings::Settings;
pub use stream::{EventStream, Frame, Snapshot, StreamEnd};
pub use workers::{WorkerBatch, WorkerPosition};

/// The points where a test can kill the process, in addition to those of the store.
pub const FAULT_POINTS: &[&str] = &[
    "recover.claimed",
    "recover.folded",
    "recover.observed",
    "recover.called",
    "record.durable",
    "record.applied",
    "record.visible",
    "confirm.claimed",
];
