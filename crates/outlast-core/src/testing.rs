//! Given, when, then: a conversation in a chosen state, one more command or report, and its result.
//!
//! ```text
//! given([answering(G1, "Hel"), cancelled(G1)])
//!     .when(cancel(G1))
//!     .refused(Refusal::AlreadyEnded { status: GenerationStatus::Cancelled });
//! ```
//!
//! A `World` holds the state, its log, its transcript and its documents. After every append it checks the
//! promises that must hold in every state, so each test of one rule also tests those.

mod commands;
mod past;
mod promises;
mod stored;
mod world;

pub(crate) use commands::*;
pub(crate) use past::*;
pub(crate) use promises::check_log;
pub(crate) use stored::Stored;
pub(crate) use world::{World, given, kind};

use crate::{Conversation, Timestamp};

pub(crate) const G1: &str = "gen_1";
pub(crate) const G2: &str = "gen_2";
pub(crate) const G3: &str = "gen_3";

/// The creation time of every test conversation: 2026-01-01T00:00:00.000Z.
pub(crate) const CREATED: Timestamp = Timestamp(1_767_225_600_000);

/// The conversation of the tests and of `fixtures/`, before its first event.
pub(crate) fn nothing_yet() -> Conversation {
    Conversation::new("conv_fixture".into(), "local".into(), CREATED)
}

/// The id of the user's message that begins a generation.
pub(crate) fn question(generation: &str) -> String {
    format!("question_of_{generation}")
}

/// The id of the message that an attempt writes in these tests.
pub(crate) fn answer(generation: &str, attempt: u32) -> String {
    format!("answer_{attempt}_of_{generation}")
}
