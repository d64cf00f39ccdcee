//! What an append to memory must pass before it changes anything.

use std::collections::{BTreeSet, HashMap};

use super::Kept;
use crate::contract::{AppendError, Change, Document, Limit, Table};
use crate::page;

impl Kept {
    pub(super) fn can_keep_states(&self, changes: &[Change]) -> Result<(), AppendError> {
        let mut changed: HashMap<&str, bool> = HashMap::new();
        for change in changes {
            match change {
                Change::Put(document) if document.table == Table::Conversations => {
                    let stored = || self.documents.contains_key(&(document.table, document.id.clone()));
                    let exists = changed.get(document.id.as_str()).copied().unwrap_or_else(stored);
                    if document.state.is_none() && !exists {
                        return Err(page::no_state_to_keep(&document.id));
                    }
                    changed.insert(&document.id, true);
                }
                Change::Remove(Table::Conversations, id) => {
                    changed.insert(id, false);
                }
                Change::Put(_) | Change::Remove(..) => {}
            }
        }
        Ok(())
    }

    /// Whether these changes would exceed the limit.
    pub(super) fn exceeds(&self, limit: &Limit, changes: &[Change]) -> bool {
        let counted = |document: &Document| {
            document.table == limit.table
                && limit.user.as_ref().is_none_or(|user| *user == document.user)
                && limit.statuses.contains(&document.status)
        };
        let mut matching: BTreeSet<&str> = self
            .documents
            .values()
            .filter(|document| counted(document))
            .map(|document| &*document.id)
            .collect();
        for change in changes {
            match change {
                Change::Put(document) if counted(document) => {
                    matching.insert(&document.id);
                }
                Change::Put(document) if document.table == limit.table => {
                    matching.remove(&*document.id);
                }
                Change::Remove(table, id) if *table == limit.table => {
                    matching.remove(&**id);
                }
                Change::Put(_) | Change::Remove(..) => {}
            }
        }
        matching.len() > limit.at_most
    }
}
