//! The engine as adapters see it: commands go in, answers come out, and exactly one owner exists for each
//! conversation that has something to do.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use outlast_core::{Command, Conversation, ConversationId, Seq, UserId};
use outlast_store::{Store, StoreError};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Actor, Ask, MAILBOX, Mail};
use crate::clock::{Clock, Ids};
use crate::error::CommandError;
use crate::feed::Feed;
use crate::live::Live;
use crate::models::Models;
use crate::settings::Settings;

/// An owner that failed is replaced after this long.
const REOPEN_WAIT: Duration = Duration::from_millis(500);
/// How often a command is sent again because the owner went away before it looked at it.
const SEND_TRIES: usize = 100;

/// Runs generations. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// What every part of the engine can reach.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    /// How much each user has under way.
    pub(crate) live: Arc<Live>,
    /// Ends every owner.
    pub(crate) stop: CancellationToken,
    /// The one place that spawns tasks, and waits for them.
    tasks: TaskTracker,
    slots: Mutex<HashMap<ConversationId, Slot>>,
}

/// What is known of a conversation while somebody owns or follows it.
struct Slot {
    mailbox: Option<mpsc::Sender<Mail>>,
    feed: Weak<Feed>,
}

/// What an engine is made of.
pub struct Parts {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Who answers.
    pub models: Models,
    /// What the operator decided.
    pub settings: Settings,
    /// Who tells the time.
    pub clock: Clock,
    /// Who makes names.
    pub ids: Ids,
}

impl Engine {
    /// An engine with nothing running yet; `sweep` takes up what an earlier one left.
    pub fn new(parts: Parts) -> Engine {
        let Parts { store, models, settings, clock, ids } = parts;
        let shared = Shared {
            store,
            models,
            settings,
            clock,
            ids,
            live: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            slots: Mutex::default(),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Ends every owner at a safe point and waits for them. What they were doing is taken up by the next
    /// start.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Is cancelled when the engine stops: adapters end their streams with it.
    pub fn stopping(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    /// How many conversations have an owner here.
    pub fn owners(&self) -> usize {
        self.shared.slots().values().filter(|slot| slot.mailbox.is_some()).count()
    }

    /// The names of the models.
    pub fn models(&self) -> Vec<String> {
        self.shared.models.names()
    }

    pub(crate) async fn command(
        &self,
        conversation: &ConversationId,
        user: &UserId,
        command: Command,
        options: CommandOptions,
    ) -> Result<Conversation, CommandError> {
        let ask = |reply| {
            let (command, user) = (command.clone(), user.clone());
            Mail::Command(Box::new(Ask { command, user, options, reply }))
        };
        self.ask(conversation, ask).await
    }

    /// Sends mail to the owner and waits for the answer. An owner that goes away without looking at it
    /// leaves it unanswered, so sending it again is not asking twice.
    pub(crate) async fn ask<T>(
        &self,
        conversation: &ConversationId,
        mail: impl Fn(oneshot::Sender<Result<T, CommandError>>) -> Mail,
    ) -> Result<T, CommandError> {
        for _ in 0..SEND_TRIES {
            let (reply, answer) = oneshot::channel();
            self.shared.send(conversation, mail(reply)).await;
            if let Ok(answer) = answer.await {
                return answer;
            }
            if self.shared.stop.is_cancelled() {
                return Err(CommandError::Unavailable("the server is stopping".to_owned()));
            }
        }
        Err(CommandError::Unavailable("no owner took the request; ask again".to_owned()))
    }

    /// Makes sure that somebody owns the conversation and looks at what it needs.
    pub(crate) async fn wake(&self, conversation: &ConversationId) {
        self.shared.send(conversation, Mail::Wake).await;
    }
}

/// How a command is to be taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommandOptions {
    /// Make the conversation if it does not exist.
    pub(crate) create: bool,
    /// The client gave the request its name.
    pub(crate) named: bool,
}

impl Shared {
    /// The feed of a conversation, shared by its owner and its readers.
    pub(crate) fn feed(self: &Arc<Self>, conversation: &ConversationId) -> Arc<Feed> {
        feed_in(&mut self.slots(), conversation)
    }

    /// The last position that readers here can see, if anybody owns or follows the conversation.
    pub(crate) fn visible_tail(&self, conversation: &ConversationId) -> Option<Seq> {
        self.slots().get(conversation)?.feed.upgrade()?.tail()
    }

    /// Forgets a conversation that nobody owns or follows.
    pub(crate) fn forget(&self, conversation: &ConversationId) {
        let mut slots = self.slots();
        let unused = |slot: &Slot| slot.mailbox.is_none() && slot.feed.strong_count() == 0;
        if slots.get(conversation).is_some_and(unused) {
            slots.remove(conversation);
        }
    }

    /// Lets an owner go if nobody has sent it anything.
    pub(crate) fn retire(&self, conversation: &ConversationId, mailbox: &mut mpsc::Receiver<Mail>) -> bool {
        let mut slots = self.slots();
        if !mailbox.is_empty() {
            return false;
        }
        if let Some(slot) = slots.get_mut(conversation) {
            slot.mailbox = None;
        }
        true
    }

    /// Runs a task that the engine waits for when it stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Sends mail to the conversation's owner, who is called into being if there is none. It is dropped only
    /// if the mailbox was full and the owner goes before there is room, or if everything is stopping.
    async fn send(self: &Arc<Self>, conversation: &ConversationId, mail: Mail) {
        if let Some((mailbox, mail)) = self.send_now(conversation, mail) {
            mailbox.send(mail).await.ok();
        }
    }

    /// The same without waiting; gives the mail back if the mailbox is full. What is sent here is in the
    /// mailbox before an owner can look whether it may go.
    fn send_now(
        self: &Arc<Self>,
        conversation: &ConversationId,
        mail: Mail,
    ) -> Option<(mpsc::Sender<Mail>, Mail)> {
        let mut slots = self.slots();
        let feed = feed_in(&mut slots, conversation);
        let slot = slots.get_mut(conversation).expect("made by feed_in");
        let mail = match &slot.mailbox {
            None => mail,
            Some(mailbox) => match mailbox.try_send(mail) {
                Ok(()) => return None,
                Err(TrySendError::Full(mail)) => return Some((mailbox.clone(), mail)),
                // It belonged to an owner that panicked: its conversation must not stay without one.
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

    fn slots(&self) -> MutexGuard<'_, HashMap<ConversationId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Owns a conversation, and sees to it that somebody else does if this owner panics: its readers wait, and
/// nobody may ever send a command that would call the next one.
async fn supervise(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mailbox: mpsc::Receiver<Mail>,
) {
    let owning = own(shared.clone(), conversation.clone(), feed, mailbox);
    // What is shared stays whole: every lock's holder leaves it so, and the log judges the next owner.
    if AssertUnwindSafe(owning).catch_unwind().await.is_err() {
        tracing::error!(%conversation, "the owner panicked; another one takes over");
        tokio::select! {
            () = shared.stop.cancelled() => return,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
        shared.send(&conversation, Mail::Wake).await;
    }
}

/// Owns a conversation until nothing is left to do, across failures of the store.
async fn own(
    shared: Arc<Shared>,
    conversation: ConversationId,
    feed: Arc<Feed>,
    mut mailbox: mpsc::Receiver<Mail>,
) {
    loop {
        mailbox = match Actor::open(shared.clone(), conversation.clone(), feed.clone(), mailbox).await {
            Ok(actor) => match actor.run().await {
                Ok(()) => break,
                Err(mailbox) => mailbox,
            },
            Err((error, mut mailbox)) => {
                tracing::error!(%conversation, %error, "cannot take up a conversation");
                refuse_all(&shared, &conversation, &mut mailbox, &error).await;
                // What cannot be read will not be read better later. The next to ask is told again.
                if matches!(error, StoreError::Broken(_)) && shared.retire(&conversation, &mut mailbox) {
                    break;
                }
                mailbox
            }
        };
        tokio::select! {
            () = shared.stop.cancelled() => break,
            () = tokio::time::sleep(REOPEN_WAIT) => {}
        }
    }
    drop(feed);
    shared.forget(&conversation);
}

/// Answers those who wait for a conversation that cannot be taken up. It can still be deleted.
async fn refuse_all(
    shared: &Shared,
    conversation: &ConversationId,
    mailbox: &mut mpsc::Receiver<Mail>,
    error: &StoreError,
) {
    let refusal = || match error {
        StoreError::Unavailable(reason) => CommandError::Unavailable(reason.clone()),
        StoreError::Broken(reason) => CommandError::Broken(reason.clone()),
    };
    while let Ok(mail) = mailbox.try_recv() {
        match mail {
            Mail::Command(ask) => {
                ask.reply.send(Err(refusal())).ok();
            }
            Mail::Delete { reply, .. } => {
                // Whose it is was checked by its document, which is all that can be read of it.
                let deleted = shared.store.delete(conversation).await;
                reply.send(deleted.map_err(CommandError::from)).ok();
            }
            Mail::Wake => {}
        }
    }
}

impl Engine {
    /// Whether the store answers.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.shared.store.get(outlast_store::Table::Conversations, "").await.map(|_| ())
    }

    /// The durability setting, by name.
    pub fn durability(&self) -> &'static str {
        match self.shared.settings.durability {
            outlast_core::Durability::Commit => "commit",
            outlast_core::Durability::Debounce(_) => "debounce",
            outlast_core::Durability::Boundary => "boundary",
        }
    }
}
