//! Random operations have the same results in the memory store and in SQLite. SQLite is reopened in between,
//! and settles with tiny limits or on request.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ConversationId, Seq, UserId};
use outlast_store::suite::items::item;
use outlast_store::suite::{conversation, document};
use outlast_store::{
    Append, AppendError, Change, Document, Fence, Item, ItemQuery, MemoryStore, Newest, Query, Record,
    SqliteOptions, SqliteStore, Store, Table,
};
use proptest::prelude::*;

const TABLES: [Table; 3] = [Table::Conversations, Table::Messages, Table::Generations];
const STATUSES: [&str; 3] = ["", "running", "done"];

/// A table, a name, a status or a removal, and whether a conversation's state changes.
type Changed = (usize, usize, usize, bool);

#[derive(Clone, Debug)]
enum Step {
    Claim { c: usize },
    Release { c: usize },
    Append { c: usize, stale: bool, off: i64, sizes: Vec<usize>, changes: Vec<Changed> },
    Read { c: usize, after: u64, max_bytes: usize },
    Load { c: usize, messages: usize, max_bytes: usize },
    Get { table: usize, id: usize },
    List { table: usize, by_user: bool, c: Option<usize>, status: Option<usize>, page: (usize, usize) },
    Due { conversations: bool, by: i64, page: (usize, usize) },
    Trim { c: usize, first: u64, last: u64 },
    Delete { c: usize },
    PutItem { id: usize, version: u64, n: i64 },
    RemoveItem { id: usize },
    ListItems { by_user: bool, due_by: Option<i64>, page: (usize, usize) },
    Settle,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let c = 0..3_usize;
    let sizes = prop::collection::vec(0..90_usize, 0..5);
    let changes = prop::collection::vec((0..3_usize, 0..4_usize, 0..4_usize, any::<bool>()), 0..3);
    let page = (0..5_usize, 0..200_usize);
    let mostly_right = prop_oneof![12 => Just(0_i64), 1 => Just(1), 1 => Just(-1)];
    let append = (c.clone(), prop::bool::weighted(0.05), mostly_right, sizes, changes);
    prop_oneof![
        3 => c.clone().prop_map(|c| Step::Claim { c }),
        1 => c.clone().prop_map(|c| Step::Release { c }),
        24 => append
            .prop_map(|(c, stale, off, sizes, changes)| Step::Append { c, stale, off, sizes, changes }),
        6 => (c.clone(), 0..60_u64, 0..400_usize)
            .prop_map(|(c, after, max_bytes)| Step::Read { c, after, max_bytes }),
        4 => (c.clone(), 0..4_usize, 0..200_usize)
            .prop_map(|(c, messages, max_bytes)| Step::Load { c, messages, max_bytes }),
        1 => (0..3_usize, 0..4_usize).prop_map(|(table, id)| Step::Get { table, id }),
        2 => (0..3_usize, any::<bool>(), prop::option::of(c.clone()), prop::option::of(0..3_usize), page.clone())
            .prop_map(|(table, by_user, c, status, page)| Step::List { table, by_user, c, status, page }),
        2 => (any::<bool>(), 0..20_i64, page.clone())
            .prop_map(|(conversations, by, page)| Step::Due { conversations, by, page }),
        2 => (c.clone(), 0..40_u64, 0..15_u64)
            .prop_map(|(c, first, more)| Step::Trim { c, first, last: first + more }),
        1 => c.prop_map(|c| Step::Delete { c }),
        4 => (0..4_usize, prop_oneof![3 => Just(0_u64), 1 => 1..4_u64], 0..20_i64)
            .prop_map(|(id, version, n)| Step::PutItem { id, version, n }),
        1 => (0..4_usize).prop_map(|id| Step::RemoveItem { id }),
        2 => (any::<bool>(), prop::option::of(0..20_i64), page)
            .prop_map(|(by_user, due_by, page)| Step::ListItems { by_user, due_by, page }),
        2 => Just(Step::Settle),
        1 => Just(Step::Reopen),
    ]
}

/// The two stores, and what their caller remembers.
struct Pair<'a> {
    path: &'a Path,
    options: SqliteOptions,
    memory: MemoryStore,
    sqlite: Option<SqliteStore>,
    /// For each conversation and store, the newest fence and the one before it.
    fences: [[(Fence, Fence); 2]; 3],
    ends: [u64; 3],
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_answers_as_memory_does(
        steps in prop::collection::vec(step(), 1..80),
        tiny in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let default = SqliteOptions { frame: Duration::ZERO, ..SqliteOptions::default() };
        let options = if tiny {
            SqliteOptions { readers: 1, queue: 2, chunk_bytes: 200, hot_bytes: 600, hot_rows: 8, ..default }
        } else {
            default
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::open(&path, options);
            for step in steps {
                pair.take(step).await;
            }
            pair.compare_everything().await;
            pair.reopen().await;
            pair.compare_everything().await;
        });
    }
}

impl<'a> Pair<'a> {
    fn open(path: &'a Path, options: SqliteOptions) -> Self {
        let sqlite = Some(SqliteStore::open_with(path, options.clone()).unwrap());
        let fences = [[(Fence(0), Fence(0)); 2]; 3];
        Self { path, options, memory: MemoryStore::new(), sqlite, fences, ends: [0; 3] }
    }

    fn stores(&self) -> [&dyn Store; 2] {
        [&self.memory, self.sqlite.as_ref().unwrap()]
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Claim { c } => {
                for n in 0..2 {
                    let fence = self.stores()[n].claim(&id(c)).await.unwrap();
                    assert!(fence > self.fences[c][n].0);
                    self.fences[c][n] = (fence, self.fences[c][n].0);
                }
            }
            Step::Release { c } => {
                for n in 0..2 {
                    self.stores()[n].release(&id(c), self.fences[c][n].0).await.unwrap();
                }
            }
            Step::Append { c, stale, off, sizes, changes } => {
                self.append(c, stale, off, &sizes, &changes).await
            }
            Step::Read { c, after, max_bytes } => {
                let [memory, sqlite] = self.stores();
                let expected = memory.read(&id(c), Seq(after), max_bytes).await.unwrap();
                assert_eq!(sqlite.read(&id(c), Seq(after), max_bytes).await.unwrap(), expected);
            }
            Step::Load { c, messages, max_bytes } => {
                self.compare_load(c, Newest { messages, max_bytes }).await;
            }
            Step::Get { table, id } => {
                let [memory, sqlite] = self.stores();
                let (table, id) = (TABLES[table], format!("d{id}"));
                let expected = memory.get(table, &id).await.unwrap();
                assert_eq!(sqlite.get(table, &id).await.unwrap(), expected);
            }
            Step::List { table, by_user, c, status, page: (limit, max_bytes) } => {
                let query = Query {
                    table: Some(TABLES[table]),
                    user: by_user.then(|| UserId::from("user")),
                    conversation: c.map(id),
                    statuses: status.map(|status| STATUSES[status].to_owned()).into_iter().collect(),
                    limit,
                    max_bytes,
                    ..Query::default()
                };
                self.compare_list(query).await;
            }
            Step::Due { conversations, by, page: (limit, max_bytes) } => {
                let table = if conversations { Table::Conversations } else { Table::Generations };
                let (table, due_by) = (Some(table), Some(by));
                self.compare_list(Query { table, due_by, limit, max_bytes, ..Query::default() }).await;
            }
            Step::Trim { c, first, last } => {
                for store in self.stores() {
                    store.trim(&id(c), Seq(first), Seq(last)).await.unwrap();
                }
            }
            Step::Delete { c } => {
                for store in self.stores() {
                    store.delete(&id(c)).await.unwrap();
                }
                self.ends[c] = 0;
            }
            Step::PutItem { id, version, n } => self.put_item(id, version, n).await,
            Step::RemoveItem { id } => {
                let [memory, sqlite] = self.stores();
                let id = format!("i{id}");
                let expected = memory.remove_item("kind", &id).await.unwrap();
                assert_eq!(sqlite.remove_item("kind", &id).await.unwrap(), expected);
            }
            Step::ListItems { by_user, due_by, page: (limit, max_bytes) } => {
                let user = by_user.then(|| UserId::from("u1"));
                let query = ItemQuery { user, due_by, max_bytes, ..ItemQuery::newest("kind", limit) };
                self.compare_items(query).await;
            }
            Step::Settle => self.sqlite.as_ref().unwrap().settle().await.unwrap(),
            Step::Reopen => self.reopen().await,
        }
    }

    async fn append(&mut self, c: usize, stale: bool, off: i64, sizes: &[usize], changes: &[Changed]) {
        let expected = self.ends[c].saturating_add_signed(off);
        let records = sizes.iter().zip(expected + 1..).map(|(size, seq)| record(seq, *size));
        let records: Vec<Record> = records.collect();
        let last = expected + records.len() as u64;
        let changes: Vec<Change> = changes.iter().map(|change| self.change(c, *change, last)).collect();
        let mut answers = Vec::new();
        for (store, fences) in self.stores().into_iter().zip(self.fences[c]) {
            let append = Append {
                conversation: id(c),
                fence: if stale { fences.1 } else { fences.0 },
                expected: Seq(expected),
                records: records.clone(),
                changes: changes.clone(),
                replies: Vec::new(),
                limits: Vec::new(),
            };
            answers.push(match store.append(append).await {
                Ok(()) => "written".to_owned(),
                Err(AppendError::Fenced { .. }) => "fenced".to_owned(),
                Err(error) => error.to_string(),
            });
        }
        assert_eq!(answers[0], answers[1]);
        if answers[0] == "written" {
            self.ends[c] = last;
        }
    }

    fn change(&self, c: usize, (table, name, kind, with_state): Changed, last: u64) -> Change {
        let table = TABLES[table];
        // A conversation's document has its id. The others may move between conversations.
        let name = if table == Table::Conversations { format!("c{c}") } else { format!("d{name}") };
        let Some(status) = STATUSES.get(kind) else { return Change::Remove(table, name) };
        let fixed = document(table, &name, &id(c), name.len() as i64 + last as i64 / 7);
        let state = fixed.state.filter(|_| with_state).map(|state| format!("{state} at {last}"));
        let due = if table == Table::Messages || last.is_multiple_of(3) { None } else { Some(last as i64) };
        Change::Put(Document { status: (*status).to_owned(), seq: Seq(last), due, state, ..fixed })
    }

    async fn put_item(&self, id: usize, version: u64, n: i64) {
        let item = Item {
            user: UserId::from(format!("u{}", n % 2)),
            due: (n % 3 > 0).then_some(n),
            version,
            body: format!(r#"{{"n":"{}"}}"#, "x".repeat(n as usize)),
            ..item("kind", &format!("i{id}"), n / 2)
        };
        let mut answers = Vec::new();
        for store in self.stores() {
            answers.push(store.put_item(item.clone()).await.map_err(|error| error.to_string()));
        }
        assert_eq!(answers[0], answers[1]);
    }

    /// All pages of it.
    async fn compare_items(&self, mut query: ItemQuery) {
        let [memory, sqlite] = self.stores();
        loop {
            let expected = memory.list_items(query.clone()).await.unwrap();
            assert_eq!(sqlite.list_items(query.clone()).await.unwrap(), expected);
            for item in &expected.items {
                assert_eq!(sqlite.get_item("kind", &item.id).await.unwrap().as_ref(), Some(item));
            }
            let Some(next) = expected.next else { return };
            query.after = Some(next);
        }
    }

    async fn reopen(&mut self) {
        drop(self.sqlite.take());
        self.sqlite = Some(SqliteStore::open_with(self.path, self.options.clone()).unwrap());
        // A restart leaves every conversation without an owner.
        for c in 0..3 {
            self.memory.release(&id(c), self.fences[c][0].0).await.unwrap();
        }
    }

    async fn compare_everything(&self) {
        let [memory, sqlite] = self.stores();
        for c in 0..3 {
            let expected = memory.read(&id(c), Seq::ZERO, usize::MAX).await.unwrap();
            assert_eq!(sqlite.read(&id(c), Seq::ZERO, usize::MAX).await.unwrap(), expected);
            self.compare_load(c, Newest::of(2)).await;
        }
        self.compare_items(ItemQuery::newest("kind", 100)).await;
        for table in TABLES {
            self.compare_list(Query { table: Some(table), limit: 100, ..Query::default() }).await;
        }
    }

    async fn compare_load(&self, c: usize, newest: Newest) {
        let [memory, sqlite] = self.stores();
        let expected = memory.load(&id(c), newest).await.unwrap();
        let found = sqlite.load(&id(c), newest).await.unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
    }

    async fn compare_list(&self, mut query: Query) {
        let [memory, sqlite] = self.stores();
        loop {
            let expected = memory.list(query.clone()).await.unwrap();
            assert_eq!(sqlite.list(query.clone()).await.unwrap(), expected);
            let Some(next) = expected.next else { return };
            query.after = Some(next);
        }
    }
}

fn id(c: usize) -> ConversationId {
    conversation(&format!("c{c}"))
}

fn record(seq: u64, size: usize) -> Record {
    Record { seq: Seq(seq), bytes: Bytes::from(vec![b'a' + (seq % 26) as u8; size]) }
}
