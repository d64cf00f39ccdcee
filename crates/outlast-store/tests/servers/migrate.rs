//! Everything moves from store to store and back, even if a run is interrupted.

use std::sync::Arc;

use outlast_core::Seq;
use outlast_store::migrate::{MigrateError, is_unfinished, migrate};
use outlast_store::suite::items::item;
use outlast_store::suite::{append, conversation, document, head, postgres, redis};
use outlast_store::{
    Append, Change, Durable, FaultyStore, Fence, Items, MemoryStore, Newest, PostgresOptions, PostgresStore,
    Rates, RedisStore, SqliteStore, Store, Table,
};

const CONVERSATIONS: usize = 300;

/// Conversations of every shape: with holes in the middle and at the end of the log, and with documents.
async fn fill(store: &dyn Store) {
    for n in 0..CONVERSATIONS {
        let c = conversation(&format!("c{n}"));
        let fence = store.claim(&c).await.unwrap();
        let mut changes = vec![Change::Put(head(&c, 2))];
        changes.push(Change::Put(document(Table::Messages, &format!("m{n}"), &c, 1)));
        changes.push(Change::Put(document(Table::Generations, &format!("g{n}"), &c, n as i64)));
        let line = format!("event of {n}");
        let written = Append { changes, ..append(&c, fence, 0, &[&line, "b", "c", "d", "e"]) };
        store.append(written).await.unwrap();
        if n.is_multiple_of(10) {
            store.trim(&c, Seq(2), Seq(3)).await.unwrap();
            store.trim(&c, Seq(5), Seq(5)).await.unwrap();
        }
    }
    store.put_item(item("key", "one", 1)).await.unwrap();
    store.put_item(item("session", "two", 2)).await.unwrap();
}

async fn compare(one: &dyn Store, other: &dyn Store) {
    for n in 0..CONVERSATIONS {
        let c = conversation(&format!("c{n}"));
        let expected = one.load(&c, Newest::of(9)).await.unwrap().unwrap();
        let found = other.load(&c, Newest::of(9)).await.unwrap().unwrap();
        assert_eq!(format!("{found:?}"), format!("{expected:?}"));
        let expected = one.read(&c, Seq::ZERO, usize::MAX).await.unwrap();
        assert_eq!(other.read(&c, Seq::ZERO, usize::MAX).await.unwrap(), expected);
        let id = format!("g{n}");
        let expected = one.get(Table::Generations, &id).await.unwrap();
        assert_eq!(other.get(Table::Generations, &id).await.unwrap(), expected);
    }
    for (kind, id) in [("key", "one"), ("session", "two")] {
        assert_eq!(other.get_item(kind, id).await.unwrap(), one.get_item(kind, id).await.unwrap());
    }
    let latest = one.raise_fences(Fence(0)).await.unwrap();
    assert!(other.claim(&conversation("c0")).await.unwrap() > latest, "fences only grow");
    other.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_everything_moves_from_store_to_store_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let (postgres, redis) = (postgres::Server::start(), redis::Server::start());
    let first = Arc::new(SqliteStore::open(&folder.path().join("first.db")).unwrap());
    fill(&*first).await;
    let stores: Vec<Arc<dyn Store>> = vec![
        first.clone(),
        Arc::new(PostgresStore::open(&postgres.url(), PostgresOptions::default()).await.unwrap()),
        Arc::new(RedisStore::open(&redis.url(), Durable::AtOnce).await.unwrap()),
        Arc::new(MemoryStore::new()),
        Arc::new(SqliteStore::open(&folder.path().join("last.db")).unwrap()),
    ];
    let mut digest = None;
    for pair in stores.windows(2) {
        let (from, to) = (&pair[0], &pair[1]);
        let done = migrate(&**from, &**to, &mut |_| {}).await.unwrap();
        assert_eq!((done.conversations, done.found, done.items), (CONVERSATIONS as u64, 0, 2));
        assert_eq!(*digest.get_or_insert(done.digest), done.digest);
        compare(&*first, &**to).await;
        let again = migrate(&**from, &**to, &mut |_| {}).await;
        assert!(matches!(again, Err(MigrateError::NotEmpty)), "{again:?}");
    }
}

/// Each run dies at a random call; the next one goes on, and nothing is doubled or missing.
#[tokio::test]
async fn an_interrupted_migration_goes_on() {
    let (from, target) = (MemoryStore::new(), Arc::new(MemoryStore::new()));
    fill(&from).await;
    let (mut runs, mut found) = (0, 0);
    loop {
        let to = FaultyStore::new(target.clone(), runs);
        to.set_rates(Rates { append_refused: 2, append_unanswered: 2, claim_failed: 1, ..Rates::default() });
        runs += 1;
        match migrate(&from, &to, &mut |_| {}).await {
            Ok(done) => {
                found = found.max(done.found);
                break;
            }
            Err(MigrateError::Append(_) | MigrateError::Claim(_) | MigrateError::Store(_)) => {
                assert!(is_unfinished(&*target).await.unwrap());
            }
            Err(other) => assert!(matches!(other, MigrateError::Put(_)), "{other}"),
        }
        assert!(runs < 200, "it never gets further");
    }
    assert!(runs > 1 && found > 0, "{runs} runs, {found} found");
    assert!(!is_unfinished(&*target).await.unwrap());
    compare(&from, &*target).await;
}

#[tokio::test]
async fn a_store_in_use_is_refused() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    for served in [&from, &to] {
        let server = served.join("server");
        server.renew(std::time::Duration::from_secs(60)).await.unwrap();
        let refused = migrate(&from, &to, &mut |_| {}).await;
        assert!(matches!(refused, Err(MigrateError::Served { .. })), "{refused:?}");
        server.leave().await.unwrap();
    }
}

/// Between two runs a server has run on the source.
#[tokio::test]
async fn what_the_source_has_lost_since_does_not_come_back() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    fill(&from).await;
    migrate(&from, &to, &mut |_| {}).await.unwrap();
    // As if the run had been killed just before its end.
    to.put_item(item("migration", "unfinished", 0)).await.unwrap();
    let (deleted, grown) = (conversation("c1"), conversation("c2"));
    from.delete(&deleted).await.unwrap();
    from.remove_item("key", "one").await.unwrap();
    let fence = from.claim(&grown).await.unwrap();
    from.append(append(&grown, fence, 5, &["f"])).await.unwrap();

    let done = migrate(&from, &to, &mut |_| {}).await.unwrap();
    assert_eq!((done.conversations, done.found), (CONVERSATIONS as u64 - 1, CONVERSATIONS as u64 - 2));
    assert!(to.load(&deleted, Newest::NONE).await.unwrap().is_none());
    assert!(to.read(&deleted, Seq::ZERO, usize::MAX).await.unwrap().is_empty());
    assert!(to.get_item("key", "one").await.unwrap().is_none());
    assert_eq!(to.read(&grown, Seq(5), usize::MAX).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_empty_source_is_refused() {
    let (from, to) = (MemoryStore::new(), MemoryStore::new());
    let refused = migrate(&from, &to, &mut |_| {}).await;
    assert!(matches!(refused, Err(MigrateError::Empty)), "{refused:?}");
    assert!(!is_unfinished(&to).await.unwrap());
}
