//! Collects new events and gives each its position and its time.

use crate::{Conversation, Entry, Event, Generation, GenerationId, RequestId, Seq, Timestamp};

/// A list of events that continues a conversation's log.
pub(crate) struct Entries {
    seq: Seq,
    now: Timestamp,
    list: Vec<Entry>,
}

impl Entries {
    pub(crate) fn after(state: &Conversation, now: Timestamp) -> Entries {
        Entries { seq: state.seq, now, list: Vec::new() }
    }

    /// The time of every event in the list.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// How many bytes the list adds to the answer, as counted against its limit.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.list.iter().map(|entry| entry.event.answer_bytes()).sum()
    }

    /// Whether the list shows anything that a model cannot continue.
    pub(crate) fn has_more_than_text(&self) -> bool {
        let more =
            |entry: &Entry| matches!(entry.event, Event::ThinkingDelta { .. } | Event::ToolStart { .. });
        self.list.iter().any(more)
    }

    /// Whether the list ends a generation.
    pub(crate) fn has_end(&self) -> bool {
        self.list.iter().any(|entry| entry.event.is_end())
    }

    /// The position of the next event.
    pub(crate) fn next_seq(&self) -> Seq {
        self.seq.plus(self.list.len()).next()
    }

    pub(crate) fn of_conversation(&mut self, request: Option<RequestId>, event: Event) {
        self.push(None, request, event);
    }

    pub(crate) fn of(&mut self, generation: &Generation, event: Event) {
        self.push(Some(generation.id.clone()), Some(generation.request.clone()), event);
    }

    pub(crate) fn of_new(&mut self, generation: &GenerationId, request: &RequestId, event: Event) {
        self.push(Some(generation.clone()), Some(request.clone()), event);
    }

    pub(crate) fn finish(self) -> Vec<Entry> {
        self.list
    }

    fn push(&mut self, generation: Option<GenerationId>, request: Option<RequestId>, event: Event) {
        let entry = Entry { seq: self.next_seq(), ts: self.now, generation, request, event };
        self.list.push(entry);
    }
}
