//! `outlast import`: reads what `outlast export` wrote.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use outlast_core::{ConversationId, Seq};
use outlast_store::{Append, Change, Document, Fence, Newest, Record, Store, Table};

use super::transfer::{Kept, Line, VERSION};
use crate::config::Config;

/// How much is written at a time, so that others can write in between.
const BATCH: usize = 200;

#[derive(Args)]
pub(crate) struct ImportCommand {
    /// The file to read; standard input if it is not given
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ImportCommand {
    pub(crate) async fn run(&self, config: &Config) -> anyhow::Result<()> {
        let opened = outlast_store::open(&config.store.url, &config.server.data, config.durable()).await;
        let opened = opened.with_context(|| config.blame("store.url"))?;
        let input: Box<dyn BufRead> = match &self.file {
            Some(file) => {
                let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
                Box::new(BufReader::new(opened))
            }
            None => Box::new(std::io::stdin().lock()),
        };
        let Imported { written, existed } = import(&*opened.store, input).await?;
        eprintln!("imported {written} conversations; {existed} already existed and were not changed");
        Ok(())
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Imported {
    pub(super) written: usize,
    pub(super) existed: usize,
}

/// A conversation whose lines are being read.
struct Reading {
    id: ConversationId,
    document: Document,
    others: Vec<Document>,
    records: Vec<Record>,
}

pub(super) async fn import(store: &dyn Store, input: impl BufRead) -> anyhow::Result<Imported> {
    let (mut imported, mut reading): (Imported, Option<Reading>) = Default::default();
    for (number, text) in input.lines().enumerate() {
        let at = || format!("line {} of the export", number + 1);
        let line: Line = serde_json::from_str(&text.with_context(at)?).with_context(at)?;
        match (line, &mut reading) {
            (Line::OutlastExport { version }, None) if number == 0 && version == VERSION => {}
            (Line::Conversation(kept), None) if number > 0 => reading = Some(begin(kept)),
            (Line::Generation(kept), Some(one)) => {
                one.others.push(kept.into_document(Table::Generations, &one.id))
            }
            (Line::Message(kept), Some(one)) => one.others.push(kept.into_document(Table::Messages, &one.id)),
            (Line::Event(event), Some(one))
                if one.records.last().is_none_or(|last| last.seq.0 < event.seq) =>
            {
                let bytes = event.line.get().as_bytes().to_vec().into();
                one.records.push(Record { seq: Seq(event.seq), bytes });
            }
            (Line::End { conversation, last }, Some(one)) if one.id.as_str() == conversation => {
                let one = reading.take().context("it was just there")?;
                if write(store, one, Seq(last)).await.with_context(at)? {
                    imported.written += 1;
                } else {
                    imported.existed += 1;
                }
            }
            _ => bail!("{}: not an export of version {VERSION}", at()),
        }
    }
    match reading {
        Some(one) => bail!("the export ends in the middle of conversation {}", one.id),
        None => Ok(imported),
    }
}

fn begin(kept: Kept) -> Reading {
    let id = ConversationId::from(kept.id());
    let document = kept.into_document(Table::Conversations, &id);
    Reading { id, document, others: Vec::new(), records: Vec::new() }
}

/// Writes a conversation unless it exists. Its own document comes last: until then, nobody can see it.
async fn write(store: &dyn Store, one: Reading, last: Seq) -> anyhow::Result<bool> {
    let Reading { id, document, others, records } = one;
    if store.load(&id, Newest::NONE).await?.is_some() {
        return Ok(false);
    }
    store.delete(&id).await?; // what an import that was cut off has left
    let fence = store.claim(&id).await?;
    let removed = write_log(store, (&id, fence), records, last).await?;
    let put = |documents: &[Document]| documents.iter().cloned().map(Change::Put).collect::<Vec<_>>();
    for batch in others.chunks(BATCH) {
        append(store, (&id, fence), last, (Vec::new(), put(batch))).await?;
    }
    append(store, (&id, fence), last, (Vec::new(), put(&[document]))).await?;
    for (first, last) in removed {
        store.trim(&id, first, last).await?;
    }
    store.release(&id, fence).await?;
    Ok(true)
}

/// Writes the events, and returns which ones the exported log no longer had. A log has no gaps, so these are written
/// as empty lines and removed at the end.
async fn write_log(
    store: &dyn Store,
    (id, fence): (&ConversationId, Fence),
    records: Vec<Record>,
    last: Seq,
) -> anyhow::Result<Vec<(Seq, Seq)>> {
    let mut removed: Vec<(Seq, Seq)> = Vec::new();
    let mut given = records.into_iter().peekable();
    let mut batch = Vec::new();
    for seq in (1..=last.0).map(Seq) {
        let record = given.next_if(|record| record.seq == seq).unwrap_or_else(|| {
            match removed.last_mut().filter(|(_, end)| end.0 + 1 == seq.0) {
                Some((_, end)) => *end = seq,
                None => removed.push((seq, seq)),
            }
            Record { seq, bytes: "{}".into() }
        });
        batch.push(record);
        if batch.len() == BATCH || seq == last {
            let before = Seq(seq.0 - batch.len() as u64);
            append(store, (id, fence), before, (std::mem::take(&mut batch), Vec::new())).await?;
        }
    }
    if given.next().is_some() {
        bail!("conversation {id} has more events than its last line says");
    }
    Ok(removed)
}

async fn append(
    store: &dyn Store,
    (id, fence): (&ConversationId, Fence),
    expected: Seq,
    (records, changes): (Vec<Record>, Vec<Change>),
) -> anyhow::Result<()> {
    let conversation = id.clone();
    let append =
        Append { conversation, fence, expected, records, changes, replies: Vec::new(), limits: Vec::new() };
    Ok(store.append(append).await?)
}
