//! The engine's interface to adapters.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{Command, ConversationId, Durability, Place, Timestamp, UserId};
use outlast_store::{Store, StoreError, Table};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::actor::{Answer, Ask, Mail, Receipt, Request, Workshop};
use crate::clock::{Clock, Ids};
use crate::endings::Endings;
use crate::error::EngineError;
use crate::figures::Figures;
use crate::lease::Lease;
use crate::ledger::Ledger;
use crate::live::Live;
use crate::models::Models;
use crate::notifications::{Bells, Outbox};
use crate::owners::LeftToOthers;
use crate::pace::Pace;
use crate::settings::Settings;
use crate::slots::Slots;
use crate::tools::McpStanding;

/// How often a command is sent again if the owner ended before it took the command.
const SEND_TRIES: usize = 100;

/// A store that does not respond must not delay the end of the process; the lease expires by itself.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// How many owners that were woken catch up at a time. Thousands of them at once would keep each other, and the renewal
/// of the lease, from the store.
const TURNS: usize = 32;
/// Owners that cannot get on hold up others for no longer than this.
const TURN_WITHIN: Duration = Duration::from_secs(1);

/// Runs generations. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
}

/// Shared by all parts of the engine.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    /// Where tools run, or why there is no such place.
    pub(crate) workshop: Result<Workshop, String>,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    /// The live generations that are owned here.
    pub(crate) live: Arc<Live>,
    pub(crate) lease: Lease,
    pub(crate) left_to_others: LeftToOthers,
    /// One for each woken owner that has not caught up yet.
    turns: Arc<Semaphore>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) figures: Figures,
    /// What users have used.
    pub(crate) ledger: Ledger,
    pub(crate) endings: Endings,
    pub(crate) bells: Bells,
    pub(crate) outbox: Outbox,
    /// Cancelled to stop all owners.
    pub(crate) stop: CancellationToken,
    pub(crate) slots: Slots,
    /// All tasks of the engine, which waits for them when it stops.
    tasks: TaskTracker,
}

pub struct Parts {
    pub store: Arc<dyn Store>,
    pub models: Models,
    /// Where tools run, or why there is no such place.
    pub workshop: Result<Workshop, String>,
    pub settings: Settings,
    pub clock: Clock,
    pub ids: Ids,
}

impl Engine {
    /// An engine with nothing running yet. Call `take_up` to continue what an earlier one left unfinished.
    pub fn new(parts: Parts) -> Engine {
        let Parts { store, models, workshop, settings, clock, ids } = parts;
        let shared = Shared {
            store,
            models,
            workshop,
            settings,
            clock,
            ids,
            live: Arc::default(),
            lease: Lease::default(),
            left_to_others: LeftToOthers::default(),
            turns: Arc::new(Semaphore::new(TURNS)),
            pace: Arc::default(),
            figures: Figures::default(),
            ledger: Ledger::default(),
            endings: Endings::default(),
            bells: Bells::default(),
            outbox: Outbox::default(),
            stop: CancellationToken::new(),
            slots: Slots::default(),
            tasks: TaskTracker::new(),
        };
        Engine { shared: Arc::new(shared) }
    }

    /// Stops all owners at a safe point, waits for them, and gives everything up. Another instance continues their
    /// work at once, or else the next start.
    pub async fn stop(&self) {
        self.shared.stop.cancel();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        if timeout(LEAVE_WITHIN, self.shared.save_accounts()).await.is_err() {
            tracing::warn!("could not save what was used in time");
        }
        if self.shared.lease.is_kept() {
            match timeout(LEAVE_WITHIN, self.shared.store.leave()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "could not leave; the lease will expire"),
                Err(_) => tracing::warn!("could not leave in time; the lease will expire"),
            }
        }
    }

    /// Cancelled when the engine stops, so that adapters can end their streams.
    pub fn stopping(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// What has happened since the server started, and what is going on now.
    pub fn figures(&self) -> &Figures {
        let figures = &self.shared.figures;
        figures.live.set(self.shared.live.in_all() as i64);
        figures.owners.set(self.owners() as i64);
        figures
    }

    /// How many conversations have an owner here.
    pub fn owners(&self) -> usize {
        self.shared.slots.owners()
    }

    /// The names of the tools that the server runs.
    pub fn tools(&self) -> Vec<String> {
        let has_sandboxes = self.shared.workshop.is_ok();
        let rules = self.shared.settings.rules.tools.iter();
        let delegates = self.shared.settings.rules.max_depth > 0;
        let offered = rules.filter(|(_, rule)| match rule.place {
            Place::Sandbox => has_sandboxes,
            Place::Child => delegates,
            Place::Log => false, // only sub-agents have these, and all of them do
            Place::Elsewhere => true,
        });
        let of_servers = self.shared.settings.toolbox.servers().flat_map(|server| server.tools());
        let is_tool = |name: &&String| self.shared.settings.toolbox.server_of(name).is_none();
        let offered = offered.map(|(name, _)| name).filter(is_tool).cloned();
        offered.chain(of_servers).collect()
    }

    /// The servers that bring tools of their own, and what is wrong with them.
    pub fn tool_servers(&self) -> Vec<McpStanding> {
        self.shared.settings.toolbox.servers().map(|server| server.standing()).collect()
    }

    /// Why the server has no sandboxes, and so none of the tools that run in one.
    pub fn no_tools(&self) -> Option<&str> {
        self.shared.workshop.as_ref().err().map(String::as_str)
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
        self.ask(conversation, Request::Command { command: Box::new(command), user: user.clone(), options })
            .await
    }

    /// Has the owner carry out a request, here or at another instance.
    pub(crate) async fn ask(
        &self,
        conversation: &ConversationId,
        request: Request,
    ) -> Result<Receipt, EngineError> {
        let ask = |reply| Mail::Ask(Box::new(Ask { request: request.clone(), reply }));
        match self.ask_here(conversation, ask).await? {
            Answer::Done(replied) => replied,
            Answer::Elsewhere => self.ask_by_mail(conversation, &request).await,
        }
    }

    /// Sends mail to the local owner and waits for the reply. If there is no reply, the owner ended without taking
    /// the mail, so sending it again cannot carry it out twice.
    pub(crate) async fn ask_here<T>(
        &self,
        conversation: &ConversationId,
        mail: impl Fn(oneshot::Sender<Answer<T>>) -> Mail,
    ) -> Result<Answer<T>, EngineError> {
        for _ in 0..SEND_TRIES {
            let (reply, replied) = oneshot::channel();
            self.shared.send(conversation, mail(reply)).await;
            if let Ok(answer) = replied.await {
                return Ok(answer);
            }
            if self.shared.stop.is_cancelled() {
                return Err(EngineError::Unavailable("the server is stopping".to_owned()));
            }
        }
        Err(EngineError::Unavailable("no owner accepted the request; try again".to_owned()))
    }

    /// Makes sure that the conversation has an owner, which then does what is due. Returns when there is room for
    /// another one to catch up, or when there has been none for a while.
    pub(crate) async fn wake(&self, conversation: &ConversationId) {
        let turn = timeout(TURN_WITHIN, self.shared.turns.clone().acquire_owned()).await;
        let turn = turn.ok().and_then(Result::ok);
        self.shared.send(conversation, Mail::Wake { turn }).await;
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
