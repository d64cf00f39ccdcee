//! How the pieces of an answer become events: where a message begins and ends, and which id it has.

use serde_json::Value;

use crate::attempts::{Failed, fail, too_long};
use crate::entries::Entries;
use crate::message::TextKind;
use crate::rounds::{Call, settle, unique_id};
use crate::{Always, CallEnd, Event, Generation, MessageId, Part, Piece, Rules, Streamed, approval_hash};

/// The settings, and what people in this conversation decided once and for all.
pub(crate) struct Standing<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) always: &'a [Always],
}

/// Turns what an attempt produced, by a model or a worker, into events.
pub(crate) fn tell(
    generation: &Generation,
    streamed: Streamed,
    standing: Standing<'_>,
    entries: &mut Entries,
) {
    let rules = standing.rules;
    let mut telling = Telling::new(generation, streamed.new_message, rules, entries);
    for piece in streamed.pieces {
        telling.take(piece);
    }
    match too_long(generation, telling.entries, rules).or(streamed.end) {
        None => {}
        Some(CallEnd::Finished { reason }) => telling.finish(reason, &standing),
        Some(CallEnd::Failed { failure, jitter }) => {
            let newly_shown = std::mem::take(&mut telling.shown);
            let failed = Failed { failure: &failure, jitter, newly_shown };
            fail(generation, failed, rules, telling.entries);
        }
    }
}

struct Telling<'a> {
    generation: &'a Generation,
    entries: &'a mut Entries,
    /// The message that text is added to.
    open: Option<MessageId>,
    names: Names,
    /// Messages that began in this report.
    shown: Vec<MessageId>,
    /// Tool calls without a result, and their messages.
    called: Vec<(String, MessageId)>,
    /// Those that began in this report, with their arguments.
    calls: Vec<Call>,
    /// White space that is already shown but was not given to the model, which may repeat it.
    withheld: String,
}

impl<'a> Telling<'a> {
    fn new(
        generation: &'a Generation,
        new_message: MessageId,
        rules: &Rules,
        entries: &'a mut Entries,
    ) -> Telling<'a> {
        let open = generation.open_segment().map(|segment| segment.message.clone());
        let called = generation.open_calls().map(|(id, message)| (id.to_owned(), message.clone()));
        Telling {
            names: Names::new(generation, new_message, open.is_some()),
            open,
            shown: Vec::new(),
            called: called.collect(),
            calls: Vec::new(),
            withheld: withheld(generation, rules).to_owned(),
            generation,
            entries,
        }
    }

    fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Text { kind, text, chunks } => self.say(kind, text, chunks),
            Piece::ToolCall { id: tool_use_id, name: tool_name, input: tool_input } => {
                self.close();
                let message_id = self.begin();
                let tool_use_id = self.named(tool_use_id, &message_id, &tool_name, &tool_input);
                self.called.push((tool_use_id.clone(), message_id.clone()));
                self.event(Event::ToolStart { message_id, tool_use_id, tool_name, tool_input });
            }
            Piece::ToolOutput { id: tool_use_id, stream, text } => {
                self.event(Event::ToolOutput { tool_use_id, stream, text, offset: None, bytes: None });
            }
            Piece::ToolEnd { id: tool_use_id, result, is_error } => {
                let asked = self.called.iter().position(|(id, _)| *id == tool_use_id);
                // A result without a call is ignored.
                if let Some(place) = asked {
                    let (_, message_id) = self.called.remove(place);
                    let (exit_code, outcome) = (None, None);
                    self.event(Event::ToolEnd {
                        message_id,
                        tool_use_id,
                        result,
                        is_error,
                        exit_code,
                        outcome,
                    });
                }
            }
            Piece::Approval { id: tool_use_id, name: tool_name, input: tool_input } => {
                self.close();
                let hash = approval_hash(&tool_name, &tool_input, self.generation.progress.attempt);
                self.event(Event::ApprovalRequested { tool_use_id, tool_name, tool_input, hash });
            }
            Piece::Signature { signature } => self.sign(signature),
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
        let message_id = self.segment();
        self.event(match kind {
            TextKind::Answer => Event::ChatDelta { message_id, text, chunks },
            TextKind::Thinking => Event::ThinkingDelta { message_id, text, chunks, signature: None },
        });
    }

    fn sign(&mut self, signature: String) {
        let message_id = self.segment();
        let (text, chunks, signature) = (String::new(), 0, Some(signature));
        self.event(Event::ThinkingDelta { message_id, text, chunks, signature });
    }

    /// The message that text is added to, which begins if none is open.
    fn segment(&mut self) -> MessageId {
        if let Some(open) = &self.open {
            return open.clone();
        }
        let message_id = self.begin();
        self.open = Some(message_id.clone());
        self.event(Event::AssistantSegmentStarted { message_id: message_id.clone() });
        message_id
    }

    /// The id of a call. An agent's is unique, and the call is kept until the answer is complete.
    fn named(&mut self, id: String, message: &MessageId, name: &str, input: &Value) -> String {
        if !self.generation.is_agent() {
            return id;
        }
        let id = unique_id(self.generation, id, &self.called, self.entries.next_seq());
        let (name, input) = (name.to_owned(), input.clone());
        self.calls.push(Call { id: id.clone(), message: message.clone(), name, input });
        id
    }

    /// The answer is complete: its tools run next, or what they changed is summarised, or it is the end.
    fn finish(&mut self, reason: String, standing: &Standing<'_>) {
        let rounds = &self.generation.progress.rounds;
        if !self.generation.is_agent() || (self.called.is_empty() && !rounds.touched) {
            self.close();
            self.event(Event::ChatDone { finish_reason: reason });
        } else if self.called.is_empty() {
            // The segment stays open for the summary.
            self.event(Event::RoundEnded { round: rounds.round, finish_reason: Some(reason) });
        } else {
            self.close();
            let calls = self.all_calls();
            settle(self.generation, calls, standing.always, standing.rules, self.entries);
        }
    }

    fn all_calls(&mut self) -> Vec<Call> {
        let earlier = self.generation.open_calls().filter_map(|(id, message)| {
            let (name, input) = self.generation.call(id)?;
            let (id, message) = (id.to_owned(), message.clone());
            Some(Call { id, message, name: name.to_owned(), input: input.clone() })
        });
        let new = std::mem::take(&mut self.calls);
        earlier.chain(new).collect()
    }

    fn begin(&mut self) -> MessageId {
        let message_id = self.names.next();
        self.shown.push(message_id.clone());
        message_id
    }

    fn close(&mut self) {
        if let Some(message_id) = self.open.take() {
            self.event(Event::AssistantSegmentEnded { message_id });
        }
    }

    fn event(&mut self, event: Event) {
        self.entries.of(self.generation, event);
    }
}

/// The ids of the messages that begin in one report. The first is given; an open message already has it.
struct Names {
    first: MessageId,
    given: usize,
    /// The prefix of further ids: the first id, unless the client chose that one. A client could also choose
    /// an id derived from it for another message.
    stem: String,
}

impl Names {
    fn new(generation: &Generation, first: MessageId, is_taken: bool) -> Names {
        let chosen = generation.brief.answer_id.as_ref() == Some(&first);
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

/// The white space at the end of the text that an attempt continues, if it has added nothing yet. The model was
/// given the text without it. A worker has the exact text, so nothing is withheld from it.
fn withheld<'a>(generation: &'a Generation, rules: &Rules) -> &'a str {
    if generation.brief.is_for_worker() || !rules.prefill.contains(&generation.brief.model) {
        return "";
    }
    let Some(segment) = generation.open_segment() else { return "" };
    let Some(Part::Text { text }) = segment.parts.last() else { return "" };
    if generation.progress.last_seq != generation.progress.attempt_seq {
        return ""; // the attempt has already added something
    }
    &text[text.trim_end().len()..]
}

/// The length of the common prefix in bytes.
fn common_prefix(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(one, other)| one == other);
    same.map(|(letter, _)| letter.len_utf8()).sum()
}
