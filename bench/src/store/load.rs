//! N conversations that speak, and another instance that follows all of them and sends commands.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures_util::future::{join_all, try_join_all};
use outlast_core::{ConversationId, Seq};
use outlast_store::suite::postgres::Server;
use outlast_store::{Append, Fence, Mail, MailId, PAGE_BYTES, PostgresOptions, PostgresStore, Record, Store};
use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until, timeout};

use crate::run::meter::Meter;
use crate::run::usage::{cpu_seconds, own_cpu_seconds};

/// 50 tokens a second.
const EVERY: Duration = Duration::from_millis(20);
const WARM_UP: Duration = Duration::from_secs(2);
/// Longer than any measurement.
const LEASE: Duration = Duration::from_secs(600);
/// Clients that send one command after the other, with a pause between them.
const ASKERS: usize = 4;
const PAUSE: Duration = Duration::from_millis(80);
/// An event with one token, as the server writes it.
const ENVELOPE: &str = r#"{"seq":100000,"type":"chat.delta","at":"2026-01-01T00:00:00.000Z","generationId":"gen_0190163d8694739bae1c2f9fd2f0b7a5","segmentId":"seg_1","text":""}"#;
const TOKEN: &str = " token";

pub(super) struct Load {
    conversations: Vec<Conversation>,
    meter: Meter,
    behind: Meter,
    commands: Meter,
    /// Of all records.
    bytes: Cell<u64>,
    records: Cell<u64>,
}

struct Conversation {
    id: ConversationId,
    /// Replies that leave with the next append, which they hasten.
    replies: RefCell<Vec<(MailId, Bytes)>>,
    hasten: Notify,
    /// What was committed and the follower has not read yet.
    committed: RefCell<VecDeque<(Seq, Instant)>>,
    followed: Cell<Seq>,
}

/// What was measured. Pairs are p50 and p99 in milliseconds.
pub(super) struct Figures {
    tokens_per_second: f64,
    tokens_per_record: f64,
    pub(super) postgres_cpu: f64,
    client_cpu: f64,
    written_per_token: f64,
    /// Bytes of the write-ahead log for each byte of the records.
    pub(super) written: f64,
    latency: [f64; 2],
    pub(super) behind: [f64; 2],
    pub(super) command: [f64; 2],
}

struct Usage {
    postgres: f64,
    client: f64,
    written: u64,
    tokens: u64,
    bytes: u64,
    records: u64,
}

impl Load {
    pub(super) fn new(count: usize) -> Load {
        let conversation = |n: usize| Conversation {
            id: ConversationId::from(format!("c{n}")),
            replies: RefCell::default(),
            hasten: Notify::new(),
            committed: RefCell::default(),
            followed: Cell::new(Seq::ZERO),
        };
        Load {
            conversations: (0..count).map(conversation).collect(),
            meter: Meter::default(),
            behind: Meter::default(),
            commands: Meter::default(),
            bytes: Cell::new(0),
            records: Cell::new(0),
        }
    }

    /// Runs in a new store, with another instance beside it if it is to be followed.
    pub(super) async fn measure(
        &self,
        server: &Server,
        window: Duration,
        followed: bool,
    ) -> anyhow::Result<Figures> {
        let url = server.url();
        let store = PostgresStore::open(&url, PostgresOptions::default()).await?;
        let other = match followed {
            true => Some(PostgresStore::open(&url, PostgresOptions::default()).await?),
            false => None,
        };
        // Wake-ups are sent to instances with a lease only.
        for store in other.iter().chain([&store]) {
            store.renew(LEASE).await?;
        }
        let fences = try_join_all(self.conversations.iter().map(|one| store.claim(&one.id))).await?;
        let began = Instant::now();
        let end = began + WARM_UP + window;
        let speaking =
            join_all(self.conversations.iter().zip(fences).enumerate().map(|(n, (one, fence))| {
                // Spread over the interval, so that they do not all speak at once.
                let phase = EVERY.mul_f64(n as f64 / self.conversations.len() as f64);
                self.speak(&store, one, fence, [began + phase, end])
            }));
        let beside = async {
            let Some(other) = &other else { return Ok(()) };
            let following = try_join_all(self.conversations.iter().map(|one| self.follow(other, one)));
            let asking = try_join_all((0..ASKERS).map(|asker| self.ask(other, asker)));
            tokio::select! {
                done = async { tokio::try_join!(following, asking, self.answer(&store)) } => done.map(|_| ()),
                () = sleep_until(end.into()) => Ok(()),
            }
        };
        let (spoken, beside, figures) =
            tokio::join!(speaking, beside, self.watch(server, began + WARM_UP, end - EVERY));
        spoken.into_iter().collect::<anyhow::Result<()>>()?;
        beside?;
        for store in other.iter().chain([&store]) {
            store.leave().await?;
        }
        figures
    }

    /// One conversation, until the end.
    async fn speak(
        &self,
        store: &PostgresStore,
        one: &Conversation,
        fence: Fence,
        [mut due, end]: [Instant; 2],
    ) -> anyhow::Result<()> {
        let mut last = Seq::ZERO;
        while due < end {
            tokio::select! {
                () = sleep_until(due.into()) => {}
                () = one.hasten.notified() => {}
            }
            let mut ready = Vec::new();
            while due <= Instant::now() {
                ready.push(due);
                due += EVERY;
            }
            let append = self.append(one, fence, last, ready.len());
            if append.records.is_empty() && append.replies.is_empty() {
                continue;
            }
            store.append(append).await?;
            if ready.is_empty() {
                continue;
            }
            last = last.next();
            one.committed(last, &self.behind);
            for came in ready {
                self.meter.token(nanos(came));
            }
        }
        Ok(())
    }

    /// One event with this many tokens, and the replies that wait.
    fn append(&self, one: &Conversation, fence: Fence, expected: Seq, count: usize) -> Append {
        let mut records = Vec::new();
        if count > 0 {
            let (head, tail) = ENVELOPE.split_at(ENVELOPE.len() - 2);
            let bytes = Bytes::from(format!("{head}{}{tail}", TOKEN.repeat(count)));
            self.bytes.set(self.bytes.get() + bytes.len() as u64);
            self.records.set(self.records.get() + 1);
            records.push(Record { seq: expected.next(), bytes });
        }
        Append {
            conversation: one.id.clone(),
            fence,
            expected,
            records,
            changes: Vec::new(),
            replies: one.replies.take(),
            limits: Vec::new(),
        }
    }

    /// Reads what is new each time the store says that something is, as an instance does for its readers.
    async fn follow(&self, other: &PostgresStore, one: &Conversation) -> anyhow::Result<()> {
        let mut grown = other.watch(&one.id);
        loop {
            grown.changed().await?;
            loop {
                let records = other.read(&one.id, one.followed.get(), PAGE_BYTES).await?;
                let Some(last) = records.last() else { break };
                one.followed(last.seq, &self.behind);
            }
        }
    }

    /// Sends one command after the other and waits for each reply.
    async fn ask(&self, other: &PostgresStore, asker: usize) -> anyhow::Result<()> {
        let mut arrived = other.watch_mail();
        for number in 0_usize.. {
            sleep(PAUSE).await;
            let sent = Instant::now();
            let to = &self.conversations[(number * 7_919 + asker * 31) % self.conversations.len()];
            let id = MailId(format!("command {asker} {number}"));
            let mail = Mail { id: id.clone(), conversation: to.id.clone(), body: Bytes::from_static(b"{}") };
            other.send(mail).await?;
            while other.reply(&id).await?.is_none() {
                // A wake-up may have come between the question and this wait.
                timeout(Duration::from_secs(1), arrived.changed()).await.ok();
            }
            self.commands.token(nanos(sent));
            other.forget(&id).await?;
        }
        Ok(())
    }

    /// Answers commands, as owners do.
    async fn answer(&self, store: &PostgresStore) -> anyhow::Result<()> {
        let mut arrived = store.watch_mail();
        let mut answered = HashSet::new();
        loop {
            arrived.changed().await?;
            for conversation in store.mail_waiting().await? {
                let one =
                    self.conversations.iter().find(|one| one.id == conversation).context("one of ours")?;
                for mail in store.mail(&conversation).await? {
                    if answered.insert(mail.id.clone()) {
                        one.replies.borrow_mut().push((mail.id, Bytes::from_static(b"{}")));
                        one.hasten.notify_one();
                    }
                }
            }
        }
    }

    async fn watch(&self, server: &Server, from: Instant, to: Instant) -> anyhow::Result<Figures> {
        let meters = [&self.meter, &self.behind, &self.commands];
        sleep_until(from.into()).await;
        let before = self.usage(server)?;
        // Only now: the question to PostgreSQL has kept everybody waiting.
        meters.iter().for_each(|meter| meter.open(true));
        let opened = Instant::now();
        sleep_until(to.into()).await;
        let after = self.usage(server)?;
        let elapsed = opened.elapsed();
        meters.iter().for_each(|meter| meter.open(false));
        let tokens = (after.tokens - before.tokens).max(1) as f64;
        let written = (after.written - before.written) as f64;
        let pair = |meter: &Meter| [50.0, 99.0].map(|percent| meter.latency_ms(percent).unwrap_or_default());
        Ok(Figures {
            tokens_per_second: tokens / elapsed.as_secs_f64(),
            tokens_per_record: tokens / (after.records - before.records).max(1) as f64,
            postgres_cpu: (after.postgres - before.postgres) / tokens * 1e6,
            client_cpu: (after.client - before.client) / tokens * 1e6,
            written_per_token: written / tokens,
            written: written / (after.bytes - before.bytes).max(1) as f64,
            latency: pair(&self.meter),
            behind: pair(&self.behind),
            command: pair(&self.commands),
        })
    }

    fn usage(&self, server: &Server) -> anyhow::Result<Usage> {
        let written = server.ask("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint");
        Ok(Usage {
            postgres: cpu_seconds(server.pid()),
            client: own_cpu_seconds(std::process::id()),
            written: written.parse().with_context(|| format!("PostgreSQL said {written}"))?,
            tokens: self.meter.tokens(),
            bytes: self.bytes.get(),
            records: self.records.get(),
        })
    }
}

impl Conversation {
    fn committed(&self, seq: Seq, behind: &Meter) {
        if seq <= self.followed.get() {
            behind.token(0); // it was read before we were told
        } else {
            self.committed.borrow_mut().push_back((seq, Instant::now()));
        }
    }

    fn followed(&self, seq: Seq, behind: &Meter) {
        self.followed.set(seq);
        let mut committed = self.committed.borrow_mut();
        let read = committed.iter().take_while(|(committed, _)| *committed <= seq).count();
        for (_, since) in committed.drain(..read) {
            behind.token(nanos(since));
        }
    }
}

fn nanos(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |[p50, p99]: [f64; 2]| format!("{p50:.1} / {p99:.1}");
        write!(
            f,
            "{:.0} | {:.1} | {:.1} | {:.1} | {:.0} | {:.2} | {} | {} | {}",
            self.tokens_per_second,
            self.tokens_per_record,
            self.postgres_cpu,
            self.client_cpu,
            self.written_per_token,
            self.written,
            pair(self.latency),
            pair(self.behind),
            pair(self.command),
        )
    }
}
