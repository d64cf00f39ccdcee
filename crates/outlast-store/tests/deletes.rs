//! Deleting a long conversation stalls nobody: how long others wait for an append meanwhile, against before.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::cell::Cell;
use std::time::{Duration, Instant};

use outlast_core::{ConversationId, Seq};
use outlast_store::suite::{append, conversation, document, head};
use outlast_store::{Append, Change, Fence, SqliteStore, Store, Table};

/// The conversation that is deleted: its events, and a message for every 20 of them.
const EVENTS: u64 = 200_000;
const BATCH: u64 = 1_000;
const MESSAGE_EVERY: u64 = 20;
/// Appends of the other conversation before the delete.
const BEFORE: u64 = 200;
/// A few frames of a screen: the writer paces commits by frames as soon as two want something.
const FRAMES: Duration = Duration::from_millis(50);

/// An event as long as a few words are.
fn line(seq: u64) -> String {
    format!("{{\"seq\":{seq},\"type\":\"chat.delta\",\"payload\":{{\"text\":\"{}\"}}}}", "word ".repeat(20))
}

async fn fill(store: &dyn Store, long: &ConversationId) {
    let fence = store.claim(long).await.unwrap();
    for first in (0..EVENTS).step_by(BATCH as usize) {
        let lines: Vec<String> = (first + 1..=first + BATCH).map(line).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let said = (first..first + BATCH).step_by(MESSAGE_EVERY as usize);
        let said = said.map(|seq| document(Table::Messages, &format!("m{seq}"), long, seq as i64));
        let changes = said.chain([head(long, first)]).map(Change::Put).collect();
        store.append(Append { changes, ..append(long, fence, first, &lines) }).await.unwrap();
    }
    store.release(long, fence).await.unwrap();
}

/// Appends one event and returns how long that took.
async fn write(store: &dyn Store, other: &ConversationId, fence: Fence, seq: u64) -> Duration {
    let began = Instant::now();
    store.append(append(other, fence, seq, &[&line(seq + 1)])).await.unwrap();
    began.elapsed()
}

fn quantile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100) - 1]
}

#[tokio::test]
async fn i18_deleting_a_conversation_of_200_000_events_stalls_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&folder.path().join("outlast.db")).unwrap();
    let (long, other) = (conversation("long"), conversation("other"));
    fill(&store, &long).await;
    store.settle().await.unwrap();

    let fence = store.claim(&other).await.unwrap();
    let mut before = Vec::new();
    for seq in 0..BEFORE {
        before.push(write(&store, &other, fence, seq).await);
    }
    let deleted = Cell::new(None);
    let delete = async {
        let began = Instant::now();
        store.delete(&long).await.unwrap();
        deleted.set(Some(began.elapsed()));
    };
    let mut during = Vec::new();
    let others = async {
        while deleted.get().is_none() {
            during.push(write(&store, &other, fence, BEFORE + during.len() as u64).await);
        }
    };
    tokio::join!(delete, others);
    let took = deleted.get().unwrap();
    assert!(store.read(&long, Seq::ZERO, 1).await.unwrap().is_empty());

    let ratio = quantile(&mut during, 99).as_secs_f64() / quantile(&mut before, 99).as_secs_f64();
    let [median, p99] = [50, 99].map(|percent| quantile(&mut before, percent));
    println!("an append: median {median:?}, p99 {p99:?}");
    let [median, p99] = [50, 99].map(|percent| quantile(&mut during, percent));
    let count = during.len();
    println!("while {EVENTS} events are deleted in {took:?}: median {median:?}, p99 {p99:?} of {count}");
    println!("p99 against before: {ratio:.1} times");
    // Others wait for a step of the delete and for a frame, not for the delete.
    assert!(count >= 10 && p99 < FRAMES.max(took / 3), "{count} appends in {took:?}, p99 {p99:?}");
}
