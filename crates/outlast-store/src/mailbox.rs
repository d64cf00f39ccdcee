//! Mail for stores that live inside one process. It need not outlive the process: nobody would be left who
//! waits for a reply.

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

    /// Every conversation with unanswered mail of a live instance.
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

    /// To be called once the append that carries the replies is durable.
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

    /// Drops what an instance sent that waits for no reply any more.
    pub(crate) fn leave(&self, sender: &InstanceId) {
        self.lock().by_number.retain(|_, letter| letter.sender != *sender);
    }

    /// Somebody may find mail that it could not see before.
    pub(crate) fn wake(&self) {
        self.arrived.send_replace(());
    }

    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.arrived.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        // Every critical section leaves the map whole, so a panic elsewhere does not spoil it.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
