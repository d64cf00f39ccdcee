//! Rules that all stores share: which appends are valid, and where a page ends.

use crate::contract::{
    Append, AppendError, Change, Document, Listed, Query, StoreError, TAG_BYTES_MAX, TAGS_MAX, Table,
};
use crate::items::{Item, ListedItems};

/// Panics on an append that breaks the contract, because writing it would damage the log permanently. It is
/// a bug in the caller, so this runs in the caller's task.
pub(crate) fn assert_sound(append: &Append) {
    let mut expected = append.expected;
    for record in &append.records {
        expected = expected.next();
        assert_eq!(record.seq, expected, "records of {} must have no gaps", append.conversation);
        assert!(!record.bytes.contains(&b'\n'), "record {expected} of {} has a newline", append.conversation);
    }
    for change in &append.changes {
        let Change::Put(document) = change else { continue };
        let Document { table, id, due, state, tags, .. } = document;
        assert!(*table == Table::Conversations || state.is_none(), "{table:?} {id} must not have a state");
        assert!(*table != Table::Messages || due.is_none(), "message {id} must not have a due time");
        assert!(*table == Table::Conversations || tags.is_empty(), "{table:?} {id} must not have tags");
        let bounded = tags.len() <= TAGS_MAX && tags.iter().all(|tag| tag.len() <= TAG_BYTES_MAX);
        assert!(bounded && tags.is_sorted_by(|a, b| a < b), "the tags of {id} are not in order");
    }
}

/// The table that a query names, or why the query is invalid.
pub(crate) fn check(query: &Query) -> Result<Table, StoreError> {
    let table = query.table.ok_or_else(|| StoreError::Broken("a query must name its table".into()))?;
    if table == Table::Messages && query.due_by.is_some() {
        return Err(StoreError::Broken("messages have no due time".into()));
    }
    if query.tag.is_some() && (table != Table::Conversations || query.user.is_none()) {
        return Err(StoreError::Broken("only a user's conversations are found by a tag".into()));
    }
    Ok(table)
}

/// The error for a `Put` that keeps the state when there is none.
pub(crate) fn no_state_to_keep(id: &str) -> AppendError {
    AppendError::Broken(format!("conversation {id} does not exist, so its first document needs a state"))
}

/// Collects items up to a number of bytes, but at least one.
pub(crate) struct Page<T> {
    items: Vec<T>,
    room: usize,
}

impl<T> Page<T> {
    pub(crate) fn of(max_bytes: usize) -> Self {
        Self { items: Vec::new(), room: max_bytes }
    }

    /// Adds an item if there is room for it or if it is the first. Returns false once the page is full.
    pub(crate) fn add(&mut self, item: T, bytes: usize) -> bool {
        if bytes > self.room && !self.items.is_empty() {
            return false;
        }
        self.room = self.room.saturating_sub(bytes);
        self.items.push(item);
        true
    }

    pub(crate) fn into_items(self) -> Vec<T> {
        self.items
    }
}

/// Collects a page from documents in the list's order. The caller passes one more document than the page
/// may hold, to tell whether another page follows.
pub(crate) struct DocumentPage {
    page: Page<Document>,
    limit: usize,
    more: bool,
}

impl DocumentPage {
    pub(crate) fn new(limit: usize, max_bytes: usize) -> Self {
        Self { page: Page::of(max_bytes), limit, more: false }
    }

    /// Returns false if the page is full and this document was left out.
    pub(crate) fn add(&mut self, document: Document) -> bool {
        let bytes = document.body.len();
        self.more = self.page.items.len() >= self.limit || !self.page.add(document, bytes);
        !self.more
    }

    pub(crate) fn into_listed(self, by_due: bool) -> Listed {
        let documents = self.page.into_items();
        let last = documents.last().filter(|_| self.more);
        let next = last.map(|last| {
            let key = if by_due { last.due.unwrap_or_default() } else { last.order };
            (key, last.id.clone())
        });
        Listed { documents, next }
    }

    /// Messages in reading order, and whether there are older ones.
    pub(crate) fn into_ascending(self) -> (Vec<Document>, bool) {
        let mut documents = self.page.into_items();
        documents.reverse();
        (documents, self.more)
    }
}

/// A page of items that are given in the list's order, one more than wanted if there are more.
pub(crate) struct ItemPage {
    page: Page<Item>,
    limit: usize,
    more: bool,
}

impl ItemPage {
    pub(crate) fn new(limit: usize, max_bytes: usize) -> Self {
        Self { page: Page::of(max_bytes), limit, more: false }
    }

    /// False once the page is complete and this item was left out.
    pub(crate) fn add(&mut self, item: Item) -> bool {
        let bytes = item.body.len();
        self.more = self.page.items.len() >= self.limit || !self.page.add(item, bytes);
        !self.more
    }

    pub(crate) fn into_listed(self, by_due: bool) -> ListedItems {
        let items = self.page.into_items();
        let last = items.last().filter(|_| self.more);
        let next = last.map(|last| {
            let key = if by_due { last.due.unwrap_or_default() } else { last.order };
            (key, last.id.clone())
        });
        ListedItems { items, next }
    }
}

/// Whether a list has this document, apart from who owns it.
pub(crate) fn matches(query: &Query, document: &Document) -> bool {
    query.user.as_ref().is_none_or(|user| *user == document.user)
        && query.conversation.as_ref().is_none_or(|conversation| *conversation == document.conversation)
        && (query.statuses.is_empty() || query.statuses.contains(&document.status))
        && query.request.as_ref().is_none_or(|request| *request == document.request)
        && query.tag.as_ref().is_none_or(|tag| document.tags.contains(tag))
        && query.due_by.is_none_or(|by| document.due.is_some_and(|due| due <= by))
        && query.after.as_ref().is_none_or(|(key, id)| match query.due_by {
            Some(_) => (document.due, &document.id) > (Some(*key), id),
            None => (document.order, &document.id) < (*key, id),
        })
}
