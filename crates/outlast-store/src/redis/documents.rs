//! Documents as Redis keeps them: a hash for each, and sorted sets that find them by their keys.

use outlast_core::{ConversationId, Seq, UserId};
use serde::{Deserialize, Serialize};

use super::RedisStore;
use super::failure::Failure;
use crate::contract::{Document, Query, StoreError, Table};
use crate::page::DocumentPage;
use crate::sort_key::{from_sortable, sortable};

/// One document of a reply: id, keys, seq, body, and state where it was asked for.
pub(super) type Stored = (String, String, String, String, Option<String>);
/// The same without a state.
pub(super) type Listed = (String, String, String, String);

pub(super) fn name(table: Table) -> &'static str {
    match table {
        Table::Conversations => "conversations",
        Table::Messages => "messages",
        Table::Generations => "generations",
    }
}

/// What scripts look at. Numbers are written so that they sort as text.
#[derive(Serialize, Deserialize)]
struct Keys {
    conversation: String,
    user: String,
    order: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<String>,
    status: String,
    request: String,
    tags: Vec<String>,
}

/// What a list selects by, apart from its index.
#[derive(Serialize)]
struct Filter<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    statuses: Option<std::collections::BTreeMap<&'a str, bool>>,
    unowned: bool,
}

/// Two strings as one, as `pair` in common.lua.
pub(super) fn pair(a: &str, b: &str) -> String {
    format!("{}:{a}:{b}", a.len())
}

pub(super) fn keys(document: &Document) -> String {
    let keys = Keys {
        conversation: document.conversation.as_str().to_owned(),
        user: document.user.as_str().to_owned(),
        order: sortable(document.order),
        due: document.due.map(sortable),
        status: document.status.clone(),
        request: document.request.clone(),
        tags: document.tags.clone(),
    };
    serde_json::to_string(&keys).expect("strings can be written as JSON")
}

pub(super) fn document(table: Table, (id, keys, seq, body, state): Stored) -> Result<Document, StoreError> {
    let broken = || StoreError::Broken(format!("the {} document {id} cannot be read", name(table)));
    let keys: Keys = serde_json::from_str(&keys).map_err(|_| broken())?;
    let due = keys.due.as_deref().map(|due| from_sortable(due).ok_or_else(broken)).transpose()?;
    Ok(Document {
        table,
        conversation: ConversationId::from(keys.conversation),
        user: UserId::from(keys.user),
        seq: Seq(seq.parse().map_err(|_| broken())?),
        order: from_sortable(&keys.order).ok_or_else(broken)?,
        due,
        status: keys.status,
        request: keys.request,
        tags: keys.tags,
        body,
        state,
        id,
    })
}

/// The part of an index that a list walks through.
pub(super) struct Range {
    pub(super) order: &'static str,
    pub(super) low: Vec<u8>,
    pub(super) high: Vec<u8>,
}

impl Range {
    pub(super) fn new(due_by: Option<i64>, after: Option<&(i64, String)>) -> Self {
        let beyond = after.map(|(key, id)| format!("({}{id}", sortable(*key)).into_bytes());
        match due_by {
            Some(by) => {
                // No id holds this byte, because ids are UTF-8.
                let mut high = format!("[{}", sortable(by)).into_bytes();
                high.push(0xff);
                Self { order: "due", low: beyond.unwrap_or_else(|| b"-".to_vec()), high }
            }
            None => {
                Self { order: "newest", low: b"-".to_vec(), high: beyond.unwrap_or_else(|| b"+".to_vec()) }
            }
        }
    }

    /// Goes on after this member.
    pub(super) fn skip(&mut self, member: &[u8]) {
        let beyond = [b"(", member].concat();
        if self.order == "due" {
            self.low = beyond;
        } else {
            self.high = beyond;
        }
    }
}

/// The index with the fewest documents that need not match. Which there are is written in common.lua.
fn index(table: Table, query: &Query) -> String {
    let prefix = name(table);
    if query.due_by.is_some() {
        return format!("{prefix}:due");
    }
    if let (Some(user), Some(tag)) = (&query.user, &query.tag) {
        return format!("{prefix}:tag:{}", pair(user.as_str(), tag));
    }
    match (table, &query.conversation, &query.user, query.statuses.as_slice()) {
        (Table::Conversations | Table::Generations, Some(conversation), ..)
            if query.request.as_ref().is_some_and(|request| !request.is_empty()) =>
        {
            let request = query.request.as_deref().unwrap_or_default();
            format!("{prefix}:request:{}", pair(conversation.as_str(), request))
        }
        (_, Some(conversation), ..) => format!("{prefix}:of:{conversation}"),
        (Table::Messages, None, ..) => format!("{prefix}:all"),
        (_, None, Some(user), [status]) => {
            format!("{prefix}:user_status:{}", pair(user.as_str(), status))
        }
        (_, None, Some(user), _) => format!("{prefix}:user:{user}"),
        (_, None, None, [status]) => format!("{prefix}:status:{status}"),
        (_, None, None, _) => format!("{prefix}:all"),
    }
}

impl RedisStore {
    /// Asks for one bounded step after the other until the page is full.
    pub(super) async fn page(&self, table: Table, query: &Query) -> Result<DocumentPage, StoreError> {
        let statuses = query.statuses.iter().map(|status| (status.as_str(), true)).collect();
        let filter = Filter {
            user: query.user.as_ref().map(UserId::as_str),
            conversation: query.conversation.as_ref().map(ConversationId::as_str),
            request: query.request.as_deref(),
            tag: query.tag.as_deref(),
            statuses: (!query.statuses.is_empty()).then_some(statuses),
            unowned: query.unowned,
        };
        let filter = serde_json::to_string(&filter).expect("strings can be written as JSON");
        let index = index(table, query);
        let mut range = Range::new(query.due_by, query.after.as_ref());
        let mut page = DocumentPage::new(query.limit, query.max_bytes);
        loop {
            let asked = self.link.run(&self.scripts.list, |script| {
                script.arg(name(table)).arg(&index).arg(range.order).arg(&range.low).arg(&range.high);
                script.arg(&filter).arg(query.limit).arg(query.max_bytes).arg(&self.instance.0);
            });
            let (found, rest): (Vec<Listed>, Option<Vec<u8>>) = asked.await.map_err(StoreError::from)?;
            for (id, keys, seq, body) in found {
                if !page.add(document(table, (id, keys, seq, body, None))?) {
                    return Ok(page);
                }
            }
            match rest {
                Some(member) => range.skip(&member),
                None => return Ok(page),
            }
        }
    }

    pub(super) async fn document(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        let asked = self.link.run(&self.scripts.get, |script| {
            script.arg(name(table)).arg(id);
        });
        let found: Option<Stored> = asked.await.map_err(|failure: Failure| StoreError::from(failure))?;
        found.map(|stored| document(table, stored)).transpose()
    }
}
