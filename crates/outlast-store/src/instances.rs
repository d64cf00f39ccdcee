//! Which instance holds which conversation, for stores within one process.

use std::collections::HashMap;
use std::time::Duration;

use outlast_core::ConversationId;

use crate::InstanceId;

/// Leases and holders. Times are by the store's clock.
#[derive(Default)]
pub(crate) struct Instances {
    leases: HashMap<InstanceId, Duration>,
    holders: HashMap<ConversationId, InstanceId>,
}

impl Instances {
    pub(crate) fn renew(&mut self, instance: &InstanceId, until: Duration) {
        self.leases.insert(instance.clone(), until);
    }

    pub(crate) fn is_live(&self, instance: &InstanceId, now: Duration) -> bool {
        self.leases.get(instance).is_some_and(|until| *until > now)
    }

    /// The instances that have a valid lease, in order.
    pub(crate) fn live(&self, now: Duration) -> Vec<InstanceId> {
        let mut live: Vec<InstanceId> = self
            .leases
            .iter()
            .filter(|(_, until)| **until > now)
            .map(|(instance, _)| instance.clone())
            .collect();
        live.sort();
        live
    }

    /// The instance that holds the conversation and has a valid lease.
    pub(crate) fn live_holder(&self, conversation: &ConversationId, now: Duration) -> Option<&InstanceId> {
        self.holders.get(conversation).filter(|holder| self.is_live(holder, now))
    }

    /// The instance that holds the conversation, even if its lease has expired.
    pub(crate) fn holder(&self, conversation: &ConversationId) -> Option<&InstanceId> {
        self.holders.get(conversation)
    }

    pub(crate) fn hold(&mut self, conversation: &ConversationId, instance: &InstanceId) {
        self.holders.insert(conversation.clone(), instance.clone());
    }

    pub(crate) fn give_up(&mut self, conversation: &ConversationId) {
        self.holders.remove(conversation);
    }

    /// Ends a lease and returns what the instance held.
    pub(crate) fn leave(&mut self, instance: &InstanceId) -> Vec<ConversationId> {
        self.leases.remove(instance);
        let held = self.holders.extract_if(|_, holder| holder == instance);
        held.map(|(conversation, _)| conversation).collect()
    }
}
