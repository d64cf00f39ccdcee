//! Keeps taking and removing checkpoints of one conversation apart, so that neither makes the other wait for long.
//!
//! If a file gets its earlier content back, a checkpoint needs a blob that retention may already have decided to remove.
//! So retention removes blobs in steps. A step begins only while no checkpoint of the conversation is being taken, and
//! none was since retention found out which blobs are needed. Otherwise retention gives up and is repeated later.
//!
//! Other instances never touch this conversation's checkpoints, because it has one owner.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::ConversationId;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One gate for each conversation whose checkpoints are being taken or removed.
#[derive(Clone, Default)]
pub(super) struct Gates(Arc<Mutex<HashMap<ConversationId, Arc<Gate>>>>);

#[derive(Default)]
struct Gate {
    /// Held for reading while a checkpoint is taken, for writing during a step of retention.
    lock: RwLock<()>,
    /// How many checkpoints were begun while this gate existed.
    begun: AtomicU64,
}

impl Gates {
    /// To take a checkpoint, or to remove some.
    pub(super) fn pass(&self, conversation: &ConversationId) -> Pass {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gate = gates.entry(conversation.clone()).or_default().clone();
        Pass { gates: self.clone(), conversation: conversation.clone(), gate }
    }
}

/// Keeps the gate in existence.
pub(super) struct Pass {
    gates: Gates,
    conversation: ConversationId,
    gate: Arc<Gate>,
}

impl Pass {
    /// Waits for one step of retention at most.
    pub(super) async fn take(&self) -> RwLockReadGuard<'_, ()> {
        let open = self.gate.lock.read().await;
        self.gate.begun.fetch_add(1, Ordering::SeqCst);
        open
    }

    /// `None` while a checkpoint is being taken.
    pub(super) fn sweep(&self) -> Option<Sweep<'_>> {
        let _alone = self.gate.lock.try_write().ok()?;
        Some(Sweep { gate: &self.gate, begun: self.gate.begun.load(Ordering::SeqCst) })
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut gates = self.gates.0.lock().unwrap_or_else(PoisonError::into_inner);
        // This one and the map's. Others cannot be added meanwhile, because the map is locked.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.conversation);
        }
    }
}

/// Removing what was not needed when this was made.
pub(super) struct Sweep<'a> {
    gate: &'a Gate,
    begun: u64,
}

impl Sweep<'_> {
    /// Permission for one short step. `None` if a checkpoint was begun since: it may need what was not needed before.
    pub(super) fn step(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        let alone = self.gate.lock.try_write().ok()?;
        (self.gate.begun.load(Ordering::SeqCst) == self.begun).then_some(alone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn x9_retention_gives_way_to_a_checkpoint_of_its_conversation_and_to_no_other() {
        let gates = Gates::default();
        let (taking, removing, other) =
            (gates.pass(&"c1".into()), gates.pass(&"c1".into()), gates.pass(&"c2".into()));
        let others = other.take().await;
        let sweep = removing.sweep().expect("only another conversation is busy");
        assert!(sweep.step().is_some());
        let taken = taking.take().await;
        assert!(sweep.step().is_none() && removing.sweep().is_none(), "a checkpoint is being taken");
        drop(taken);
        assert!(sweep.step().is_none(), "one was taken since");
        assert!(removing.sweep().is_some_and(|again| again.step().is_some()));
        drop((sweep, others));
        drop((taking, removing, other));
        assert!(gates.0.lock().unwrap().is_empty(), "no gate is left over");
    }
}
