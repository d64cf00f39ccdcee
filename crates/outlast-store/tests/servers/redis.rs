//! Redis, on a real server. It is refused where it would lose data.

use std::sync::Arc;

use outlast_core::Seq;
use outlast_store::suite::redis::Server;
use outlast_store::suite::{all, append, conversation, write};
use outlast_store::{AppendError, Durable, RedisStore, Store, StoreError};

use crate::Served;

async fn open(url: String) -> Arc<dyn Store> {
    Arc::new(RedisStore::open(&url, Durable::AtOnce).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_redis_passes_the_suite() {
    let server = Server::start();
    let subject = async |_: &str| Served::new(server.url(), |url| Box::pin(open(url))).await;
    outlast_store::conformance_in_order!(subject);
}

/// All keys are in one slot, and a client that asks the wrong server finds the right one.
#[tokio::test]
async fn a_cluster_keeps_a_store_on_one_of_its_servers() {
    let cluster = ["cluster-enabled yes", "appendfsync always"];
    let (one, two) = (Server::with(&cluster), Server::with(&cluster));
    one.ask("CLUSTER ADDSLOTSRANGE 0 8191").unwrap();
    two.ask("CLUSTER ADDSLOTSRANGE 8192 16383").unwrap();
    one.ask(&format!("CLUSTER MEET 127.0.0.1 {}", two.port())).unwrap();
    for server in [&one, &two] {
        while !server.ask("CLUSTER INFO").unwrap().contains("cluster_state:ok") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    for prefix in ["a", "b", "c", "d"] {
        for server in [&one, &two] {
            let url = format!("redis://127.0.0.1:{}?prefix={prefix}", server.port());
            let store = open(url).await;
            let c = conversation(&format!("through {}", server.port()));
            write(&*store, &c, 0, &["a", "b"]).await;
            assert_eq!(all(&*store, &c).await.len(), 2);
        }
    }
    for server in [&one, &two] {
        assert_ne!(server.ask("DBSIZE").unwrap().lines().next(), Some(":0"), "each has some of the prefixes");
    }
}

#[tokio::test]
async fn a_server_that_could_lose_what_it_acknowledged_is_refused() {
    let cases: [(&[&str], &str); 4] = [
        (&["appendfsync everysec"], "appendfsync everysec"),
        (&["appendonly no"], "appendonly no"),
        (&["appendfsync always", "no-appendfsync-on-rewrite yes"], "no-appendfsync-on-rewrite yes"),
        (&["appendfsync always", "maxmemory-policy allkeys-lru"], "noeviction"),
    ];
    for (settings, reason) in cases {
        let server = Server::with(settings);
        let refused = RedisStore::open(&server.url(), Durable::AtOnce).await.map(|_| ()).unwrap_err();
        assert!(matches!(&refused, StoreError::Broken(why) if why.contains(reason)), "{refused}");
    }
    let server = Server::with(&["appendfsync everysec"]);
    let refused = RedisStore::open(&server.url(), Durable::AtOnce).await.map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("durability.mode"), "it names the other way out: {refused}");
    RedisStore::open(&server.url(), Durable::WithinSeconds).await.unwrap();
}

#[tokio::test]
async fn a_server_whose_settings_changed_is_refused_when_it_is_back() {
    let mut server = Server::start();
    let store = open(server.url()).await;
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a"]).await;
    server.kill();
    let away = store.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(away, Err(AppendError::Unavailable(_) | AppendError::Unconfirmed(_))), "{away:?}");
    server.resume();
    until_written(&*store, &c, 1).await;
    assert_eq!(all(&*store, &c).await.len(), 2, "the fence and the log are still there");

    server.kill();
    server.resume();
    server.ask("CONFIG SET appendfsync everysec").unwrap();
    let mut answers = Vec::new();
    while !answers.iter().any(|why: &String| why.contains("appendfsync")) {
        let fence = store.claim(&c).await;
        let answer = match fence {
            Ok(fence) => store.append(append(&c, fence, 2, &["c"])).await.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        answers.push(answer);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn until_written(store: &dyn Store, c: &outlast_core::ConversationId, expected: u64) {
    loop {
        if let Ok(fence) = store.claim(c).await
            && store.append(append(c, fence, expected, &["b"])).await.is_ok()
        {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// What a script refuses as a whole was not written; Redis is out of memory here, and full disks answer alike.
#[tokio::test]
async fn without_memory_nothing_is_written_and_reads_go_on() {
    let server = Server::start();
    let store = open(server.url()).await;
    let c = conversation("c");
    let fence = write(&*store, &c, 0, &["a"]).await;
    server.ask("CONFIG SET maxmemory 1").unwrap();
    let answer = store.append(append(&c, fence, 1, &["b"])).await;
    assert!(matches!(answer, Err(AppendError::Unavailable(_))), "{answer:?}");
    assert_eq!(all(&*store, &c).await.len(), 1);
    server.ask("CONFIG SET maxmemory 0").unwrap();
    store.append(append(&c, fence, 1, &["b"])).await.unwrap();
    assert_eq!(store.read(&c, Seq(1), 100).await.unwrap().len(), 1);
}
