//! `outlast export`: writes conversations as lines of JSON.

use std::io::{BufWriter, Write};

use anyhow::{Context as _, bail};
use clap::Args;
use outlast_core::{ConversationId, Seq, UserId};
use outlast_store::{Document, Newest, Query, Store, Table};
use serde_json::value::RawValue;

use super::transfer::{Kept, Line, Logged, VERSION};
use crate::config::Config;

/// How much is read at a time.
const PAGE: usize = 500;
const PAGE_BYTES: usize = 1 << 20;
/// A conversation that keeps changing while it is read is tried this many times.
const TRIES: usize = 5;

#[derive(Args)]
pub(crate) struct ExportCommand {
    /// Only this conversation
    #[arg(long, value_name = "ID")]
    conversation: Option<String>,
    /// Only the conversations of this user
    #[arg(long)]
    user: Option<String>,
}

impl ExportCommand {
    #[cfg(test)]
    pub(super) fn everything() -> ExportCommand {
        ExportCommand { conversation: None, user: None }
    }

    pub(crate) async fn run(&self, config: &Config) -> anyhow::Result<()> {
        let opened = outlast_store::open(&config.store.url, &config.server.data, config.durable()).await;
        let opened = opened.with_context(|| config.blame("store.url"))?;
        let mut out = BufWriter::new(std::io::stdout().lock());
        let written = self.write(&*opened.store, &mut out).await?;
        out.flush().context("cannot write the export")?;
        eprintln!("exported {written} conversations");
        Ok(())
    }

    pub(super) async fn write(&self, store: &dyn Store, out: &mut impl Write) -> anyhow::Result<usize> {
        put(out, &Line::OutlastExport { version: VERSION })?;
        if let Some(id) = &self.conversation {
            if !write_one(store, &ConversationId::from(id.as_str()), out).await? {
                bail!("conversation {id:?} not found");
            }
            return Ok(1);
        }
        let query = Query {
            table: Some(Table::Conversations),
            user: self.user.as_deref().map(UserId::from),
            limit: PAGE,
            ..Query::default()
        };
        let (mut written, mut after) = (0, None);
        loop {
            let page = store.list(Query { after, ..query.clone() }).await?;
            for document in &page.documents {
                written += usize::from(write_one(store, &document.conversation, out).await?);
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(written),
            }
        }
    }
}

/// Writes a conversation as it was at one moment; returns whether it exists.
async fn write_one(store: &dyn Store, id: &ConversationId, out: &mut impl Write) -> anyhow::Result<bool> {
    for _ in 0..TRIES {
        let Some(before) = store.load(id, Newest::NONE).await? else { return Ok(false) };
        let mut lines = Vec::new();
        for (table, line) in
            [(Table::Generations, Line::Generation as fn(Kept) -> Line), (Table::Messages, Line::Message)]
        {
            for document in documents(store, table, id).await? {
                encode(&mut lines, &line(kept(document)?))?;
            }
        }
        events(store, id, &mut lines).await?;
        let after = store.load(id, Newest::NONE).await?;
        if after.is_some_and(|after| after.last == before.last) {
            put(out, &Line::Conversation(kept(before.conversation)?))?;
            out.write_all(&lines).context("cannot write the export")?;
            put(out, &Line::End { conversation: id.as_str().to_owned(), last: before.last.0 })?;
            return Ok(true);
        }
    }
    bail!("conversation {id} keeps changing while it is read; try again when it is idle")
}

async fn documents(store: &dyn Store, table: Table, id: &ConversationId) -> anyhow::Result<Vec<Document>> {
    let query = Query { table: Some(table), conversation: Some(id.clone()), limit: PAGE, ..Query::default() };
    let (mut documents, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(Query { after, ..query.clone() }).await?;
        documents.extend(page.documents);
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(documents),
        }
    }
}

async fn events(store: &dyn Store, id: &ConversationId, lines: &mut Vec<u8>) -> anyhow::Result<()> {
    let mut after = Seq::ZERO;
    loop {
        let records = store.read(id, after, PAGE_BYTES).await?;
        let Some(last) = records.last() else { return Ok(()) };
        after = last.seq;
        for record in records {
            // A damaged line is left out, like one that retention has removed.
            match serde_json::from_slice::<Box<RawValue>>(&record.bytes) {
                Ok(line) => encode(lines, &Line::Event(Logged { seq: record.seq.0, line }))?,
                Err(error) => {
                    tracing::warn!(conversation = %id, seq = record.seq.0, %error, "left out a damaged event")
                }
            }
        }
    }
}

fn kept(document: Document) -> anyhow::Result<Kept> {
    let id = document.id.clone();
    Kept::new(document).with_context(|| format!("the document {id:?} is damaged"))
}

fn encode(lines: &mut Vec<u8>, line: &Line) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *lines, line)?;
    lines.push(b'\n');
    Ok(())
}

fn put(out: &mut impl Write, line: &Line) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    encode(&mut bytes, line)?;
    out.write_all(&bytes).context("cannot write the export")
}
