//! The engine's interface to adapters.

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

/// How often a command is sent again if the owner ended before it took the command.
const SEND_TRIES: usize = 100;

/// Runs generations. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// Shared by all parts of the engine.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    /// How many live generations each user has.
    pub(crate) live: Arc<Live>,
    pub(crate) pace: Arc<Pace>,
    /// Cancelled to stop all owners.
    pub(crate) stop: CancellationToken,
    pub(crate) slots: Slots,
    /// All tasks of the engine, which waits for them when it stops.
    tasks: TaskTracker,
}

pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Models,
    pub settings: Settings,
    pub clock: Clock,
    pub ids: Ids,
}

impl Engine {
    /// An engine with nothing running yet. Call `take_up` to continue what an earlier one left unfinished.
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

    /// Stops all owners at a safe point and waits for them. The next start continues their work.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    /// Cancelled when the engine stops, so that adapters can end their streams.
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

    /// Checks that the store responds.
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

    /// Sends mail to the owner and waits for the reply. If there is no reply, the owner ended without taking the
    /// mail, so sending it again cannot carry it out twice.
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
        Err(EngineError::Unavailable("no owner accepted the request; try again".to_owned()))
    }

    /// Makes sure that the conversation has an owner, which then does what is due.
    pub(crate) async fn wake(&self, conversation: &ConversationId) {
        self.shared.send(conversation, Mail::Wake).await;
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct CommandOptions {
    /// Whether to create the conversation if it does not exist.
    pub(crate) create: bool,
    /// Whether the idempotency key comes from the client.
    pub(crate) named: bool,
}

impl Shared {
    /// Runs a task that the engine waits for when it stops.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}
