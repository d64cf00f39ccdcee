//! Reads for clients. They never need the owner; one consistent snapshot of the store is enough.

use outlast_core::{
    ConversationId, ConversationView, GenerationDocument, GenerationId, GenerationStatus, Message, Part,
    Segment, Seq, UserId, generation_document, view,
};
use outlast_store::{Document, Newest, PAGE_BYTES, Query, Record, StoreError, Table};

use crate::documents::{to_generation, to_message, to_state};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::feed::Batch;
use crate::follower::Follower;

/// How much of the log is read at once for a page of events.
const READ_BYTES: usize = 128 * 1024;
/// How many messages are read at once for the content of a generation.
const CONTENT_PAGE: usize = 200;

/// One page of a list, newest first.
#[derive(Clone, Debug)]
pub struct Page<T> {
    pub data: Vec<T>,
    /// Pass this to get the next page.
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug)]
pub struct Paging {
    /// The `next_cursor` of the last page.
    pub cursor: Option<String>,
    pub limit: usize,
}

/// One page of a generation's events.
#[derive(Clone, Debug)]
pub struct EventPage {
    pub records: Vec<Record>,
    /// The next page starts after this position.
    pub after: Seq,
    /// Whether the generation's last event has been read.
    pub ended: bool,
}

impl Engine {
    /// Everything needed to show a conversation, with its newest messages.
    pub async fn view(
        &self,
        user: &UserId,
        id: &ConversationId,
        messages: usize,
    ) -> Result<ConversationView, EngineError> {
        let loaded = self.shared.store.load(id, Newest::of(messages)).await?;
        let loaded =
            loaded.filter(|loaded| loaded.conversation.user == *user).ok_or(EngineError::NotFound)?;
        let state = to_state(&loaded)?;
        Ok(view(&state, readable(&loaded.messages, to_message), loaded.more_messages))
    }

    /// A generation's current document, with everything it said.
    pub async fn generation(
        &self,
        user: &UserId,
        id: &GenerationId,
    ) -> Result<GenerationDocument, EngineError> {
        let (document, open) = self.generation_now(user, id).await?;
        let content_parts = self.content_parts(&document, open.as_ref()).await?;
        Ok(GenerationDocument { content_parts: Some(content_parts), ..document })
    }

    /// The same without the content, and the segment whose text is arriving.
    pub(crate) async fn generation_now(
        &self,
        user: &UserId,
        id: &GenerationId,
    ) -> Result<(GenerationDocument, Option<Segment>), EngineError> {
        let document = self.generation_document(user, id).await?;
        if !document.status.is_live() {
            return Ok((document, None));
        }
        // The stored document is as of the last change of status. Later events are in the log.
        let loaded = self.shared.store.load(&document.conversation_id, Newest::NONE).await?;
        let state = loaded.as_ref().map(to_state).transpose()?;
        match state.as_ref().and_then(|state| state.generation(id)).filter(|generation| !generation.ended()) {
            Some(generation) => {
                let now = generation_document(&document.conversation_id, generation);
                Ok((now, generation.open_segment().cloned()))
            }
            // It has ended meanwhile. Its document is complete now, and the state may no longer have it.
            None => Ok((self.generation_document(user, id).await?, None)),
        }
    }

    /// Everything a generation said, from its messages, in the order of the log.
    async fn content_parts(
        &self,
        document: &GenerationDocument,
        open: Option<&Segment>,
    ) -> Result<Vec<Part>, EngineError> {
        let position = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
        let mut after = Some((position(document.last_seq.next()), String::new()));
        let mut said: Vec<Message> = Vec::new();
        while let Some(before) = after {
            let query = Query {
                table: Some(Table::Messages),
                conversation: Some(document.conversation_id.clone()),
                after: Some(before),
                limit: CONTENT_PAGE,
                ..Query::default()
            };
            let page = self.shared.store.list(query).await?;
            let further = page.documents.last().is_some_and(|last| last.seq > document.first_seq);
            let ours = |message: &Message| {
                message.generation_id.as_ref() == Some(&document.id) && message.id != document.message_id
            };
            said.extend(readable(&page.documents, to_message).into_iter().filter(ours));
            after = page.next.filter(|_| further);
        }
        said.reverse();
        let parts = |message: Message| match open.filter(|open| open.message == message.id) {
            Some(open) => open.parts.clone(),
            None => message.parts,
        };
        Ok(said.into_iter().flat_map(parts).collect())
    }

    /// A page of a conversation's messages before a position, in ascending order.
    pub async fn messages(
        &self,
        user: &UserId,
        id: &ConversationId,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<(Vec<Message>, bool), EngineError> {
        self.must_own(user, id).await?;
        let after = before.map(|seq| (i64::try_from(seq.0).unwrap_or(i64::MAX), String::new()));
        let query = Query {
            table: Some(Table::Messages),
            conversation: Some(id.clone()),
            after,
            limit,
            ..Query::default()
        };
        let found = self.shared.store.list(query).await?;
        let mut messages = readable(&found.documents, to_message);
        messages.reverse();
        Ok((messages, found.next.is_some()))
    }

    /// A user's generations, newest first, without what they said.
    pub async fn generations(
        &self,
        user: &UserId,
        conversation: Option<ConversationId>,
        status: Option<GenerationStatus>,
        paging: Paging,
    ) -> Result<Page<GenerationDocument>, EngineError> {
        let query = Query {
            table: Some(Table::Generations),
            user: Some(user.clone()),
            conversation,
            after: paging.after()?,
            limit: paging.limit,
            ..Query::default()
        };
        let parse = |document: &Document| {
            let generation = to_generation(document)?;
            Ok(GenerationDocument { content_parts: None, ..generation })
        };
        let all = query.conversation.is_none();
        let found = match (status, all) {
            (Some(status), _) => self.shared.newest_of(query, &[status]).await?,
            (None, false) => self.shared.store.list(query).await?,
            (None, true) => {
                let every = [GenerationStatus::LIVE, GenerationStatus::OVER].concat();
                self.shared.newest_of(query, &every).await?
            }
        };
        let mut data = readable(&found.documents, parse);
        // Sub-agents are listed by their own conversation only. So a page may be shorter than asked for.
        data.retain(|generation| !all || generation.brief.parent.is_none());
        Ok(Page { data, next_cursor: found.next.as_ref().map(cursor) })
    }

    /// A page of a generation's events after a position, limited in number and bytes.
    pub async fn events(
        &self,
        user: &UserId,
        id: &GenerationId,
        after: Option<Seq>,
        limit: usize,
    ) -> Result<EventPage, EngineError> {
        let document = self.generation_document(user, id).await?;
        let live = document.status.is_live();
        if let Some(after) = after.filter(|after| *after > document.last_seq) {
            self.must_exist(&document.conversation_id, after).await?;
        }
        // The document of a live generation may be older than its log, so read to the end of the log.
        let last = if live { Seq(u64::MAX) } else { document.last_seq };
        let mut page = EventPage { records: Vec::new(), after: from(&document, after), ended: false };
        let mut room = PAGE_BYTES;
        while page.after < last && !page.ended {
            let read = self.shared.store.read(&document.conversation_id, page.after, READ_BYTES).await?;
            if read.is_empty() {
                break; // the tail, or retention has removed the rest
            }
            for (record, head) in Batch::stored(read).iter() {
                if head.generation_id.as_ref() == Some(id) {
                    let full = page.records.len() == limit || record.bytes.len() > room;
                    if full && !page.records.is_empty() {
                        return Ok(page);
                    }
                    room = room.saturating_sub(record.bytes.len());
                    page.records.push(record.clone());
                    page.ended = head.is_end();
                }
                page.after = record.seq;
                if page.ended {
                    break;
                }
            }
        }
        if !live {
            (page.after, page.ended) = (page.after.max(last), true);
        }
        Ok(page)
    }

    /// The newest messages of a generation, in ascending order, and whether there are older ones.
    pub(crate) async fn messages_of(
        &self,
        generation: &GenerationDocument,
        limit: usize,
    ) -> Result<(Vec<Message>, bool), EngineError> {
        let order = |seq: Seq| i64::try_from(seq.0).unwrap_or(i64::MAX);
        let mut after = Some((order(generation.last_seq.next()), String::new()));
        let (mut messages, mut room, mut more) = (Vec::new(), PAGE_BYTES, false);
        'gathered: while after.is_some() {
            let query = Query {
                table: Some(Table::Messages),
                conversation: Some(generation.conversation_id.clone()),
                after,
                limit,
                ..Query::default()
            };
            let listed = self.shared.store.list(query).await?;
            for document in &listed.documents {
                if document.order < order(generation.first_seq) {
                    break 'gathered;
                }
                let Some(message) = readable(std::slice::from_ref(document), to_message).pop() else {
                    continue;
                };
                if message.generation_id.as_ref() != Some(&generation.id) {
                    continue;
                }
                more = !messages.is_empty() && (messages.len() == limit || document.body.len() > room);
                if more {
                    break 'gathered;
                }
                room = room.saturating_sub(document.body.len());
                messages.push(message);
            }
            after = listed.next;
        }
        messages.reverse();
        Ok((messages, more))
    }

    /// Follows a generation from its first event or from a position. If it ended before that position, there is
    /// nothing to follow.
    pub async fn follow_generation(
        &self,
        user: &UserId,
        id: &GenerationId,
        after: Option<Seq>,
    ) -> Result<Follower, EngineError> {
        let document = self.generation_document(user, id).await?;
        let ended = !document.status.is_live();
        let after = from(&document, after);
        let only = (document.id, document.first_seq);
        let follower = self.follower(document.conversation_id, after, Some(only))?;
        // Without this, a follower after its end would wait forever for events of other generations.
        Ok(if ended { follower.of_ended(document.last_seq) } else { follower })
    }

    /// Follows a conversation after a position, across generations, for as long as it is read.
    pub async fn follow_conversation(
        &self,
        user: &UserId,
        id: &ConversationId,
        after: Seq,
    ) -> Result<Follower, EngineError> {
        self.must_own(user, id).await?;
        self.follower(id.clone(), after, None)
    }

    /// Refuses a position after the end of the log, saved or only visible.
    async fn must_exist(&self, conversation: &ConversationId, seq: Seq) -> Result<(), EngineError> {
        let before = Seq(seq.0.saturating_sub(1));
        if !self.shared.store.read(conversation, before, 1).await?.is_empty() {
            return Ok(());
        }
        // No such record: the position is ahead, or retention has removed the end of the log.
        let loaded = self.shared.store.load(conversation, Newest::NONE).await?;
        let saved = loaded.map_or(Seq::ZERO, |loaded| loaded.last);
        let tail = self.shared.slots.visible_tail(conversation).map_or(saved, |visible| visible.max(saved));
        if seq <= tail { Ok(()) } else { Err(EngineError::CursorAhead { tail }) }
    }

    fn follower(
        &self,
        conversation: ConversationId,
        after: Seq,
        only: Option<(GenerationId, Seq)>,
    ) -> Result<Follower, EngineError> {
        let limit = self.shared.settings.followers_per_conversation;
        if *self.shared.slots.feed(&conversation).watchers().borrow() >= limit {
            return Err(EngineError::TooManyReaders { limit });
        }
        Ok(Follower::new(self.shared.clone(), conversation, after, only))
    }

    pub(crate) async fn generation_document(
        &self,
        user: &UserId,
        id: &GenerationId,
    ) -> Result<GenerationDocument, EngineError> {
        let document = self.shared.store.get(Table::Generations, id.as_str()).await?;
        let document = document.filter(|document| document.user == *user).ok_or(EngineError::NotFound)?;
        Ok(to_generation(&document)?)
    }

    pub(crate) async fn page<T>(
        &self,
        query: Query,
        paging: Paging,
        parse: impl Fn(&Document) -> Result<T, StoreError>,
    ) -> Result<Page<T>, EngineError> {
        let after = paging.after()?;
        let found = self.shared.store.list(Query { after, limit: paging.limit, ..query }).await?;
        let next_cursor = found.next.as_ref().map(cursor);
        Ok(Page { data: readable(&found.documents, parse), next_cursor })
    }
}

/// Where to start reading a generation: at its first event, unless the reader is further.
fn from(document: &GenerationDocument, after: Option<Seq>) -> Seq {
    let first = Seq(document.first_seq.0.saturating_sub(1));
    after.map_or(first, |after| after.max(first))
}

impl Paging {
    /// The position after which the page begins.
    pub(crate) fn after(&self) -> Result<Option<(i64, String)>, EngineError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let parsed =
            cursor.split_once('.').and_then(|(order, id)| Some((order.parse().ok()?, id.to_owned())));
        parsed.map(Some).ok_or_else(|| EngineError::BadCursor(cursor.to_owned()))
    }
}

/// What a client sends to get the page after this position.
pub(crate) fn cursor((order, id): &(i64, String)) -> String {
    format!("{order}.{id}")
}

/// The documents that can be read. One that cannot is logged and left out, so that it does not hide the others.
pub(crate) fn readable<T>(
    documents: &[Document],
    parse: impl Fn(&Document) -> Result<T, StoreError>,
) -> Vec<T> {
    let mut read = Vec::with_capacity(documents.len());
    for document in documents {
        match parse(document) {
            Ok(value) => read.push(value),
            Err(error) => {
                tracing::error!(table = ?document.table, id = ?document.id, %error, "skipped an unreadable document")
            }
        }
    }
    read
}
