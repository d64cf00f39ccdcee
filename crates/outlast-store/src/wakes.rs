//! Wakes the watchers of a conversation in this process.
//!
//! Most conversations are not watched most of the time. So a wake-up without watchers must cost almost
//! nothing, and a conversation that is no longer watched must not use memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use outlast_core::{ConversationId, Seq};
use tokio::sync::watch;

/// Unused entries are removed when the map has doubled, but never below this size.
const SWEEP_FROM: usize = 64;

/// The watchers of each conversation.
#[derive(Default)]
pub(crate) struct Wakes {
    senders: Mutex<Senders>,
    // A copy of the map's size, so that a wake-up without any watcher takes no lock.
    watched: AtomicUsize,
}

#[derive(Default)]
struct Senders {
    by_conversation: HashMap<ConversationId, watch::Sender<Seq>>,
    sweep_at: usize,
}

impl Wakes {
    /// A receiver that changes with every later wake-up of this conversation.
    pub(crate) fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        let mut senders = self.lock();
        if senders.by_conversation.len() >= senders.sweep_at {
            // Removed here and not in `wake`, because an idle conversation is never woken.
            senders.by_conversation.retain(|_, sender| sender.receiver_count() > 0);
            senders.sweep_at = (senders.by_conversation.len() * 2).max(SWEEP_FROM);
        }
        let sender = senders
            .by_conversation
            .entry(conversation.clone())
            .or_insert_with(|| watch::Sender::new(Seq::ZERO));
        let receiver = sender.subscribe();
        self.watched.store(senders.by_conversation.len(), Ordering::SeqCst);
        receiver
    }

    pub(crate) fn is_watched(&self, conversation: &ConversationId) -> bool {
        self.watched.load(Ordering::SeqCst) > 0
            && self.lock().by_conversation.get(conversation).is_some_and(|sender| sender.receiver_count() > 0)
    }

    /// The conversations that somebody watches, and the last seq that they were woken with.
    pub(crate) fn watched(&self) -> Vec<(ConversationId, Seq)> {
        let senders = self.lock();
        let watched = senders.by_conversation.iter().filter(|(_, sender)| sender.receiver_count() > 0);
        watched.map(|(conversation, sender)| (conversation.clone(), *sender.borrow())).collect()
    }

    /// Wakes the watchers of one conversation. Call it once the change can be read.
    pub(crate) fn wake(&self, conversation: &ConversationId, last: Seq) {
        self.wake_all([(conversation, last)]);
    }

    /// Wakes the watchers of one conversation unless they were woken since `known` was asked for: a slow answer about
    /// where the log ends must not hide a newer one.
    pub(crate) fn wake_from(&self, conversation: &ConversationId, known: Seq, last: Seq) {
        let senders = self.lock();
        if let Some(sender) = senders.by_conversation.get(conversation) {
            sender.send_if_modified(|seen| {
                let news = *seen == known && last != known;
                if news {
                    *seen = last;
                }
                news
            });
        }
    }

    /// Wakes the watchers of many conversations under one lock.
    pub(crate) fn wake_all<'a>(&self, changed: impl IntoIterator<Item = (&'a ConversationId, Seq)>) {
        if self.watched.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut senders = self.lock();
        for (conversation, last) in changed {
            let Some(sender) = senders.by_conversation.get(conversation) else { continue };
            if sender.receiver_count() == 0 {
                senders.by_conversation.remove(conversation);
            } else {
                sender.send_replace(last);
            }
        }
        self.watched.store(senders.by_conversation.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Senders> {
        // Every critical section leaves the map consistent, so a poisoned lock can be used.
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_reaches_every_watcher_of_that_conversation_only() {
        let wakes = Wakes::default();
        let (a, b) = (ConversationId::from("a"), ConversationId::from("b"));
        let (first, second, other) = (wakes.watch(&a), wakes.watch(&a), wakes.watch(&b));
        wakes.wake(&a, Seq(7));
        assert_eq!((*first.borrow(), *second.borrow(), *other.borrow()), (Seq(7), Seq(7), Seq::ZERO));
        assert!(first.has_changed().unwrap() && !other.has_changed().unwrap());
    }

    #[test]
    fn a_slow_answer_hides_no_newer_one() {
        let wakes = Wakes::default();
        let a = ConversationId::from("a");
        let watcher = wakes.watch(&a);
        wakes.wake(&a, Seq(3));
        wakes.wake_from(&a, Seq::ZERO, Seq(1));
        assert_eq!(*watcher.borrow(), Seq(3));
        wakes.wake_from(&a, Seq(3), Seq(5));
        assert_eq!(*watcher.borrow(), Seq(5));
    }

    #[test]
    fn unwatched_conversations_are_forgotten() {
        let wakes = Wakes::default();
        for n in 0..10 * SWEEP_FROM {
            drop(wakes.watch(&ConversationId::from(format!("c{n}"))));
        }
        assert!(wakes.lock().by_conversation.len() <= SWEEP_FROM);

        let a = ConversationId::from("a");
        drop(wakes.watch(&a));
        wakes.wake(&a, Seq(1));
        assert!(!wakes.lock().by_conversation.contains_key(&a));
    }
}
