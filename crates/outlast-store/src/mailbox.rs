//! Mail for stores within one process. It need not survive the process, because no sender would be left to wait
//! for a reply.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use outlast_core::ConversationId;
use tokio::sync::watch;

use crate::contract::{InstanceId, MAIL_PAGE, Mail, MailId};

#[derive(Default)]
pub(crate) struct Mailbox {
    letters: Mutex<Letters>,
    arrived: watch::Sender<()>,
}

#[derive(Default)]
struct Letters {
    sent: u64,
    by_number: BTreeMap<u64, Letter>,
}

struct Letter {
    mail: Mail,
    sender: InstanceId,
    reply: Option<Bytes>,
}

impl Mailbox {
    pub(crate) fn send(&self, sender: &InstanceId, mail: Mail) {
        {
            let mut letters = self.lock();
            if letters.by_number.values().any(|letter| letter.mail.id == mail.id) {
                return;
            }
            letters.sent += 1;
            let number = letters.sent;
            letters.by_number.insert(number, Letter { mail, sender: sender.clone(), reply: None });
        }
        self.arrived.send_replace(());
    }

    /// The conversations with unanswered mail from an instance with a valid lease.
    pub(crate) fn waiting(&self, is_live: impl Fn(&InstanceId) -> bool) -> Vec<ConversationId> {
        let letters = self.lock();
        let waiting = letters.by_number.values();
        let waiting = waiting.filter(|letter| letter.reply.is_none() && is_live(&letter.sender));
        let mut conversations: Vec<_> = waiting.map(|letter| letter.mail.conversation.clone()).collect();
        conversations.sort();
        conversations.dedup();
        conversations
    }

    pub(crate) fn of(
        &self,
        conversation: &ConversationId,
        is_live: impl Fn(&InstanceId) -> bool,
    ) -> Vec<Mail> {
        let letters = self.lock();
        let waiting = letters.by_number.values();
        let waiting = waiting
            .filter(|letter| letter.reply.is_none() && letter.mail.conversation == *conversation)
            .filter(|letter| is_live(&letter.sender));
        waiting.take(MAIL_PAGE).map(|letter| letter.mail.clone()).collect()
    }

    /// Call it once the append with the replies is durable.
    pub(crate) fn answer(&self, replies: &[(MailId, Bytes)]) {
        if replies.is_empty() {
            return;
        }
        {
            let mut letters = self.lock();
            for letter in letters.by_number.values_mut() {
                let reply = replies.iter().find(|(id, _)| *id == letter.mail.id);
                if let Some((_, reply)) = reply.filter(|_| letter.reply.is_none()) {
                    letter.reply = Some(reply.clone());
                }
            }
        }
        self.arrived.send_replace(());
    }

    pub(crate) fn reply(&self, id: &MailId) -> Option<Bytes> {
        let letters = self.lock();
        letters.by_number.values().find(|letter| letter.mail.id == *id)?.reply.clone()
    }

    pub(crate) fn forget(&self, id: &MailId) {
        self.lock().by_number.retain(|_, letter| letter.mail.id != *id);
    }

    /// Drops the mail of an instance, which no longer waits for replies.
    pub(crate) fn leave(&self, sender: &InstanceId) {
        self.lock().by_number.retain(|_, letter| letter.sender != *sender);
    }

    /// Wakes all instances, because mail may have become visible to one of them.
    pub(crate) fn wake(&self) {
        self.arrived.send_replace(());
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.arrived.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        // Every critical section leaves the map consistent, so a poisoned lock can be used.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
