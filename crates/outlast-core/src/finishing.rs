//! The end of a run that changed files: what changed is added to the answer and to the conversation.

use serde_json::{Value, json};

use crate::entries::Entries;
use crate::ids::derived;
use crate::message::plain_text;
use crate::{ChangedFile, Conversation, Event, Generation, MessageId, files_summary_to_append};

/// The maximum number of files that a conversation lists: more than a person reads. The checkpoint has all of them.
const FILES_MAX: usize = 500;

/// The answer gets its summary and is complete.
pub(crate) fn finish(
    state: &Conversation,
    generation: &Generation,
    changes: &[ChangedFile],
    entries: &mut Entries,
) {
    let open = generation.open_segment();
    let said = open.map(|segment| plain_text(&segment.parts)).unwrap_or_default();
    let mut message_id = open.map(|segment| segment.message.clone());
    if !changes.is_empty() && !generation.progress.rounds.summarized {
        let message_id = message_id.get_or_insert_with(|| {
            let place = entries.next_seq().to_string();
            let id = MessageId::from(derived("msg", &[generation.id.as_str(), &place]));
            entries.of(generation, Event::AssistantSegmentStarted { message_id: id.clone() });
            id
        });
        let text = files_summary_to_append(&said, changes);
        if !text.is_empty() {
            let message_id = message_id.clone();
            entries.of(generation, Event::ChatDelta { message_id, text, chunks: 0 });
        }
    }
    if let Some(message_id) = message_id {
        entries.of(generation, Event::AssistantSegmentEnded { message_id });
    }
    if !changes.is_empty() {
        let files = Some(files(&state.files, changes));
        entries.of_conversation(None, Event::ConversationUpdated { title: None, metadata: None, files });
    }
    let finish_reason = generation.progress.rounds.finish_reason.clone().unwrap_or_default();
    entries.of(generation, Event::ChatDone { finish_reason });
}

/// The files of the conversation with these changes, the newest last.
fn files(before: &[Value], changes: &[ChangedFile]) -> Vec<Value> {
    let changed = |file: &&Value| changes.iter().any(|change| file["path"] == change.path.as_str());
    let mut files: Vec<Value> = before.iter().filter(|file| !changed(file)).cloned().collect();
    files.extend(changes.iter().map(|file| json!({"path": file.path, "change": file.change.as_str()})));
    files.drain(..files.len().saturating_sub(FILES_MAX));
    files
}
