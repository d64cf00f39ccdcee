//! How fast the SQLite store is here: appends of many conversations, and reads of a long log.
//!
//!     cargo run --release -p outlast-store --example append -- [conversations] [seconds] [readers] [folder]
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use outlast_store::{Append, Record, SqliteStore, Store};
use tokio::task::JoinSet;

const RECORD_BYTES: usize = 230;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let conversations: usize = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let readers: usize = arguments.next().map_or(Ok(0), |text| text.parse())?;
    let folder = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("outlast-append-{}", std::process::id()));
    let path = folder.join("outlast.db");
    let store = Arc::new(SqliteStore::open(&path)?);
    let mut reading = JoinSet::new();
    for n in 0..readers {
        reading.spawn(read_without_pause(Arc::clone(&store), name(n)));
    }
    append_all(&store, conversations, Duration::from_secs(seconds)).await?;
    reading.shutdown().await;
    let wal = std::fs::metadata(folder.join("outlast.db-wal"))?.len();
    println!("write-ahead log: {} MiB with {readers} readers that never pause", wal >> 20);
    read_long_log(&store).await?;
    drop(store);
    let began = Instant::now();
    drop(SqliteStore::open(&path)?);
    println!("open again: {:?}, file of {} MiB", began.elapsed(), std::fs::metadata(&path)?.len() >> 20);
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn name(n: usize) -> ConversationId {
    ConversationId::from(format!("018f4e2a-1111-7000-8000-{n:012}"))
}

async fn read_without_pause(store: Arc<SqliteStore>, conversation: ConversationId) {
    while store.read(&conversation, Seq::ZERO, 1 << 20).await.is_ok() {}
}

async fn append_all(
    store: &Arc<SqliteStore>,
    conversations: usize,
    time: Duration,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let (began, cpu) = (Instant::now(), cpu_time());
    let mut writers = JoinSet::new();
    for n in 0..conversations {
        let store = Arc::clone(store);
        writers.spawn(async move {
            let conversation = name(n);
            let fence = store.claim(&conversation).await?;
            let bytes = Bytes::from(vec![b'x'; RECORD_BYTES]);
            let mut latencies = Vec::new();
            let mut last = Seq::ZERO;
            while began.elapsed() < time {
                let asked = Instant::now();
                let records = vec![Record { seq: last.next(), bytes: bytes.clone() }];
                let conversation = conversation.clone();
                let append = Append { conversation, fence, expected: last, records, changes: Vec::new() };
                store.append(append).await?;
                latencies.push(asked.elapsed());
                last = last.next();
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = writers.join_next().await {
        latencies.extend(done??);
    }
    let (elapsed, cpu) = (began.elapsed(), cpu_time() - cpu);
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    println!(
        "append: {conversations} conversations, {:.0} events/s, {:.1} µs CPU each, p50 {:?} p99 {:?} p99.9 {:?} max {:?}",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        cpu.as_secs_f64() * 1e6 / latencies.len() as f64,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
    Ok(())
}

async fn read_long_log(store: &Arc<SqliteStore>) -> Result<(), Box<dyn Error + Send + Sync>> {
    const RECORDS: u64 = 2000;
    let conversation = ConversationId::from("a long one");
    let fence = store.claim(&conversation).await?;
    for seq in 1..=RECORDS {
        let records = vec![Record { seq: Seq(seq), bytes: Bytes::from(vec![b'x'; 250]) }];
        let conversation = conversation.clone();
        let append = Append { conversation, fence, expected: Seq(seq - 1), records, changes: Vec::new() };
        store.append(append).await?;
    }
    time_reads(store, &conversation, "read of 2,000 records, as left by the writer").await?;
    store.settle().await?;
    time_reads(store, &conversation, "read of 2,000 records, all settled").await?;
    Ok(())
}

async fn time_reads(
    store: &Arc<SqliteStore>,
    conversation: &ConversationId,
    what: &str,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    const ROUNDS: u32 = 2000;
    let (mut fastest, cpu, began) = (Duration::MAX, cpu_time(), Instant::now());
    for _ in 0..ROUNDS {
        let one = Instant::now();
        let records = store.read(conversation, Seq::ZERO, usize::MAX).await?;
        assert_eq!(records.len(), 2000);
        fastest = fastest.min(one.elapsed());
    }
    let (mean, cpu) = (began.elapsed() / ROUNDS, (cpu_time() - cpu) / ROUNDS);
    println!("{what}: mean {mean:?}, fastest {fastest:?}, {cpu:?} CPU");
    Ok(())
}

/// Processor time of this process so far, user and system, in steps of 10 ms; Linux only, else zero.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name in brackets may hold spaces; after it come state, parent and so on. Fields are counted, not
    // filtered: some are negative.
    let after_name = stat.rsplit(") ").next().unwrap_or("");
    let ticks = after_name.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}
