//! The files of a conversation's workspace as its checkpoints have them, and the tools on offer.
//!
//! Reads only: what is shown is what was saved, so it does not matter whether the sandbox runs, sleeps or is gone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use outlast_core::{
    Change, CheckpointId, Conversation, ConversationId, GenerationId, Message, Role, ToolRule, ToolSpec,
    UserId, parse_files_summary, rule_of,
};
use outlast_store::Newest;

use crate::actor::Workshop;
use crate::checkpoints::{Between, CheckpointError, ContentHash, FileContent, FileVersion};
use crate::documents::{to_message, to_state};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::file_names::{named, shown};
use crate::reading::readable;

/// In how many of the newest messages descriptions of files are looked for.
const DESCRIBED_IN: usize = 100;
/// No checkpoint has a longer id, and no file system takes a much longer name.
const CHECKPOINT_ID_BYTES_MAX: usize = 128;

/// One page of a workspace, in the order of paths.
#[derive(Clone, Debug, Default)]
pub struct Files {
    pub data: Vec<WorkspaceFile>,
    /// The checkpoint that was listed; none if none was ever taken.
    pub checkpoint: Option<CheckpointId>,
    /// Pass this to get the next page.
    pub next_cursor: Option<String>,
}

/// A file or link.
#[derive(Clone, Debug)]
pub struct WorkspaceFile {
    /// Escaped if it is not UTF-8.
    pub path: String,
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// BLAKE3 of the content; of the target, for a link.
    pub hash: ContentHash,
    /// Compared with the state that the reader named.
    pub change: Option<Change>,
    /// What the model said about it.
    pub description: Option<String>,
}

/// Which part of a workspace to list.
#[derive(Clone, Debug)]
pub struct FilesPage {
    /// Compare with the files as they were before this generation.
    pub since: Option<GenerationId>,
    /// The `next_cursor` of the last page.
    pub cursor: Option<String>,
    pub limit: usize,
}

impl Engine {
    /// The workspace as of the newest checkpoint. With `since`, deleted files are listed too.
    pub async fn files(
        &self,
        user: &UserId,
        id: &ConversationId,
        page: FilesPage,
    ) -> Result<Files, EngineError> {
        let (state, messages) = self.opened(user, id, DESCRIBED_IN).await?;
        let since = match &page.since {
            Some(generation) => Some(self.before(user, id, generation).await?),
            None => None,
        };
        let Some(newest) = newest(&state) else { return Ok(Files::default()) };
        let checkpoints = &self.workshop()?.checkpoints;
        let mut files: BTreeMap<PathBuf, (FileVersion, Option<Change>)> = BTreeMap::new();
        for file in checkpoints.list(id, newest.as_str()).await.map_err(unreadable)? {
            files.insert(file.path, (file.version, None));
        }
        if let Some(before) = since {
            let between =
                Between { before: before.as_ref().map(CheckpointId::as_str), after: newest.as_str() };
            for difference in checkpoints.compare(id, between).await.map_err(gone)? {
                let change = difference.change();
                if let Some(version) = difference.after.or(difference.before) {
                    files.insert(difference.path, (version, Some(change)));
                }
            }
        }
        let descriptions = descriptions(&messages);
        let after = page.cursor.as_deref().map(named);
        let listed = files.into_iter().filter(|(path, _)| after.as_ref().is_none_or(|after| path > after));
        let mut data: Vec<WorkspaceFile> =
            listed.take(page.limit.saturating_add(1)).map(|file| described(&descriptions, file)).collect();
        let more = data.len() > page.limit;
        data.truncate(page.limit);
        let next_cursor = data.last().filter(|_| more).map(|last| last.path.clone());
        Ok(Files { data, checkpoint: Some(newest), next_cursor })
    }

    /// A file's content at the newest checkpoint or at an older one. A link has none.
    pub async fn open_file(
        &self,
        user: &UserId,
        id: &ConversationId,
        path: &str,
        checkpoint: Option<&str>,
    ) -> Result<FileContent, EngineError> {
        let (state, _) = self.opened(user, id, 0).await?;
        let checkpoint = match checkpoint {
            Some(checkpoint) if checkpoint.len() > CHECKPOINT_ID_BYTES_MAX => {
                return Err(EngineError::NotFound);
            }
            Some(checkpoint) => checkpoint.to_owned(),
            None => newest(&state).ok_or(EngineError::NotFound)?.to_string(),
        };
        let checkpoints = &self.workshop()?.checkpoints;
        checkpoints.open(id, &checkpoint, &named(path)).await.map_err(unreadable)
    }

    /// What changed since the state before a generation, as a unified diff of text files; without one, everything is
    /// new. Cut short at 1 MiB, and it says so.
    pub async fn diff(
        &self,
        user: &UserId,
        id: &ConversationId,
        since: Option<&GenerationId>,
    ) -> Result<String, EngineError> {
        let (state, _) = self.opened(user, id, 0).await?;
        let before = match since {
            Some(generation) => self.before(user, id, generation).await?,
            None => None,
        };
        let Some(newest) = newest(&state) else { return Ok(String::new()) };
        let between = Between { before: before.as_ref().map(CheckpointId::as_str), after: newest.as_str() };
        self.workshop()?.checkpoints.diff(id, between).await.map_err(gone)
    }

    /// The tools that the server runs.
    pub fn offered_tools(&self) -> Vec<OfferedTool> {
        let settings = &self.shared.settings;
        let offered = |name: &String| {
            let (spec, rule) = (settings.toolbox.spec(name)?, rule_of(&settings.rules.tools, name)?.clone());
            Some(OfferedTool { spec, rule })
        };
        self.tools().iter().filter_map(offered).collect()
    }

    /// The checkpoint before a generation of this conversation changed anything.
    async fn before(
        &self,
        user: &UserId,
        id: &ConversationId,
        generation: &GenerationId,
    ) -> Result<Option<CheckpointId>, EngineError> {
        let (generation, _) = self.generation_now(user, generation).await?;
        if generation.conversation_id != *id {
            return Err(EngineError::NotFound);
        }
        Ok(generation.checkpoint_before)
    }

    async fn opened(
        &self,
        user: &UserId,
        id: &ConversationId,
        messages: usize,
    ) -> Result<(Conversation, Vec<Message>), EngineError> {
        let loaded = self.shared.store.load(id, Newest::of(messages)).await?;
        let loaded =
            loaded.filter(|loaded| loaded.conversation.user == *user).ok_or(EngineError::NotFound)?;
        Ok((to_state(&loaded)?, readable(&loaded.messages, to_message)))
    }

    fn workshop(&self) -> Result<&Workshop, EngineError> {
        let missing =
            |reason: &String| EngineError::Unavailable(format!("this server has no files: {reason}"));
        self.shared.workshop.as_ref().map_err(missing)
    }
}

/// A tool that the server runs, and what the operator says about it.
#[derive(Clone, Debug)]
pub struct OfferedTool {
    pub spec: ToolSpec,
    pub rule: ToolRule,
}

fn newest(state: &Conversation) -> Option<CheckpointId> {
    Some(state.sandbox.as_ref()?.checkpoint.as_ref()?.id.clone())
}

/// What the newest summary that mentions a file says about it. That it was changed is no description.
fn descriptions(messages: &[Message]) -> BTreeMap<String, String> {
    let said = messages.iter().filter(|message| message.role == Role::Assistant);
    let files = said.flat_map(|message| parse_files_summary(&message.content));
    let is_change =
        |text: &str| [Change::Added, Change::Modified, Change::Deleted].iter().any(|c| c.as_str() == text);
    let files = files.filter(|file| !file.description.is_empty() && !is_change(&file.description));
    files.map(|file| (file.path, file.description)).collect()
}

fn described(
    descriptions: &BTreeMap<String, String>,
    (path, (version, change)): (PathBuf, (FileVersion, Option<Change>)),
) -> WorkspaceFile {
    let path = shown(&path);
    let description = descriptions.get(&path).cloned();
    let FileVersion { size, mode, hash, .. } = version;
    WorkspaceFile { path, size, mode, hash, change, description }
}

pub(crate) fn unreadable(error: CheckpointError) -> EngineError {
    match error {
        CheckpointError::NotFound(_) => EngineError::NotFound,
        CheckpointError::Storage(_) | CheckpointError::Workspace(_) | CheckpointError::Unfinished(_) => {
            EngineError::Unavailable(error.to_string())
        }
        CheckpointError::Damaged(_) | CheckpointError::Limit { .. } | CheckpointError::NotEmpty => {
            EngineError::Broken(error.to_string())
        }
    }
}

/// A comparison names two checkpoints. The newest is kept, so it is the older one that is missing.
fn gone(error: CheckpointError) -> EngineError {
    match error {
        CheckpointError::NotFound(_) => {
            EngineError::Gone("the files as they were before this generation are no longer kept".to_owned())
        }
        error => unreadable(error),
    }
}
