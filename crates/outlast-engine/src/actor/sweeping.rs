//! Removes checkpoints and outputs beside the owner. In a bucket, or in a large folder, that can take minutes, and nobody
//! should wait for it. The owner stays until it has ended, so that no other instance takes checkpoints meanwhile.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{ConversationId, GenerationId, Timestamp};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Answer;
use crate::checkpoints::{CheckpointError, Checkpoints, Keep, Swept};
use crate::engine::Shared;

/// What is not removed by then is removed another time.
const SWEEP_TIME_MAX: Duration = Duration::from_secs(10 * 60);

/// What is removed with the events of a generation.
pub(super) struct Sweep {
    pub(super) checkpoints: Checkpoints,
    pub(super) conversation: ConversationId,
    pub(super) generation: GenerationId,
    /// The checkpoints that stay.
    pub(super) ids: Vec<String>,
    pub(super) now: Timestamp,
}

/// Who waits for it.
pub(super) struct Trim {
    pub(super) generation: GenerationId,
    pub(super) removed: bool,
    pub(super) reply: oneshot::Sender<Answer<bool>>,
}

/// A sweep that is under way. It stops soon after this is dropped.
pub(super) struct Sweeping {
    trim: Trim,
    swept: oneshot::Receiver<Result<Swept, String>>,
    _ends_with_this: DropGuard,
}

impl Sweeping {
    pub(super) fn begin(shared: &Arc<Shared>, sweep: Sweep, trim: Trim) -> Sweeping {
        let (tell, swept) = oneshot::channel();
        let stop = shared.stop.child_token();
        let stopped = stop.clone();
        shared.spawn(async move {
            let conversation = sweep.conversation.clone();
            let swept = sweep.carry_out(stopped).await;
            tracing::debug!(?conversation, ?swept, "removed checkpoints");
            tell.send(swept.map_err(|error| error.to_string())).ok(); // the owner may have ended
        });
        Sweeping { trim, swept, _ends_with_this: stop.drop_guard() }
    }

    /// How it ended.
    pub(super) async fn ended(&mut self) -> Result<Swept, String> {
        let swept = (&mut self.swept).await;
        swept.unwrap_or_else(|_| Err("removing checkpoints was interrupted".to_owned()))
    }

    pub(super) fn end(self) -> Trim {
        self.trim
    }
}

impl Sweep {
    async fn carry_out(self, stop: CancellationToken) -> Result<Swept, CheckpointError> {
        let Sweep { checkpoints, conversation, generation, ids, now } = self;
        let outputs = checkpoints.forget_outputs(&conversation, &generation);
        let Some(forgotten) = stop.run_until_cancelled(outputs).await else {
            return Ok(Swept { unfinished: true, ..Swept::default() });
        };
        forgotten?;
        let overdue = stop.child_token();
        let keep = Keep { conversation: &conversation, ids: &ids, now, stop: overdue.clone() };
        let mut kept = std::pin::pin!(checkpoints.keep(&keep));
        tokio::select! {
            kept = &mut kept => kept,
            () = tokio::time::sleep(SWEEP_TIME_MAX) => {
                overdue.cancel();
                kept.await
            }
        }
    }
}
