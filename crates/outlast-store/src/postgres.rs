//! Several instances on one PostgreSQL server, 14 or later.
//!
//! An instance holds conversations and is the only one to write to them; a row of its own in `writers` guards
//! every flush, so that taking a conversation over shuts the former owner out without a lock per conversation.
//! One task gathers the appends of all conversations into one flush. Who holds what is known here as well: a
//! flush judges fences and the ends of logs in memory and touches no row for that.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_postgres::Row;

use crate::contract::{
    Append, AppendError, ClaimError, Document, Fence, InstanceId, Listed, Loaded, MAIL_PAGE, Mail, MailId,
    Newest, Query, Record, Store, StoreError, Table,
};
use crate::open::Durable;
use crate::owners::Owners;
use crate::page;
use crate::wakes::Wakes;

mod address;
mod batch;
mod connect;
mod documents;
mod durability;
mod gather;
mod items;
mod listener;
mod reads;
mod schema;
mod session;
mod writer;

use connect::{Source, store_error};
use gather::{Found, Wanted};
use listener::Notices;
use session::Value;
use writer::{Command, Trim, Writer};

/// How long a claim waits until it is certain that no earlier append is on its way.
const SETTLED_WITHIN: Duration = Duration::from_secs(5);

/// How often to look for what no wake-up told.
const POLL: Duration = Duration::from_secs(1);
/// The same where there are no wake-ups: a pooler that gives each transaction another connection cannot pass on what
/// only the connection that listens is told.
const POLL_ONLY: Duration = Duration::from_millis(50);

/// Limits of a [`PostgresStore`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Connections that the store may use, without the one that listens.
    pub connections: usize,
    /// Appends that may wait for the writer; the next ones wait to be let in.
    pub queue: usize,
    /// Flushes of text begin this far apart. What a command changes does not wait.
    pub frame: Duration,
    /// What the server must promise about a commit.
    pub durable: Durable,
}

impl Default for Options {
    fn default() -> Self {
        Self { connections: 10, queue: 4096, frame: Duration::from_millis(5), durable: Durable::AtOnce }
    }
}

/// One instance's handle. Dropping it leaves its lease to run out; call [`Store::leave`] to end it at once.
pub struct PostgresStore {
    instance: InstanceId,
    source: Source,
    shared: Arc<Shared>,
    commands: mpsc::Sender<Command>,
    /// Reads of conversations that are followed here.
    gathered: mpsc::Sender<Wanted>,
    /// The writer, the notifier and those who look for changes; they end with the store.
    _tasks: JoinSet<()>,
}

/// What the tasks and the callers both touch.
struct Shared {
    ownership: Mutex<Ownership>,
    /// The number of the last flush of which no part is on its way any more.
    finished: watch::Sender<u64>,
    wakes: Wakes,
    /// Changes when mail may have arrived.
    arrived: watch::Sender<()>,
    notices: Notices,
}

struct Ownership {
    owners: Owners,
    /// The number of the last flush whose fences were judged.
    judged: u64,
    /// A flush whose fate is unknown until there is a connection again.
    unresolved: Option<u64>,
}

impl PostgresStore {
    pub async fn open(url: &str, options: Options) -> Result<PostgresStore, StoreError> {
        let source = Source::new(url, options.connections, options.durable)?;
        {
            let mut client = source.shared().await?;
            schema::prepare(&mut client).await?;
        }
        let instance = format!("instance_{}", uuid::Uuid::now_v7().simple());
        schema::join(&source.shared().await?, &instance).await?;
        let shared = Arc::new(Shared::new());
        let (commands, waiting) = mpsc::channel(options.queue);
        let writer =
            Writer::new(source.clone(), Arc::clone(&shared), instance.clone(), options.frame).await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(writer.run(waiting));
        let (gathered, wanted) = mpsc::channel(options.queue);
        tasks.spawn(gather::serve(source.clone(), wanted));
        tasks.spawn(listener::notify(source.clone(), Arc::clone(&shared)));
        let poll = if source.pooled {
            POLL_ONLY
        } else {
            tasks.spawn(listener::listen(source.clone(), Arc::clone(&shared), instance.clone()));
            POLL
        };
        tasks.spawn(listener::poll(source.clone(), Arc::clone(&shared), poll));
        Ok(Self { instance: InstanceId(instance), source, shared, commands, gathered, _tasks: tasks })
    }

    async fn rows(&self, sql: &str, values: &[&dyn Value]) -> Result<Vec<Row>, StoreError> {
        let client = self.source.shared().await?;
        client.session().query(sql, values).await.map_err(store_error)
    }

    /// Returns when no append judged so far is on its way any more.
    async fn wait_for_flush(&self) -> Result<(), StoreError> {
        let judged = self.shared.ownership().judged;
        let mut finished = self.shared.finished.subscribe();
        let finished = finished.wait_for(|finished| *finished >= judged);
        match tokio::time::timeout(SETTLED_WITHIN, finished).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => {
                Err(StoreError::Unavailable("an earlier append may still be in flight".to_owned()))
            }
        }
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        page::assert_sound(&append);
        let (answer, answered) = oneshot::channel();
        let gone = || AppendError::Unconfirmed("the storage writer has stopped; restart the server".into());
        self.commands.send(Command::Append { append, answer }).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        if self.shared.wakes.is_watched(conversation) {
            let (answer, answered) = oneshot::channel();
            let conversation = conversation.clone();
            let gone = || StoreError::Broken("the storage reader has stopped; restart the server".into());
            self.gathered
                .send(Wanted { conversation, after, max_bytes, answer })
                .await
                .map_err(|_| gone())?;
            if let Found::Records(records) = answered.await.map_err(|_| gone())?? {
                return Ok(records);
            }
        }
        reads::read(self.source.shared().await?.session(), conversation, after, max_bytes).await
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        reads::load(&self.source, conversation, newest).await
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        if id.contains('\0') {
            return Ok(None);
        }
        documents::get(self.source.shared().await?.session(), table, id).await.map_err(store_error)
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        let table = page::check(&query)?;
        let client = self.source.shared().await?;
        let page =
            documents::list(client.session(), table, &query, &self.instance.0).await.map_err(store_error)?;
        Ok(page.into_listed(query.due_by.is_some()))
    }

    fn instance(&self) -> &InstanceId {
        &self.instance
    }

    async fn renew(&self, lease: Duration) -> Result<(), StoreError> {
        let sql = "WITH mine AS (INSERT INTO instances VALUES ($1, clock_timestamp() + $2 * interval '1 second') \
                   ON CONFLICT (instance) DO UPDATE SET lease_until = excluded.lease_until \
                   RETURNING (xmax = 0) AS joined) \
                   SELECT joined, EXISTS (SELECT 1 FROM instances WHERE instance <> $1 \
                   AND lease_until > clock_timestamp()) FROM mine";
        let rows = self.rows(sql, &[&self.instance.0, &lease.as_secs_f64()]).await?;
        let Some(row) = rows.first() else { return Ok(()) };
        let (joined, others): (bool, bool) = (row.get(0), row.get(1));
        self.shared.notices.heard.store(others, std::sync::atomic::Ordering::Relaxed);
        if joined {
            self.shared.notices.mail(vec![listener::EVERYBODY.to_owned()]);
        }
        Ok(())
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.shared.ownership().owners.evict_all();
        self.wait_for_flush().await?;
        let sql = "WITH held AS (DELETE FROM owners WHERE instance = $1), \
                   lease AS (DELETE FROM instances WHERE instance = $1), \
                   letters AS (DELETE FROM mail WHERE sender = $1) \
                   SELECT pg_notify('outlast_mail', $2)";
        self.rows(sql, &[&self.instance.0, &listener::EVERYBODY]).await?;
        Ok(())
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        let sql = "SELECT instance FROM instances WHERE instance <> $1 AND lease_until > clock_timestamp() ORDER BY 1";
        let rows = self.rows(sql, &[&self.instance.0]).await?;
        Ok(rows.iter().map(|row| InstanceId(row.get(0))).collect())
    }

    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError> {
        // PostgreSQL cannot lock a sequence. A claim between the two halves of this could be given a fence twice, which
        // is why nobody may use the store meanwhile.
        let sql =
            "SELECT CASE WHEN last_value < $1 THEN setval('fences', $1) ELSE last_value END FROM fences";
        let rows = self.rows(sql, &[&fence.0.cast_signed()]).await?;
        let row =
            rows.first().ok_or_else(|| StoreError::Broken("the sequence fences is missing".to_owned()))?;
        Ok(Fence(row.get::<_, i64>(0).cast_unsigned()))
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        // Nothing may be written with the fence of before, and what is on its way must have arrived.
        self.shared.ownership().owners.evict(conversation);
        self.wait_for_flush().await?;
        // What was taken from this instance is counted before the claim: a takeover that follows is then noticed.
        let sql = "SELECT holder, new_fence, last, (SELECT claims FROM writers WHERE instance = $2) FROM claim($1, $2)";
        let rows = self.rows(sql, &[&conversation.as_str(), &self.instance.0]).await?;
        let row = rows.first().ok_or_else(|| StoreError::Broken("a claim returned nothing".to_owned()))?;
        if let Some(holder) = row.get::<_, Option<String>>(0) {
            return Err(ClaimError::HeldBy(InstanceId(holder)));
        }
        let (fence, last) = (Fence(row.get::<_, i64>(1).cast_unsigned()), reads::seq(row.get(2)));
        let as_of = row.get::<_, Option<i64>>(3).unwrap_or(0);
        self.shared.ownership().owners.granted(conversation, fence, last, as_of);
        Ok(fence)
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        let owned = self.shared.ownership().owners.release(conversation, fence);
        if owned {
            self.wait_for_flush().await?;
        }
        let values: [&dyn Value; 3] = [&conversation.as_str(), &self.instance.0, &fence.0.cast_signed()];
        let rows = self.rows("SELECT release($1, $2, $3)", &values).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        let values: [&dyn Value; 4] =
            [&mail.id.0, &self.instance.0, &mail.conversation.as_str(), &&mail.body[..]];
        self.rows("SELECT send_mail($1, $2, $3, $4)", &values).await?;
        Ok(())
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        let sql = "SELECT DISTINCT m.conversation FROM mail AS m JOIN owners AS o USING (conversation) \
                   WHERE m.reply IS NULL AND o.instance = $1 AND is_live(m.sender) ORDER BY 1";
        let rows = self.rows(sql, &[&self.instance.0]).await?;
        Ok(rows.iter().map(|row| ConversationId::from(row.get::<_, &str>(0))).collect())
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        let sql = "SELECT id, body FROM mail WHERE conversation = $1 AND reply IS NULL AND is_live(sender) \
                   ORDER BY number LIMIT $2";
        let most = i64::try_from(MAIL_PAGE).expect("a small number");
        let rows = self.rows(sql, &[&conversation.as_str(), &most]).await?;
        let mail = |row: &Row| Mail {
            id: MailId(row.get(0)),
            conversation: conversation.clone(),
            body: Bytes::from(row.get::<_, Vec<u8>>(1)),
        };
        Ok(rows.iter().map(mail).collect())
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        let rows = self.rows("SELECT reply FROM mail WHERE id = $1", &[&mail.0]).await?;
        Ok(rows.first().and_then(|row| row.get::<_, Option<Vec<u8>>>(0)).map(Bytes::from))
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        let values: [&dyn Value; 2] = [&mail.0, &self.instance.0];
        self.rows("DELETE FROM mail WHERE id = $1 AND sender = $2", &values).await?;
        Ok(())
    }

    fn watch_mail(&self) -> watch::Receiver<()> {
        self.shared.arrived.subscribe()
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.shared.wakes.watch(conversation)
    }

    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        let gone = || StoreError::Broken("the storage writer has stopped; restart the server".into());
        let (answer, answered) = oneshot::channel();
        let trim = Command::Trim(Trim { conversation: conversation.clone(), first, last, answer });
        self.commands.send(trim).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.shared.ownership().owners.evict(conversation);
        self.wait_for_flush().await?;
        let values: [&dyn Value; 2] = [&conversation.as_str(), &self.instance.0];
        self.rows("SELECT delete_conversation($1, $2)", &values).await?;
        self.shared.wakes.wake(conversation, Seq::ZERO);
        Ok(())
    }
}

impl Shared {
    fn new() -> Self {
        let ownership = Ownership { owners: Owners::after(0), judged: 0, unresolved: None };
        Self {
            ownership: Mutex::new(ownership),
            finished: watch::Sender::new(0),
            wakes: Wakes::default(),
            arrived: watch::Sender::new(()),
            notices: Notices::default(),
        }
    }

    // Every critical section leaves its value whole, so a panic elsewhere does not spoil it.
    fn ownership(&self) -> MutexGuard<'_, Ownership> {
        self.ownership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to this flush is over.
    fn finish(&self, number: u64) {
        self.ownership().unresolved = None;
        self.finished.send_replace(number);
    }

    /// This flush may still arrive, until the next connection shuts it out.
    fn wait_until_resolved(&self, number: u64) {
        self.ownership().unresolved = Some(number);
    }

    fn resolved(&self) {
        if let Some(number) = self.ownership().unresolved.take() {
            self.finished.send_replace(number);
        }
    }
}
