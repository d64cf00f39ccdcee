//! Ends tools on this machine that no owner can reach. Sandboxes of a machine stay there when another machine takes a
//! conversation over: its owner finds no sandbox, records that it is lost, and goes on without it. What still runs in it
//! is ended here, by whichever instance is next on the machine.

use std::time::Duration;

use outlast_core::{ConversationId, SandboxId};
use outlast_store::{StoreError, Table};
use tokio::time::sleep;

use crate::documents::to_conversation;
use crate::engine::{Engine, Shared};

/// How often to look. A tool whose generation was cancelled at another machine runs on for about this long.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Engine {
    /// Looks for strays until the engine stops.
    pub(crate) async fn end_strays(self) {
        loop {
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                () = sleep(LOOK_EVERY) => {}
            }
            if let Err(error) = self.end_strays_once().await {
                tracing::warn!(%error, "cannot tell which tools are wanted; will retry");
            }
        }
    }

    async fn end_strays_once(&self) -> Result<(), StoreError> {
        let Ok(workshop) = &self.shared.workshop else { return Ok(()) };
        let running = match workshop.sandboxes.running_here().await {
            Ok(running) => running,
            Err(error) => {
                tracing::warn!(%error, "cannot look for tools that nobody wants; will retry");
                return Ok(());
            }
        };
        for (sandbox, label) in running {
            let Some(conversation) = self.shared.labelled(&label).await? else { continue };
            // An owner here sees to its sandbox itself.
            if self.shared.slots.is_owned(&conversation)
                || !self.shared.is_given_up(&sandbox, &conversation).await?
            {
                continue;
            }
            tracing::warn!(
                ?sandbox,
                ?conversation,
                "ends a tool whose conversation was taken over elsewhere"
            );
            if let Err(error) = workshop.sandboxes.kill(&sandbox).await {
                tracing::error!(?sandbox, %error, "cannot kill a sandbox; will retry");
            }
        }
        Ok(())
    }
}

impl Shared {
    /// Whether the conversation has given the sandbox up. A program runs in a sandbox only after its conversation has
    /// recorded that the sandbox is there.
    async fn is_given_up(&self, sandbox: &SandboxId, by: &ConversationId) -> Result<bool, StoreError> {
        match self.store.get(Table::Conversations, by.as_str()).await? {
            Some(document) => Ok(to_conversation(&document)?.sandbox_id.as_deref() != Some(sandbox.as_str())),
            None => Ok(true), // it was deleted
        }
    }
}
