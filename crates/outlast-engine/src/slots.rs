//! The conversations that have an owner or followers in this process, and how mail reaches an owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use outlast_core::{ConversationId, Seq};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::actor::{MAILBOX, Mail};
use crate::engine::Shared;
use crate::feed::Feed;
use crate::owners::supervise;

/// One entry for each conversation with an owner or followers.
#[derive(Default)]
pub(crate) struct Slots(Mutex<HashMap<ConversationId, Slot>>);

struct Slot {
    mailbox: Option<mpsc::Sender<Mail>>,
    feed: Weak<Feed>,
}

impl Slots {
    /// How many conversations have an owner.
    pub(crate) fn owners(&self) -> usize {
        self.lock().values().filter(|slot| slot.mailbox.is_some()).count()
    }

    /// The feed of a conversation, shared by its owner and its followers.
    pub(crate) fn feed(&self, conversation: &ConversationId) -> Arc<Feed> {
        feed_in(&mut self.lock(), conversation)
    }

    /// The last position that followers can see, if the conversation has an owner or followers.
    pub(crate) fn visible_tail(&self, conversation: &ConversationId) -> Option<Seq> {
        self.lock().get(conversation)?.feed.upgrade()?.tail()
    }

    pub(crate) fn is_followed(&self, conversation: &ConversationId) -> bool {
        let feed = self.lock().get(conversation).and_then(|slot| slot.feed.upgrade());
        feed.is_some_and(|feed| *feed.watchers().borrow() > 0)
    }

    pub(crate) fn is_owned(&self, conversation: &ConversationId) -> bool {
        self.lock().get(conversation).is_some_and(|slot| slot.mailbox.is_some())
    }

    /// Removes a conversation without an owner and followers.
    pub(crate) fn forget(&self, conversation: &ConversationId) {
        let mut slots = self.lock();
        let unused = |slot: &Slot| slot.mailbox.is_none() && slot.feed.strong_count() == 0;
        if slots.get(conversation).is_some_and(unused) {
            slots.remove(conversation);
        }
    }

    /// Removes an owner if its mailbox is empty.
    pub(crate) fn retire(&self, conversation: &ConversationId, mailbox: &mut mpsc::Receiver<Mail>) -> bool {
        let mut slots = self.lock();
        if !mailbox.is_empty() {
            return false;
        }
        if let Some(slot) = slots.get_mut(conversation) {
            slot.mailbox = None;
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationId, Slot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Sends mail to the conversation's owner, and starts one if there is none. The mail is dropped only if the
    /// mailbox was full and the owner ended before there was room, or if the engine is stopping.
    pub(crate) async fn send(self: &Arc<Self>, conversation: &ConversationId, mail: Mail) {
        if let Some((mailbox, mail)) = self.send_now(conversation, mail) {
            mailbox.send(mail).await.ok();
        }
    }

    /// Sends mail that is only a hint. If the mailbox is full, the owner is awake anyway, and hints are repeated.
    pub(crate) fn nudge(self: &Arc<Self>, conversation: &ConversationId, mail: Mail) {
        drop(self.send_now(conversation, mail));
    }

    /// The same without waiting. Returns the mail if the mailbox is full. The lock ensures that mail is in the
    /// mailbox before an owner can check whether it may retire.
    fn send_now(
        self: &Arc<Self>,
        conversation: &ConversationId,
        mail: Mail,
    ) -> Option<(mpsc::Sender<Mail>, Mail)> {
        let mut slots = self.slots.lock();
        let feed = feed_in(&mut slots, conversation);
        let slot = slots.get_mut(conversation).expect("made by feed_in");
        let mail = match &slot.mailbox {
            None => mail,
            Some(mailbox) => match mailbox.try_send(mail) {
                Ok(()) => return None,
                Err(TrySendError::Full(mail)) => return Some((mailbox.clone(), mail)),
                // The mailbox belonged to an owner that panicked. Start a new owner.
                Err(TrySendError::Closed(mail)) => mail,
            },
        };
        if self.stop.is_cancelled() {
            return None;
        }
        let (sender, receiver) = mpsc::channel(MAILBOX);
        assert!(sender.try_send(mail).is_ok(), "a new mailbox has room");
        slot.mailbox = Some(sender);
        self.spawn(supervise(self.clone(), conversation.clone(), feed, receiver));
        None
    }
}

fn feed_in(slots: &mut HashMap<ConversationId, Slot>, conversation: &ConversationId) -> Arc<Feed> {
    let slot = slots.entry(conversation.clone()).or_insert_with(|| Slot { mailbox: None, feed: Weak::new() });
    slot.feed.upgrade().unwrap_or_else(|| {
        let feed = Arc::new(Feed::new());
        slot.feed = Arc::downgrade(&feed);
        feed
    })
}
