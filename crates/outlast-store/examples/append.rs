//! Measures the SQLite store on this machine: many conversations that receive text at a model's pace, and
//! reads of a long log.
//!
//!     cargo run --release -p outlast-store --example append -- [conversations] [seconds] [readers] [folder]
//!
//! Each conversation gets a token every 20 ms. Tokens that arrive while an append is in flight are written
//! together by the next one, as in the engine.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use outlast_store::{Append, Record, SqliteStore, Store};
use tokio::task::JoinSet;
use tokio::time::Instant;

type Failure = Box<dyn Error + Send + Sync>;

/// An event with one token; each further token of the same event adds a few.
const EVENT_BYTES: usize = 150;
const TOKEN_BYTES: usize = 6;
const TOKEN_EVERY: Duration = Duration::from_millis(20);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let conversations: u32 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let readers: u32 = arguments.next().map_or(Ok(0), |text| text.parse())?;
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

fn name(n: u32) -> ConversationId {
    ConversationId::from(format!("018f4e2a-1111-7000-8000-{n:012}"))
}

async fn read_without_pause(store: Arc<SqliteStore>, conversation: ConversationId) {
    while store.read(&conversation, Seq::ZERO, 1 << 20).await.is_ok() {}
}

async fn append_all(store: &Arc<SqliteStore>, conversations: u32, time: Duration) -> Result<(), Failure> {
    let began = Instant::now();
    let before = Usage::now();
    let mut writers = JoinSet::new();
    for n in 0..conversations {
        // Spread over the interval, so that the tokens do not all arrive at the same moment.
        let first = began + TOKEN_EVERY * n / conversations;
        writers.spawn(talk(Arc::clone(store), name(n), first, began + time));
    }
    let (mut latencies, mut events) = (Vec::new(), 0);
    while let Some(done) = writers.join_next().await {
        let talked = done??;
        latencies.extend(talked.latencies);
        events += talked.events;
    }
    let (after, tokens) = (Usage::now(), latencies.len());
    latencies.sort_unstable();
    let at = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    let per_million = |time: Duration| time.as_secs_f64() * 1e6 / tokens as f64;
    println!(
        "append: {conversations} conversations, {:.0} tokens/s in {events} events, CPU s per million tokens: \
         writer {:.1}, process {:.1}; token to durable p50 {:?} p99 {:?} max {:?}; {} bytes written per token",
        tokens as f64 / began.elapsed().as_secs_f64(),
        per_million(after.writer - before.writer),
        per_million(after.process - before.process),
        at(0.5),
        at(0.99),
        at(1.0),
        (after.written - before.written) / tokens as u64,
    );
    Ok(())
}

struct Talked {
    /// For each token, the time from when it was ready until it was durable.
    latencies: Vec<Duration>,
    events: usize,
}

async fn talk(
    store: Arc<SqliteStore>,
    conversation: ConversationId,
    first: Instant,
    end: Instant,
) -> Result<Talked, Failure> {
    let fence = store.claim(&conversation).await?;
    let mut talked = Talked { latencies: Vec::new(), events: 0 };
    let (mut last, mut ready) = (Seq::ZERO, first);
    while ready < end {
        tokio::time::sleep_until(ready).await;
        let mut gathered = Vec::new();
        while ready <= Instant::now() {
            gathered.push(ready);
            ready += TOKEN_EVERY;
        }
        let bytes = Bytes::from(vec![b'x'; EVENT_BYTES + TOKEN_BYTES * gathered.len().saturating_sub(1)]);
        let records = vec![Record { seq: last.next(), bytes }];
        let conversation = conversation.clone();
        store
            .append(Append {
                conversation,
                fence,
                expected: last,
                records,
                changes: Vec::new(),
                replies: Vec::new(),
                limits: Vec::new(),
            })
            .await?;
        last = last.next();
        talked.events += 1;
        talked.latencies.extend(gathered.iter().map(Instant::elapsed));
    }
    Ok(talked)
}

async fn read_long_log(store: &Arc<SqliteStore>) -> Result<(), Failure> {
    const RECORDS: u64 = 2000;
    let conversation = ConversationId::from("a long one");
    let fence = store.claim(&conversation).await?;
    for seq in (1..=RECORDS).step_by(20) {
        let record = |seq| Record { seq: Seq(seq), bytes: Bytes::from(vec![b'x'; 250]) };
        let records = (seq..seq + 20).map(record).collect();
        let conversation = conversation.clone();
        let append = Append {
            conversation,
            fence,
            expected: Seq(seq - 1),
            records,
            changes: Vec::new(),
            replies: Vec::new(),
            limits: Vec::new(),
        };
        store.append(append).await?;
    }
    time_reads(store, &conversation, "read of 2,000 records, as left by the writer").await?;
    store.settle().await?;
    time_reads(store, &conversation, "read of 2,000 records, all settled").await?;
    Ok(())
}

async fn time_reads(store: &SqliteStore, conversation: &ConversationId, what: &str) -> Result<(), Failure> {
    const ROUNDS: u32 = 500;
    let (mut fastest, before, began) = (Duration::MAX, Usage::now(), Instant::now());
    for _ in 0..ROUNDS {
        let one = Instant::now();
        let records = store.read(conversation, Seq::ZERO, usize::MAX).await?;
        assert_eq!(records.len(), 2000);
        fastest = fastest.min(one.elapsed());
    }
    let cpu = Usage::now().process - before.process;
    println!("{what}: mean {:?}, fastest {fastest:?}, {:?} CPU", began.elapsed() / ROUNDS, cpu / ROUNDS);
    Ok(())
}

/// CPU time and bytes written by this process so far; zero where there is no `/proc`.
struct Usage {
    writer: Duration,
    process: Duration,
    written: u64,
}

impl Usage {
    fn now() -> Self {
        let (mut writer, mut process) = (Duration::ZERO, Duration::ZERO);
        for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let read = |file: &str| read(&task.path().join(file));
            let nanos = read("schedstat").split(' ').next().and_then(|first| first.parse().ok());
            let time = Duration::from_nanos(nanos.unwrap_or(0));
            process += time;
            if read("comm").starts_with("outlast-writer") {
                writer += time;
            }
        }
        let io = read(Path::new("/proc/self/io"));
        let written = io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
        Self { writer, process, written: written.unwrap_or(0) }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
