//! Owns running generations: one task per conversation that has something to do, the models it calls, and the
//! streams for followers. Knows no HTTP server and no SQL.

mod actor;
mod call;
pub mod checkpoints;
mod clock;
mod commands;
mod conversations;
mod documents;
mod endings;
mod engine;
mod error;
mod feed;
mod figures;
mod file_changes;
mod file_names;
mod files;
mod follower;
mod housekeeping;
mod instances;
mod journal;
mod lease;
mod ledger;
mod letters;
mod live;
mod models;
mod newest;
mod notifications;
mod outputs;
pub mod outside;
mod overview;
mod owners;
mod pace;
mod presence;
mod reading;
mod relay;
mod removals;
pub mod sandbox;
mod settings;
mod slots;
mod strays;
mod stream;
mod tags;
pub mod tools;
mod workers;

pub use actor::Workshop;
pub use clock::{Clock, Ids};
pub use commands::{Cancelled, StartRequest, Started, ToolDecision};
pub use conversations::{ConversationFilter, NewConversation, thread_name};
pub use endings::Ending;
pub use engine::{Engine, Parts};
pub use error::EngineError;
pub use feed::Batch;
pub use figures::{Figures, Resumes};
pub use file_changes::{ChangedFile, FILE_BYTES_MAX};
pub use files::{Files, FilesPage, OfferedTool, WorkspaceFile};
pub use follower::{FollowError, Follower};
pub use instances::{AboutInstance, Instance};
pub use ledger::{Account, Used};
pub use models::*;
pub use notifications::{
    Bell, Delivery, DeliveryState, Inbox, Notification, NotificationSettings, PushSubscription, VapidKey,
    Webhook, is_push_key,
};
pub use outputs::{ToolCall, ToolOutput};
pub use reading::{EventPage, Page, Paging};
pub use settings::Settings;
pub use stream::{EventStream, Frame, Snapshot, StreamEnd};
pub use tags::MetadataTag;
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
    "work.begun",
    "work.done",
    "confirm.claimed",
    "notify.listed",
    "notify.queued",
    "outbox.leased",
    "outbox.sent",
    "remove.owed",
    "remove.deleted",
    "remove.cleared",
];
