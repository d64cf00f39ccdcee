//! How the pieces of an answer become events: where a message begins, where it ends, and what it is called.

use crate::entries::Entries;
use crate::message::TextKind;
use crate::{Event, Generation, MessageId, Part, Piece, Rules};

/// An answer on its way into events, piece by piece.
pub(crate) struct Telling<'a> {
    generation: &'a Generation,
    pub(crate) entries: &'a mut Entries,
    /// The message that words are added to.
    open: Option<MessageId>,
    names: Names,
    /// Messages that began in this report.
    pub(crate) shown: Vec<MessageId>,
    /// Calls for tools that have no result yet, and the messages that asked.
    called: Vec<(String, MessageId)>,
    /// White space that stands there already and that the model was not told of: it may say it again.
    withheld: String,
}

impl<'a> Telling<'a> {
    pub(crate) fn new(
        generation: &'a Generation,
        new_message: MessageId,
        rules: &Rules,
        entries: &'a mut Entries,
    ) -> Telling<'a> {
        let open = generation.open_segment().map(|segment| segment.message.clone());
        let called = generation.tool_calls().filter(|call| !call.ended);
        let called = called.map(|call| (call.id.to_owned(), call.message.clone()));
        Telling {
            names: Names::new(generation, new_message, open.is_some()),
            open,
            shown: Vec::new(),
            called: called.collect(),
            withheld: withheld(generation, rules).to_owned(),
            generation,
            entries,
        }
    }

    pub(crate) fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Text { kind, text, chunks } => self.say(kind, text, chunks),
            Piece::ToolCall { id: tool_use_id, name: tool_name, input: tool_input } => {
                self.close();
                let message_id = self.begin();
                self.called.push((tool_use_id.clone(), message_id.clone()));
                self.event(Event::ToolStart { message_id, tool_use_id, tool_name, tool_input });
            }
            Piece::ToolOutput { id: tool_use_id, stream, text } => {
                self.event(Event::ToolOutput { tool_use_id, stream, text });
            }
            Piece::ToolEnd { id: tool_use_id, result, is_error } => {
                let asked = self.called.iter().position(|(id, _)| *id == tool_use_id);
                // A result of what nobody asked for belongs nowhere.
                if let Some(place) = asked {
                    let (_, message_id) = self.called.remove(place);
                    self.event(Event::ToolEnd { message_id, tool_use_id, result, is_error });
                }
            }
            Piece::Approval { id: tool_use_id, name: tool_name, input: tool_input } => {
                self.close();
                self.event(Event::ApprovalRequested { tool_use_id, tool_name, tool_input });
            }
            Piece::Usage { input_tokens, output_tokens } => {
                self.event(Event::Usage { input_tokens, output_tokens });
            }
        }
    }

    fn say(&mut self, kind: TextKind, mut text: String, chunks: u32) {
        if kind == TextKind::Answer {
            let there = common_prefix(&self.withheld, &text);
            text.drain(..there);
            self.withheld.drain(..there);
        }
        if text.is_empty() {
            return;
        }
        self.withheld.clear();
        let message_id = match &self.open {
            Some(open) => open.clone(),
            None => {
                let message_id = self.begin();
                self.open = Some(message_id.clone());
                self.event(Event::AssistantSegmentStarted { message_id: message_id.clone() });
                message_id
            }
        };
        self.event(match kind {
            TextKind::Answer => Event::ChatDelta { message_id, text, chunks },
            TextKind::Thinking => Event::ThinkingDelta { message_id, text, chunks },
        });
    }

    fn begin(&mut self) -> MessageId {
        let message_id = self.names.next();
        self.shown.push(message_id.clone());
        message_id
    }

    pub(crate) fn close(&mut self) {
        if let Some(message_id) = self.open.take() {
            self.event(Event::AssistantSegmentEnded { message_id });
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.entries.of(self.generation, event);
    }
}

/// The ids of the messages that begin in one report. The first is given; while a message is open, it has
/// that one already.
struct Names {
    first: MessageId,
    given: usize,
    /// What further ones are named after: the first, unless the client chose that. What follows from a chosen
    /// name may be chosen too, for another message.
    stem: String,
}

impl Names {
    fn new(generation: &Generation, first: MessageId, is_taken: bool) -> Names {
        let chosen = generation.answer_id.as_ref() == Some(&first);
        let stem = if chosen { generation.id.to_string() } else { first.to_string() };
        Names { first, given: usize::from(is_taken), stem }
    }

    fn next(&mut self) -> MessageId {
        self.given += 1;
        match self.given {
            1 => self.first.clone(),
            n => format!("{}-{n}", self.stem).into(),
        }
    }
}

/// The white space at the end of the words that an attempt goes on from, if it has said nothing yet. The
/// model was given the words without it. A worker was not: it reads what stands there and means what it says.
fn withheld<'a>(generation: &'a Generation, rules: &Rules) -> &'a str {
    if generation.producer.is_some() || !rules.prefill.contains(&generation.model) {
        return "";
    }
    let Some(segment) = generation.open_segment() else { return "" };
    let Some(Part::Text { text }) = segment.parts.last() else { return "" };
    if generation.last_seq != generation.attempt_seq {
        return ""; // something was said since the attempt began
    }
    &text[text.trim_end().len()..]
}

/// How many bytes both begin with.
fn common_prefix(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    same.map(|(letter, _)| letter.len_utf8()).sum()
}
