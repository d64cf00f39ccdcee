//! The interface to models. Vendor-specific terms are used only inside this module.

mod list;

mod client;
mod options;

mod anthropic;
mod openai;

mod demo;
mod scripted;

#[cfg(test)]
mod tests;

use std::time::Duration;

use futures_util::stream::BoxStream;
use outlast_core::{Context, Failure, Piece};

pub use anthropic::AnthropicModel;
pub use client::{Secret, UpstreamSettings};
pub use demo::DemoModel;
pub use list::Models;
pub use openai::OpenAiModel;
pub use options::{RefusedOption, accept_options};
pub use scripted::{Script, ScriptedModel, Step};

/// A model, or an API that serves one.
///
/// A call makes at most one request and never retries. Dropping the stream ends the request at once. The stream
/// ends after `Finished` or an error; if it ends without either, the answer is incomplete.
pub trait Model: Send + Sync + 'static {
    /// Starts a call. Nothing is sent before the stream is polled.
    fn call(&self, context: Context) -> ModelStream;
}

/// How long to wait after the finish reason, because the upstream may still send token counts. An answer is not
/// lost if the upstream does not close the stream.
pub(crate) const END_GRACE: Duration = Duration::from_secs(3);

/// What a call returns, in the order in which it arrives.
pub type ModelStream = BoxStream<'static, Result<Arrived, Failure>>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// A piece of the answer.
    Piece(Piece),
    /// A sign of life without content.
    Sign,
    /// The answer is complete, but token counts or the end of the body may still arrive. The stream finishes within
    /// `END_GRACE`, whatever the upstream does.
    Ending,
    /// The answer is complete.
    Finished {
        /// Why the model stopped, in the upstream's words.
        reason: String,
    },
}
