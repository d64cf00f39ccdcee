//! One group commit: each waiting append is checked on its own, and all that pass are written in one
//! transaction. No caller gets a reply before the outcome is certain.

use std::collections::HashMap;

use outlast_core::{ConversationId, Seq};
use rusqlite::Transaction;
use tokio::sync::oneshot;

use crate::contract::{Append, AppendError};
use crate::fault::point;
use crate::page;
use crate::sqlite::chunk::{Chunk, settled_last};
use crate::sqlite::failure::Failure;
use crate::sqlite::hot::HotRow;
use crate::sqlite::writer::Writer;
use crate::sqlite::{documents, sql_int};

/// An append, and the channel to the caller that waits for it.
pub(super) struct Waiting {
    pub(super) append: Append,
    pub(super) answer: oneshot::Sender<Result<(), AppendError>>,
}

impl Waiting {
    fn answer(self, result: Result<(), AppendError>) {
        // If the caller has gone away, nobody needs the reply.
        self.answer.send(result).ok();
    }
}

/// The appends of a batch after they were checked.
#[derive(Default)]
struct Judged {
    accepted: Vec<Waiting>,
    /// These expected a different end of the log. The actual end may depend on this batch, so they too get
    /// their reply after the commit.
    conflicting: Vec<(Waiting, Seq)>,
    /// Where each log ends once this batch is written.
    ends: HashMap<ConversationId, Seq>,
}

enum NotWritten {
    /// One append is invalid and can never be written. The others can.
    Wrong {
        append: usize,
        why: AppendError,
    },
    Failed(Failure),
}

impl Writer {
    /// Writes the waiting appends and replies to every caller.
    pub(super) fn batch(&mut self, waiting: &mut Vec<Waiting>) {
        if let Some(fatal) = &self.fatal {
            for one in waiting.drain(..) {
                one.answer(Err(fatal.to_append_error()));
            }
            return;
        }
        let number = {
            let mut ownership = self.shared.ownership();
            ownership.judged += 1;
            ownership.judged
        };
        let (judged, written) = loop {
            let mut judged = self.judge(waiting);
            match self.write(&judged.accepted) {
                Ok(()) => break (judged, Ok(())),
                Err(NotWritten::Failed(failure)) => break (judged, Err(failure)),
                // Rare: a limit was reached, or the caller has a bug. The others are checked again without it.
                Err(NotWritten::Wrong { append, why }) => {
                    judged.accepted.remove(append).answer(Err(why));
                    waiting.extend(judged.accepted);
                    waiting.extend(judged.conflicting.into_iter().map(|(one, _)| one));
                }
            }
        };
        if written.is_ok() {
            let mut ownership = self.shared.ownership();
            for one in &judged.accepted {
                let Append { conversation, fence, .. } = &one.append;
                ownership.owners.advance(conversation, *fence, judged.ends[conversation]);
            }
            drop(ownership);
            judged.accepted.iter().for_each(|one| self.shared.mailbox.answer(&one.append.replies));
        }
        // Claims wait for this: from here on, no append of a previous owner can change the log.
        self.shared.finished.send_replace(number);
        self.answer(judged, written);
    }

    /// Checks all fences under one lock, then the ends of the logs, some of which must be read from disk.
    fn judge(&self, waiting: &mut Vec<Waiting>) -> Judged {
        let mut admitted = Vec::with_capacity(waiting.len());
        {
            let ownership = self.shared.ownership();
            for one in waiting.drain(..) {
                match ownership.owners.admit(&one.append.conversation, one.append.fence) {
                    Ok(known) => admitted.push((one, known)),
                    Err(refusal) => one.answer(Err(refusal)),
                }
            }
        }
        let mut judged = Judged::default();
        for (one, known) in admitted {
            let conversation = &one.append.conversation;
            if self.removals.iter().any(|removal| removal.conversation == *conversation) {
                one.answer(Err(AppendError::Unavailable("the conversation is being deleted".into())));
                continue;
            }
            let last = match judged.ends.get(conversation).copied().or(known) {
                Some(last) => last,
                None => match self.last(conversation) {
                    Ok(last) => last,
                    Err(error) => {
                        one.answer(Err(AppendError::Unavailable(error.to_string())));
                        continue;
                    }
                },
            };
            if one.append.expected != last {
                judged.conflicting.push((one, last));
                continue;
            }
            judged.ends.insert(conversation.clone(), last.plus(one.append.records.len()));
            judged.accepted.push(one);
        }
        judged
    }

    /// Where a log ends. Recent rows are always newer than settled ones.
    fn last(&self, conversation: &ConversationId) -> rusqlite::Result<Seq> {
        let hot = self.shared.hot().last(conversation);
        match hot {
            Some(last) => Ok(last),
            None => settled_last(&self.db, conversation.as_str()),
        }
    }

    fn write(&mut self, accepted: &[Waiting]) -> Result<(), NotWritten> {
        if accepted.is_empty() {
            return Ok(());
        }
        let rows = self.number(accepted);
        {
            // Before the commit, so that no reader's snapshot has a row that is missing from the index.
            let mut hot = self.shared.hot();
            for (one, row) in accepted.iter().zip(&rows) {
                if let Some(row) = row {
                    hot.push(&one.append.conversation, row.clone());
                }
            }
        }
        let mut wrong = None;
        let result = self.transact(|tx| {
            point("append.begun");
            for (one, row) in accepted.iter().zip(&rows) {
                insert(tx, &one.append, row.as_ref())?;
            }
            point("append.inserted");
            for (append, one) in accepted.iter().enumerate() {
                for change in &one.append.changes {
                    if !documents::apply(tx, change)? {
                        let why = page::no_state_to_keep(one.append.conversation.as_str());
                        wrong = Some(NotWritten::Wrong { append, why });
                        return Err(rusqlite::Error::StatementChangedRows(0));
                    }
                }
                for (limit, judged) in one.append.limits.iter().enumerate() {
                    if documents::exceeds(tx, judged)? {
                        let why = AppendError::OverLimit { limit };
                        wrong = Some(NotWritten::Wrong { append, why });
                        return Err(rusqlite::Error::StatementChangedRows(0));
                    }
                }
            }
            point("append.before_commit");
            Ok(())
        });
        let Err(failure) = result else {
            point("append.after_commit");
            return Ok(());
        };
        self.shared.hot().undo(rows.iter().flatten().count());
        Err(wrong.unwrap_or_else(|| {
            tracing::error!(?failure, appends = accepted.len(), "appends could not be written");
            NotWritten::Failed(failure)
        }))
    }

    /// Assigns a row to each append that has records.
    fn number(&mut self, accepted: &[Waiting]) -> Vec<Option<HotRow>> {
        let mut rows = Vec::with_capacity(accepted.len());
        for one in accepted {
            let records = &one.append.records;
            let (Some(first), Some(last)) = (records.first(), records.last()) else {
                rows.push(None);
                continue;
            };
            let lines = Chunk::join(records);
            rows.push(Some(HotRow {
                position: self.next_position,
                first: first.seq,
                last: last.seq,
                bytes: lines.len(),
                lines: Some(lines),
            }));
            self.next_position += 1;
        }
        rows
    }

    fn answer(&self, judged: Judged, written: Result<(), Failure>) {
        let Judged { accepted, conflicting, ends } = judged;
        if written.is_ok() {
            let grown = accepted.iter().filter(|one| !one.append.records.is_empty());
            self.shared
                .wakes
                .wake_all(grown.map(|one| (&one.append.conversation, ends[&one.append.conversation])));
        }
        let answer = || written.as_ref().copied().map_err(Failure::to_append_error);
        for (n, one) in accepted.into_iter().enumerate() {
            one.answer(answer());
            if n == 0 {
                point("append.answered_first");
            }
        }
        for (one, last) in conflicting {
            one.answer(answer().and(Err(AppendError::Conflict { last })));
        }
    }
}

fn insert(tx: &Transaction<'_>, append: &Append, row: Option<&HotRow>) -> rusqlite::Result<()> {
    let Some(row) = row else { return Ok(()) };
    let sql = "INSERT INTO recent (position, conversation, fence, first_seq, last_seq, bytes) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = tx.prepare_cached(sql)?;
    let (conversation, fence) = (append.conversation.as_str(), sql_int(append.fence.0));
    let (first, last) = (sql_int(row.first.0), sql_int(row.last.0));
    statement.execute((row.position, conversation, fence, first, last, row.lines.as_deref()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sqlite::Options;
    use crate::sqlite::writer::by_hand;
    use crate::suite::{all, append, conversation, head};
    use crate::{Change, Newest, SqliteStore, Store, Table};

    #[tokio::test]
    async fn a_full_disk_acknowledges_nothing_and_reads_continue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outlast.db");
        let options = Options { max_pages: Some(64), ..Options::default() };
        let store = SqliteStore::open_with(&path, options.clone()).unwrap();
        let (c, other) = (conversation("c"), conversation("other"));
        let (fence, of_other) = (store.claim(&c).await.unwrap(), store.claim(&other).await.unwrap());
        let line = "x".repeat(10_000);
        let mut last = 0;
        let refused = loop {
            let changes = vec![Change::Put(head(&c, last + 1))];
            match store.append(Append { changes, ..append(&c, fence, last, &[&line]) }).await {
                Ok(()) => last += 1,
                Err(error) => break error,
            }
            assert!(last < 1000, "the limit was never reached");
        };
        assert!(matches!(refused, AppendError::Unavailable(_)), "{refused}");
        assert!(last > 0 && !*store.failed().borrow());
        assert_eq!(all(&store, &c).await.len() as u64, last);
        let document = store.get(Table::Conversations, "c").await.unwrap().unwrap();
        assert_eq!(document.seq, Seq(last), "the refused append changed the document");
        let loaded = store.load(&c, Newest::of(1)).await.unwrap().unwrap();
        assert_eq!((loaded.last, loaded.records.len()), (Seq(last), 0));

        // Once there is space again, the refused append and later ones succeed.
        drop(store);
        let store = SqliteStore::open_with(&path, Options { max_pages: None, ..options }).unwrap();
        assert!(store.claim(&c).await.unwrap() > fence && store.claim(&other).await.unwrap() > of_other);
        let fence = store.claim(&c).await.unwrap();
        store.append(append(&c, fence, last, &[&line])).await.unwrap();
        assert_eq!(all(&store, &c).await.len() as u64, last + 1);
    }

    #[tokio::test]
    async fn an_owner_continues_when_a_full_disk_has_space_again() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { max_pages: Some(64), ..Options::default() };
        let store = SqliteStore::open_with(&folder.path().join("outlast.db"), options).unwrap();
        let (old, new) = (conversation("old"), conversation("new"));
        let lines = vec!["x".repeat(10_000); 20];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        for c in [&old, &new] {
            let fence = store.claim(c).await.unwrap();
            let answer = store.append(append(c, fence, 0, &lines)).await;
            if answer.is_err() {
                assert!(matches!(answer, Err(AppendError::Unavailable(_))), "{answer:?}");
                store.delete(&old).await.unwrap();
                store.append(append(c, fence, 0, &lines)).await.unwrap();
                assert_eq!(all(&store, c).await.len(), 20);
                return;
            }
        }
        panic!("the limit was never reached");
    }

    #[test]
    fn after_a_fatal_failure_nobody_is_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = by_hand(folder.path(), &Options::default());
        let shared = Arc::clone(&writer.shared);
        let failed = shared.failed.subscribe();
        let c = conversation("c");
        let fence = shared.ownership().owners.claim(&c);
        let ask = |writer: &mut Writer, expected| {
            let (answer, mut answered) = oneshot::channel();
            writer.batch(&mut vec![Waiting { append: append(&c, fence, expected, &["a"]), answer }]);
            answered.try_recv().unwrap()
        };
        ask(&mut writer, 0).unwrap();
        assert!(!*failed.borrow());
        writer.note(&Failure::Fatal("disk I/O error".into()));
        assert!(*failed.borrow());
        let answer = ask(&mut writer, 1);
        assert!(
            matches!(&answer, Err(AppendError::Unconfirmed(why)) if why.contains("restart")),
            "{answer:?}"
        );
        assert!(writer.trim(&c, Seq(1), Seq(1)).is_err());
        let (answer, mut answered) = oneshot::channel();
        writer.delete(c, answer);
        assert!(answered.try_recv().unwrap().is_err());
    }
}
