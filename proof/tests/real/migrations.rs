//! `outlast migrate`: killed in the middle, resumed, and back again.

use std::path::Path;

use anyhow::Context as _;
use outlast_core::Seq;
use outlast_proof::binaries;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::LONG;
use outlast_store::suite::{append, conversation, document, head, items::item, postgres};
use outlast_store::{Append, Change, Items, Newest, SqliteStore, Store, Table, fault};
use tokio::process::Command;
use tokio::time::Instant;

/// More of them: `OUTLAST_CONVERSATIONS=10000 cargo nextest run -p outlast-proof --test real x2_conversations_move
/// --no-capture`.
const CONVERSATIONS: usize = 400;
/// Conversations that are written at once.
const AT_ONCE: usize = 100;
/// The time between two tries, while the lease of a migration that was killed has not expired.
const RETRY: std::time::Duration = std::time::Duration::from_millis(200);

fn count() -> usize {
    let wanted = std::env::var("OUTLAST_CONVERSATIONS").ok();
    wanted.map_or(CONVERSATIONS, |wanted| wanted.parse().expect("a number"))
}

/// One migration, and what it printed.
struct Run {
    succeeded: bool,
    said: String,
}

async fn migrate(from: &str, to: &str, fault: Option<usize>) -> anyhow::Result<Run> {
    let mut command = Command::new(binaries::outlast()?);
    command.args(["migrate", "--from", from, "--to", to]).env_remove("OUTLAST_FAULT").kill_on_drop(true);
    if let Some(copied) = fault {
        command.env("OUTLAST_FAULT", format!("{}:{copied}", fault::MIGRATE));
    }
    let done = command.output().await?;
    let said = [done.stderr, done.stdout].concat();
    Ok(Run { succeeded: done.status.success(), said: String::from_utf8_lossy(&said).into_owned() })
}

/// Dies when half of the conversations are copied, goes on, and returns the digest of all of them.
async fn killed_and_resumed(from: &str, to: &str) -> anyhow::Result<String> {
    let killed = migrate(from, to, Some(count() / 2)).await?;
    anyhow::ensure!(!killed.succeeded && !killed.said.contains("digest"), "{}", killed.said);
    let deadline = Instant::now() + LONG;
    let resumed = loop {
        let resumed = migrate(from, to, None).await?;
        if !resumed.said.contains("is in use") || Instant::now() > deadline {
            break resumed;
        }
        tokio::time::sleep(RETRY).await;
    };
    let said = resumed.said;
    eprintln!("{said}");
    anyhow::ensure!(resumed.succeeded && said.contains("continuing"), "{said}");
    anyhow::ensure!(said.contains(&format!("{} conversations (", count())), "{said}");
    anyhow::ensure!(!said.contains("(0 by an earlier run)"), "{said}");
    let digest = said.split("all conversations: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    Ok(digest.context("no digest")?.to_owned())
}

/// Conversations of every shape: with holes in the middle and at the end of the log, and with documents.
async fn fill(path: &Path) -> anyhow::Result<()> {
    let store = SqliteStore::open(path)?;
    let all: Vec<usize> = (0..count()).collect();
    for page in all.chunks(AT_ONCE) {
        futures_util::future::try_join_all(page.iter().map(|n| write(&store, *n))).await?;
    }
    store.put_item(item("key", "one", 1)).await?;
    store.put_item(item("session", "two", 2)).await?;
    Ok(())
}

async fn write(store: &SqliteStore, n: usize) -> anyhow::Result<()> {
    let c = conversation(&format!("c{n}"));
    let fence = store.claim(&c).await?;
    let mut changes = vec![Change::Put(head(&c, 2))];
    changes.push(Change::Put(document(Table::Messages, &format!("m{n}"), &c, 1)));
    changes.push(Change::Put(document(Table::Generations, &format!("g{n}"), &c, n as i64)));
    let line = format!("event of {n}");
    store.append(Append { changes, ..append(&c, fence, 0, &[&line, "b", "c", "d", "e"]) }).await?;
    if n.is_multiple_of(100) {
        store.trim(&c, Seq(2), Seq(3)).await?;
        store.trim(&c, Seq(5), Seq(5)).await?;
    }
    store.release(&c, fence).await?;
    Ok(())
}

async fn same(one: &Path, other: &Path) -> anyhow::Result<()> {
    let (one, other) = (SqliteStore::open(one)?, SqliteStore::open(other)?);
    for n in 0..count() {
        let c = conversation(&format!("c{n}"));
        let expected = format!("{:?}", one.load(&c, Newest::of(9)).await?);
        anyhow::ensure!(expected.contains(&format!("m{n}")), "{expected}");
        assert_eq!(format!("{:?}", other.load(&c, Newest::of(9)).await?), expected);
        let all = one.read(&c, Seq::ZERO, usize::MAX).await?;
        assert_eq!(other.read(&c, Seq::ZERO, usize::MAX).await?, all);
    }
    for (kind, id) in [("key", "one"), ("session", "two")] {
        assert_eq!(other.get_item(kind, id).await?, one.get_item(kind, id).await?);
    }
    let fence = one.raise_fences(outlast_store::Fence(0)).await?;
    assert!(other.claim(&conversation("c0")).await? > fence, "fences only grow");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_conversations_move_to_postgres_and_back_although_the_migration_is_killed() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, back) = (folder.path().join("first.db"), folder.path().join("back.db"));
    fill(&first).await?;
    let server = postgres::Server::start();
    let (sqlite, postgres) = (format!("sqlite:{}", first.display()), server.url());

    let there = killed_and_resumed(&sqlite, &postgres).await?;
    let again = migrate(&sqlite, &postgres, None).await?;
    anyhow::ensure!(!again.succeeded && again.said.contains("already has data"), "{}", again.said);
    let back_again = killed_and_resumed(&postgres, &format!("sqlite:{}", back.display())).await?;
    assert_eq!(back_again, there, "the digest of all conversations");
    same(&first, &back).await
}

#[tokio::test(flavor = "multi_thread")]
async fn x2_a_server_refuses_the_target_of_a_migration_that_was_not_finished() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, target) = (folder.path().join("first.db"), folder.path().join("target.db"));
    let store = SqliteStore::open(&first)?;
    write(&store, 0).await?;
    drop(store);
    let (from, to) = (format!("sqlite:{}", first.display()), format!("sqlite:{}", target.display()));
    migrate(&from, &to, Some(1)).await?;
    let upstream = Upstream::start().await?;
    let options = || Options::with(&upstream).toml(&format!("[store]\nurl = \"{to}\""));
    let said = Server::refused(options()).await?;
    assert!(said.contains("run `outlast migrate` again") && said.contains("store.url"), "{said}");
    let resumed = migrate(&from, &to, None).await?;
    anyhow::ensure!(resumed.succeeded, "{}", resumed.said);
    Server::start(options()).await?;
    Ok(())
}
