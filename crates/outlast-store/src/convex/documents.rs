//! Documents as Convex keeps them, and lists of them.

use outlast_core::{ConversationId, UserId};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{ConvexStore, integer, seq};
use crate::contract::{Document, Query, StoreError, Table};
use crate::page::DocumentPage;
use crate::sort_key::{from_sortable, sortable};

/// Digits of a number at the beginning of a sort key.
const DIGITS: usize = 16;
/// What one step of a list returns at most, below what a transaction of Convex reads. The rest comes with the next.
pub(super) const STEP: Step = Step { documents: 256, bytes: 4 << 20 };

#[derive(Clone, Copy)]
pub(super) struct Step {
    documents: usize,
    bytes: usize,
}

impl Step {
    /// The number of documents and bytes to ask for.
    pub(super) fn within(self, limit: usize, max_bytes: usize) -> (usize, usize) {
        (limit.min(self.documents), max_bytes.min(self.bytes))
    }
}

pub(super) fn name(table: Table) -> &'static str {
    match table {
        Table::Conversations => "conversations",
        Table::Messages => "messages",
        Table::Generations => "generations",
    }
}

/// A document as it is written.
#[derive(Serialize)]
pub(super) struct Written<'a> {
    table: &'static str,
    id: &'a str,
    conversation: &'a str,
    user: &'a str,
    seq: String,
    place: String,
    due: Option<String>,
    status: &'a str,
    request: &'a str,
    tags: &'a [String],
    bytes: usize,
    body: &'a str,
    state: Option<&'a str>,
}

impl<'a> Written<'a> {
    pub(super) fn new(document: &'a Document) -> Self {
        Self {
            table: name(document.table),
            id: &document.id,
            conversation: document.conversation.as_str(),
            user: document.user.as_str(),
            seq: integer(document.seq.0),
            place: sort_key(document.order, &document.id),
            due: document.due.map(|due| sort_key(due, &document.id)),
            status: &document.status,
            request: &document.request,
            tags: &document.tags,
            bytes: document.body.len(),
            body: &document.body,
            state: document.state.as_deref(),
        }
    }
}

/// A document as it is read.
#[derive(Deserialize)]
pub(super) struct Stored {
    id: String,
    conversation: String,
    user: String,
    seq: String,
    place: String,
    due: Option<String>,
    status: String,
    request: String,
    tags: Vec<String>,
    body: String,
    state: Option<String>,
}

impl Stored {
    pub(super) fn document(self, table: Table) -> Result<Document, StoreError> {
        Ok(Document {
            table,
            conversation: ConversationId::from(self.conversation),
            user: UserId::from(self.user),
            seq: seq(&self.seq)?,
            order: number(&self.place)?,
            due: self.due.as_deref().map(number).transpose()?,
            status: self.status,
            request: self.request,
            tags: self.tags,
            body: self.body,
            state: self.state,
            id: self.id,
        })
    }
}

/// A key that sorts by number, then by id.
pub(super) fn sort_key(number: i64, id: &str) -> String {
    format!("{}{id}", sortable(number))
}

/// A key that sorts after all of this number, because ids are shorter than the largest character there is.
pub(super) fn end_of(number: i64) -> String {
    sort_key(number, "\u{10ffff}")
}

/// The number of a sort key.
pub(super) fn number(key: &str) -> Result<i64, StoreError> {
    let number = key.get(..DIGITS).and_then(from_sortable);
    number.ok_or_else(|| StoreError::Broken(format!("{key} is not a sort key")))
}

/// One step of a list.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Selection<'a> {
    table: &'static str,
    user: Option<&'a str>,
    conversation: Option<&'a str>,
    statuses: &'a [String],
    request: Option<&'a str>,
    tag: Option<&'a str>,
    due_until: Option<String>,
    after: Option<String>,
    limit: usize,
    max_bytes: usize,
    /// Only where the owners matter.
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<&'a str>,
}

#[derive(Deserialize)]
struct Found {
    documents: Vec<Stored>,
    rest: Option<String>,
}

impl ConvexStore {
    /// Asks for one bounded step after the other until the page is full.
    pub(super) async fn page(&self, table: Table, query: &Query) -> Result<DocumentPage, StoreError> {
        let (limit, max_bytes) = STEP.within(query.limit, query.max_bytes);
        let mut selection = Selection {
            table: name(table),
            user: query.user.as_ref().map(UserId::as_str),
            conversation: query.conversation.as_ref().map(ConversationId::as_str),
            statuses: &query.statuses,
            request: query.request.as_deref(),
            tag: query.tag.as_deref(),
            due_until: query.due_by.map(end_of),
            after: query.after.as_ref().map(|(number, id)| sort_key(*number, id)),
            limit,
            max_bytes,
            instance: query.unowned.then_some(self.instance.0.as_str()),
        };
        let mut page = DocumentPage::new(query.limit, query.max_bytes);
        loop {
            let found: Found = if query.unowned {
                self.deployment.mutation("documents:listUnowned", &selection).await?
            } else {
                self.deployment.query("documents:list", &selection).await?
            };
            for stored in found.documents {
                if !page.add(stored.document(table)?) {
                    return Ok(page);
                }
            }
            match found.rest {
                Some(rest) => selection.after = Some(rest),
                None => return Ok(page),
            }
        }
    }

    pub(super) async fn document(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        let args = json!({ "table": name(table), "id": id });
        let found: Option<Stored> = self.deployment.query("documents:get", &args).await?;
        found.map(|stored| stored.document(table)).transpose()
    }
}
