//! The stores that are compared, and what their caller remembers.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use outlast_core::{ConversationId, Seq, UserId};
use outlast_store::suite::items::item;
use outlast_store::suite::{conversation, document};
use outlast_store::{
    Append, AppendError, Change, Document, Durable, Fence, Item, ItemQuery, Limit, Mail, MailId, MemoryStore,
    Newest, PostgresOptions, PostgresStore, Query, Record, RedisStore, SqliteOptions, SqliteStore, Store,
    Table,
};

use crate::step::{Changed, Limited, Step, Written};

const TABLES: [Table; 3] = [Table::Conversations, Table::Messages, Table::Generations];
const STATUSES: [&str; 3] = ["", "running", "done"];
const NAMES: [&str; 4] = ["memory", "SQLite", "PostgreSQL", "Redis"];
const SQLITE: usize = 1;
/// Longer than any run takes.
const LEASE: Duration = Duration::from_secs(3600);

pub(crate) struct Stores {
    /// In the order of `NAMES`. The first is what the others are compared with.
    all: Vec<Arc<dyn Store>>,
    sqlite: Option<Sqlite>,
    /// For each conversation and store, the newest fence and the one before it.
    fences: [[(Fence, Fence); 4]; 3],
    ends: [u64; 3],
}

struct Sqlite {
    folder: tempfile::TempDir,
    options: SqliteOptions,
    store: Arc<SqliteStore>,
}

impl Sqlite {
    fn open(folder: tempfile::TempDir, options: SqliteOptions) -> Self {
        let store =
            Arc::new(SqliteStore::open_with(&folder.path().join("outlast.db"), options.clone()).unwrap());
        Self { folder, options, store }
    }
}

impl Stores {
    pub(crate) async fn open(postgres: String, redis: String) -> Self {
        let options = PostgresOptions { frame: Duration::ZERO, ..PostgresOptions::default() };
        let all: Vec<Arc<dyn Store>> = vec![
            Arc::new(MemoryStore::new()),
            Arc::new(MemoryStore::new()), // until SQLite is opened
            Arc::new(PostgresStore::open(&postgres, options).await.unwrap()),
            Arc::new(RedisStore::open(&redis, Durable::AtOnce).await.unwrap()),
        ];
        Self { all, sqlite: None, fences: [[(Fence(0), Fence(0)); 4]; 3], ends: [0; 3] }
    }

    /// One run, which begins with empty stores.
    pub(crate) async fn run(&mut self, steps: Vec<Step>, tiny: bool) {
        let default = SqliteOptions { frame: Duration::ZERO, ..SqliteOptions::default() };
        let options = if tiny {
            SqliteOptions { readers: 1, queue: 2, chunk_bytes: 200, hot_bytes: 600, hot_rows: 8, ..default }
        } else {
            default
        };
        self.empty().await;
        self.place(Sqlite::open(tempfile::tempdir().unwrap(), options));
        self.all[0] = Arc::new(MemoryStore::new());
        self.agree(|store| async move { store.renew(LEASE).await.unwrap() }).await;
        for step in steps {
            self.take(step).await;
        }
        self.compare_everything().await;
        self.reopen().await;
        self.compare_everything().await;
    }

    fn place(&mut self, sqlite: Sqlite) {
        self.all[SQLITE] = sqlite.store.clone();
        self.sqlite = Some(sqlite);
    }

    /// The databases stay from run to run, because making new ones would take longer than the runs.
    async fn empty(&mut self) {
        for store in &self.all[2..] {
            store.leave().await.unwrap();
            for c in 0..3 {
                store.delete(&id(c)).await.unwrap();
            }
            for n in 0..4 {
                store.remove_item("kind", &format!("i{n}")).await.unwrap();
            }
        }
        self.fences = [[(Fence(0), Fence(0)); 4]; 3];
        self.ends = [0; 3];
    }

    /// The answer that all stores give.
    async fn agree<T: PartialEq + Debug, F: Future<Output = T>>(
        &self,
        ask: impl Fn(Arc<dyn Store>) -> F,
    ) -> T {
        same(join_all(self.all.iter().map(|store| ask(Arc::clone(store)))).await)
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Claim { c } => self.claim(c).await,
            Step::Release { c } => {
                let released = self.all.iter().zip(self.fences[c]);
                let released = released
                    .map(|(store, (fence, _))| async move { store.release(&id(c), fence).await.unwrap() });
                same(join_all(released).await);
            }
            Step::Append(written) => self.append(written).await,
            Step::Read { c, after, max_bytes } => {
                self.agree(|store| async move { store.read(&id(c), Seq(after), max_bytes).await.unwrap() })
                    .await;
            }
            Step::Load { c, messages, max_bytes } => {
                self.compare_load(c, Newest { messages, max_bytes }).await
            }
            Step::Get { table, id } => {
                let id = &format!("d{id}");
                self.agree(|store| async move { store.get(TABLES[table], id).await.unwrap() }).await;
            }
            Step::List { table, by_user, c, status, page: (limit, max_bytes) } => {
                let status = status.map(|status| STATUSES[status].to_owned());
                let query = Query {
                    table: Some(TABLES[table]),
                    user: by_user.then(|| UserId::from("user")),
                    conversation: c.map(id),
                    statuses: status.iter().cloned().collect(),
                    limit,
                    max_bytes,
                    ..Query::default()
                };
                let by_tag = by_user && TABLES[table] == Table::Conversations;
                if let Some(tag) = status.filter(|_| by_tag) {
                    let query = Query { statuses: Vec::new(), tag: Some(tag), ..query.clone() };
                    self.compare_list(query).await;
                }
                self.compare_list(query).await;
            }
            Step::Due { conversations, unowned, by, page: (limit, max_bytes) } => {
                let table = Some(if conversations { Table::Conversations } else { Table::Generations });
                let due_by = Some(by);
                self.compare_list(Query { table, due_by, unowned, limit, max_bytes, ..Query::default() })
                    .await;
            }
            Step::Trim { c, first, last } => {
                self.agree(|store| async move { store.trim(&id(c), Seq(first), Seq(last)).await.unwrap() })
                    .await;
            }
            Step::Delete { c } => {
                self.agree(|store| async move { store.delete(&id(c)).await.unwrap() }).await;
                self.ends[c] = 0;
            }
            Step::Send { c, mail } => {
                let (body, mail) = (Bytes::from(format!("to c{c}")), mail_id(mail));
                let mail = &Mail { id: mail, conversation: id(c), body };
                self.agree(|store| async move { store.send(mail.clone()).await.unwrap() }).await;
            }
            Step::Mail { c } => {
                self.agree(|store| async move { store.mail(&id(c)).await.unwrap() }).await;
                self.agree(|store| async move { store.mail_waiting().await.unwrap() }).await;
            }
            Step::Forget { mail } => {
                let mail = &mail_id(mail);
                self.agree(|store| async move { store.reply(mail).await.unwrap() }).await;
                self.agree(|store| async move { store.forget(mail).await.unwrap() }).await;
            }
            Step::PutItem { id, version, n } => self.put_item(id, version, n).await,
            Step::RemoveItem { id } => {
                let id = &format!("i{id}");
                self.agree(|store| async move { store.remove_item("kind", id).await.unwrap() }).await;
            }
            Step::ListItems { by_user, due_by, page: (limit, max_bytes) } => {
                let user = by_user.then(|| UserId::from("u1"));
                let query = ItemQuery { user, due_by, max_bytes, ..ItemQuery::newest("kind", limit) };
                self.compare_items(query).await;
            }
            Step::Settle => self.sqlite.as_ref().unwrap().store.settle().await.unwrap(),
            Step::Reopen => self.reopen().await,
        }
    }

    async fn claim(&mut self, c: usize) {
        for (store, fences) in self.all.iter().zip(&mut self.fences[c]) {
            let fence = store.claim(&id(c)).await.unwrap();
            assert!(fence > fences.0);
            *fences = (fence, fences.0);
        }
    }

    async fn append(&mut self, written: Written) {
        let Written { c, stale, off, sizes, changes, replies, limits } = written;
        // An owner answers what it has read.
        let waiting = self.agree(|store| async move { store.mail(&id(c)).await.unwrap() }).await;
        let waiting: Vec<&MailId> = waiting.iter().map(|mail| &mail.id).collect();
        let expected = self.ends[c].saturating_add_signed(off);
        let records = sizes.iter().zip(expected + 1..).map(|(size, seq)| record(seq, *size));
        let records: Vec<Record> = records.collect();
        let last = expected + records.len() as u64;
        let append = Append {
            conversation: id(c),
            fence: Fence(0),
            expected: Seq(expected),
            records,
            changes: changes.iter().map(|changed| change(c, *changed, last)).collect(),
            replies: replies
                .iter()
                .filter_map(|n| Some((waiting.get(*n).copied()?.clone(), Bytes::from(format!("at {last}")))))
                .collect(),
            limits: limits.iter().map(|limited| limit(*limited)).collect(),
        };
        let answers = self.all.iter().zip(self.fences[c]).map(|(store, (newest, before))| {
            let fence = if stale { before } else { newest };
            let append = Append { fence, ..append.clone() };
            async move {
                match store.append(append).await {
                    Ok(()) => "written".to_owned(),
                    Err(AppendError::Fenced { .. }) => "fenced".to_owned(),
                    Err(error) => error.to_string(),
                }
            }
        });
        if same(join_all(answers).await) == "written" {
            self.ends[c] = last;
        }
    }

    async fn put_item(&self, id: usize, version: u64, n: i64) {
        let item = &Item {
            user: UserId::from(format!("u{}", n % 2)),
            due: (n % 3 > 0).then_some(n),
            version,
            body: format!(r#"{{"n":"{}"}}"#, "x".repeat(n as usize)),
            ..item("kind", &format!("i{id}"), n / 2)
        };
        let put = |store: Arc<dyn Store>| async move {
            store.put_item(item.clone()).await.map_err(|error| error.to_string())
        };
        self.agree(put).await.ok();
    }

    /// SQLite is closed and opened. For the others a restart is that everything is given up.
    async fn reopen(&mut self) {
        let Sqlite { folder, options, store } = self.sqlite.take().unwrap();
        self.all[SQLITE] = Arc::clone(&self.all[0]);
        assert_eq!(Arc::strong_count(&store), 1);
        drop(store);
        self.place(Sqlite::open(folder, options));
        self.agree(|store| async move {
            store.leave().await.unwrap();
            store.renew(LEASE).await.unwrap();
        })
        .await;
    }

    async fn compare_everything(&self) {
        for c in 0..3 {
            self.agree(|store| async move { store.read(&id(c), Seq::ZERO, usize::MAX).await.unwrap() }).await;
            self.compare_load(c, Newest::of(2)).await;
        }
        self.compare_items(ItemQuery::newest("kind", 100)).await;
        for table in TABLES {
            self.compare_list(Query { table: Some(table), limit: 100, ..Query::default() }).await;
        }
    }

    async fn compare_load(&self, c: usize, newest: Newest) {
        self.agree(|store| async move { format!("{:?}", store.load(&id(c), newest).await.unwrap()) }).await;
    }

    /// All pages of it.
    async fn compare_items(&self, mut query: ItemQuery) {
        loop {
            let asked = &query;
            let page =
                self.agree(|store| async move { store.list_items(asked.clone()).await.unwrap() }).await;
            for item in &page.items {
                let id = &item.id;
                self.agree(|store| async move { store.get_item("kind", id).await.unwrap() }).await;
            }
            let Some(next) = page.next else { return };
            query.after = Some(next);
        }
    }

    /// All pages of it.
    async fn compare_list(&self, mut query: Query) {
        loop {
            let asked = &query;
            let page = self.agree(|store| async move { store.list(asked.clone()).await.unwrap() }).await;
            let Some(next) = page.next else { return };
            query.after = Some(next);
        }
    }
}

fn same<T: PartialEq + Debug>(answers: Vec<T>) -> T {
    let mut answers = answers.into_iter();
    let expected = answers.next().expect("memory answers");
    for (answer, name) in answers.zip(&NAMES[1..]) {
        assert_eq!(answer, expected, "{name} answers differently from memory");
    }
    expected
}

fn id(c: usize) -> ConversationId {
    conversation(&format!("c{c}"))
}

fn mail_id(n: usize) -> MailId {
    MailId(format!("m{n}"))
}

fn record(seq: u64, size: usize) -> Record {
    Record { seq: Seq(seq), bytes: Bytes::from(vec![b'a' + (seq % 26) as u8; size]) }
}

fn change(c: usize, (table, name, kind, with_state): Changed, last: u64) -> Change {
    let table = TABLES[table];
    // A conversation's document has its id. The others may move between conversations.
    let name = if table == Table::Conversations { format!("c{c}") } else { format!("d{name}") };
    let Some(status) = STATUSES.get(kind) else { return Change::Remove(table, name) };
    let fixed = document(table, &name, &id(c), name.len() as i64 + last as i64 / 7);
    let state = fixed.state.filter(|_| with_state).map(|state| format!("{state} at {last}"));
    let due = if table == Table::Messages || last.is_multiple_of(3) { None } else { Some(last as i64) };
    // Each conversation is tagged with its status, and with nothing at times.
    let tagged = table == Table::Conversations && !last.is_multiple_of(5);
    let tags = if tagged { vec![(*status).to_owned()] } else { Vec::new() };
    Change::Put(Document { status: (*status).to_owned(), seq: Seq(last), due, tags, state, ..fixed })
}

fn limit((table, by_user, status, at_most): Limited) -> Limit {
    Limit {
        table: TABLES[table],
        user: by_user.then(|| UserId::from("user")),
        statuses: vec![STATUSES[status].to_owned()],
        at_most,
    }
}
