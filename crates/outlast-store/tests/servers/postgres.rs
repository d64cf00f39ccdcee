//! PostgreSQL, on a real server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use outlast_store::suite::postgres::Server;
use outlast_store::suite::{all, append, conversation, head, lines, put, write};
use outlast_store::{Append, AppendError, Limit, PostgresOptions, PostgresStore, Store, Table};

use crate::Served;

/// How often something is tried or looked for before a test gives up.
const TRIES: usize = 600;
/// A stopped instance may hold up others for this long: much less than a lease of 15 s.
const HELD_UP: Duration = Duration::from_secs(10);

async fn open(url: String) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_postgres_passes_the_suite() {
    let server = Server::start();
    let subject = async |_: &str| Served::new(server.url(), |url| Box::pin(open(url))).await;
    outlast_store::conformance_in_order!(subject);
}

/// Breaks every connection to the server, as a network does.
const CUT: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'outlast'";

/// The lease of `one` is over, and its connections break before it finds out that another instance has taken over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_i5_a_write_that_waited_for_a_new_connection_is_refused_after_a_takeover() {
    let server = Server::start();
    let url = server.url();
    let (one, two) = (open(url.clone()).await, open(url).await);
    let (c, d) = (conversation("c"), conversation("d"));
    let stale = write(&*one, &c, 0, &["a"]).await;
    let kept = write(&*one, &d, 0, &["a"]).await;
    let new = two.claim(&c).await.unwrap();
    assert_ne!(server.ask(CUT), "0");
    let answer = persist(&*one, append(&c, stale, 1, &["stale"])).await;
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
    persist(&*two, append(&c, new, 1, &["b"])).await.unwrap();
    persist(&*one, append(&d, kept, 1, &["b"])).await.expect("nobody has taken this one over");
    assert_eq!(all(&*one, &c).await, lines(&[(1, "a"), (2, "b")]));
    assert_eq!(all(&*two, &d).await, lines(&[(1, "a"), (2, "b")]));
}

/// Appends as an owner does: for as long as nothing is written and trying again may help.
async fn persist(store: &dyn Store, append: Append) -> Result<(), AppendError> {
    for _ in 0..TRIES {
        match store.append(append.clone()).await {
            Err(AppendError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(100)).await,
            answer => return answer,
        }
    }
    panic!("the server does not come back");
}

/// An instance that is stopped, as by SIGSTOP, while PostgreSQL carries out its transaction.
#[test]
fn x2_an_instance_that_stops_in_the_middle_of_a_transaction_does_not_hold_up_others() {
    let server = Server::start();
    let url = server.url();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stopped, others) = (runtime(), runtime());
    let (c, d) = (conversation("c"), conversation("d"));
    let limited = |c, fence| {
        let limits = vec![Limit { table: Table::Generations, user: None, statuses: Vec::new(), at_most: 9 }];
        Append { limits, ..put(c, fence, 0, vec![head(c, 0)]) }
    };
    let (one, stale) = stopped.block_on(async {
        let one = open(url.clone()).await;
        let fence = one.claim(&c).await.unwrap();
        (one, fence)
    });
    let gate = others.block_on(close_gate(&url));
    stopped.block_on(async {
        let waits = async {
            for _ in 0..TRIES {
                if server.ask("SELECT count(*) FROM pg_locks WHERE NOT granted") == "1" {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("the transaction never reaches the gate");
        };
        tokio::select! {
            answer = one.append(limited(&c, stale)) => panic!("{answer:?}"),
            () = waits => {}
        }
    });
    // From here on nothing of this instance runs, and its transaction is where it was.
    others.block_on(async {
        drop(gate);
        let two = open(url).await;
        let began = Instant::now();
        let (of_c, of_d) = (two.claim(&c).await.expect("its lease is over"), two.claim(&d).await.unwrap());
        two.append(limited(&d, of_d)).await.unwrap();
        two.append(limited(&c, of_c)).await.unwrap();
        assert!(began.elapsed() < HELD_UP, "others waited for {:?}", began.elapsed());
    });
    let answer = stopped.block_on(persist(&*one, limited(&c, stale)));
    assert!(matches!(answer, Err(AppendError::Fenced { .. })), "{answer:?}");
}

/// A lock that stops every transaction that writes documents, until the connection ends.
async fn close_gate(url: &str) -> tokio::task::JoinSet<()> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    let mut gate = tokio::task::JoinSet::new();
    gate.spawn(async move { connection.await.unwrap() });
    client.batch_execute("BEGIN; LOCK TABLE stored_conversations").await.unwrap();
    gate.spawn(async move {
        std::future::pending::<()>().await;
        drop(client);
    });
    gate
}
