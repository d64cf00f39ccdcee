//! The engine as adapters see it: commands go in, replies come out.

use std::sync::Arc;

use outlast_core::{Command, ConversationId, Durability, Timestamp, UserId};
use outlast_store::{Store, StoreError, Table};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Ask, Mail, Receipt};
use crate::clock::{Clock, Ids};
use crate::error::EngineError;
use crate::live::Live;
use crate::models::Models;
use crate::pace::Pace;
use crate::settings::Settings;
use crate::slots::Slots;

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
    /// How many generations each user has under way.
    pub(crate) live: Arc<Live>,
    pub(crate) pace: Arc<Pace>,
    /// Ends every owner.
    pub(crate) stop: CancellationToken,
    pub(crate) slots: Slots,
    /// The one place that spawns tasks, and waits for them.
    tasks: TaskTracker,
}

/// What an engine is made of.
pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Models,
    pub settings: Settings,
    pub clock: Clock,
    pub ids: Ids,
}

impl Engine {
    /// An engine with nothing running yet; `take_up` takes up what an earlier one left.
    pub fn new(parts: Parts) -> Engine {
        let Parts { store, models, settings, clock, ids } = parts;
        let shared = Shared {
            store,
            models,
            settings,
            clock,
            ids,
            live: Arc::default(),
            pace: Arc::default(),
            stop: CancellationToken::new(),
            slots: Slots::default(),
            tasks: TaskTracker::new(),
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

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// How many conversations have an owner here.
    pub fn owners(&self) -> usize {
        self.shared.slots.owners()
    }

    /// The names of the models.
    pub fn models(&self) -> Vec<String> {
        self.shared.models.names()
    }

    /// Whether the store answers.
    pub async fn check(&self) -> Result<(), StoreError> {
        self.shared.store.get(Table::Conversations, "").await.map(|_| ())
    }

    /// The durability setting, by name.
    pub fn durability(&self) -> &'static str {
        match self.shared.settings.durability {
            Durability::Commit => "commit",
            Durability::Debounce(_) => "debounce",
            Durability::Boundary => "boundary",
        }
    }

    pub(crate) async fn command(
        &self,
        conversation: &ConversationId,
        user: &UserId,
        command: Command,
        options: CommandOptions,
    ) -> Result<Receipt, EngineError> {
        let ask = |reply| {
            let (command, user) = (command.clone(), user.clone());
            Mail::Command(Box::new(Ask { command, user, options, reply }))
        };
        self.ask(conversation, ask).await
    }

    /// Sends mail to the owner and waits for the reply. An owner that goes away without looking at it leaves
    /// it unanswered, so sending it again is not asking twice.
    pub(crate) async fn ask<T>(
        &self,
        conversation: &ConversationId,
        mail: impl Fn(oneshot::Sender<Result<T, EngineError>>) -> Mail,
    ) -> Result<T, EngineError> {
        for _ in 0..SEND_TRIES {
            let (reply, replied) = oneshot::channel();
            self.shared.send(conversation, mail(reply)).await;
            if let Ok(reply) = replied.await {
                return reply;
            }
            if self.shared.stop.is_cancelled() {
                return Err(EngineError::Unavailable("the server is stopping".to_owned()));
            }
        }
        Err(EngineError::Unavailable("no owner took the request; try again".to_owned()))
    }

    /// Makes sure that somebody owns the conversation and looks at what it needs.
    pub(crate) async fn wake(&self, conversation: &ConversationId) {
        self.shared.send(conversation, Mail::Wake).await;
    }
}

/// How a command is to be taken.
#[derive(Clone, Copy, Default)]
pub(crate) struct CommandOptions {
    /// Create the conversation if it does not exist.
    pub(crate) create: bool,
    /// The client gave the request its idempotency key.
    pub(crate) named: bool,
}

impl Shared {
    /// Runs a task that the engine waits for when it stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
