//! The end of a run that changed files: the changes are listed in the answer and in the conversation.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::entries::Entries;
use crate::ids::derived;
use crate::message::plain_text;
use crate::{ChangedFile, Conversation, Event, Generation, MessageId, files_summary_to_append};

/// The maximum number of files that a conversation lists, more than a person reads. The checkpoint has all of them.
const FILES_MAX: usize = 500;
/// The maximum size of their paths together. The list is part of the state and of the conversation's document, and a path
/// can have 4 KiB.
const FILES_BYTES_MAX: usize = 64 * 1024;

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
        entries.of_conversation(
            None,
            Event::ConversationUpdated { title: None, metadata: None, files, key: None },
        );
    }
    let finish_reason = generation.progress.rounds.finish_reason.clone().unwrap_or_default();
    entries.of(generation, Event::ChatDone { finish_reason });
}

/// The files of the conversation with these changes, the newest last. The oldest are dropped if they are too many.
fn files(before: &[Value], changes: &[ChangedFile]) -> Vec<Value> {
    let changed: BTreeSet<&str> = changes.iter().map(|change| change.path.as_str()).collect();
    let is_unchanged = |file: &&Value| file["path"].as_str().is_none_or(|path| !changed.contains(path));
    let new = changes.iter().rev().map(|file| json!({"path": file.path, "change": file.change.as_str()}));
    let old = before.iter().rev().filter(is_unchanged).cloned();
    let mut room = FILES_BYTES_MAX;
    let fits = |file: &Value| {
        let bytes = file["path"].as_str().map_or(0, str::len);
        room.checked_sub(bytes).map(|left| room = left).is_some()
    };
    let mut files: Vec<Value> = new.chain(old).take(FILES_MAX).take_while(fits).collect();
    files.reverse();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Change;

    #[test]
    fn the_list_of_files_is_limited_by_bytes_and_keeps_the_newest() {
        let file = |n: usize, length: usize| {
            let path = format!("{n:04}{}", "x".repeat(length));
            ChangedFile { path, change: Change::Added }
        };
        let long: Vec<ChangedFile> = (0..100).map(|n| file(n, 4_092)).collect();
        let listed = files(&[], &long);
        assert_eq!(listed.len(), FILES_BYTES_MAX / 4_096);
        assert_eq!(listed.last().unwrap()["path"], long[99].path.as_str());
        let short: Vec<ChangedFile> = (0..1_000).map(|n| file(n, 0)).collect();
        let listed = files(&listed, &short);
        assert_eq!((listed.len(), listed[0]["path"].as_str().unwrap()), (FILES_MAX, "0500"));
        let again = files(&listed, &short[500..501]);
        assert_eq!((again.len(), &again[FILES_MAX - 1]["path"]), (FILES_MAX, &listed[0]["path"]));
    }
}
