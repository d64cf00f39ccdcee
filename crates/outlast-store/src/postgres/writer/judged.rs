//! The appends of a flush after they were judged.

use std::collections::HashMap;

use outlast_core::{ConversationId, Seq};

use super::Waiting;
use super::refusal::CloneRefusal;
use crate::contract::AppendError;

#[derive(Default)]
pub(super) struct Judged {
    pub(super) accepted: Vec<Waiting>,
    /// They expected another end of the log. That end may be the one this very flush writes, so they too are
    /// answered after it.
    pub(super) conflicting: Vec<(Waiting, Seq)>,
    /// Where the logs end once this flush is written.
    pub(super) ends: HashMap<ConversationId, Seq>,
}

impl Judged {
    pub(super) fn back(self) -> Vec<Waiting> {
        self.accepted.into_iter().chain(self.conflicting.into_iter().map(|(one, _)| one)).collect()
    }

    pub(super) fn without(mut self, append: usize, why: AppendError) -> Vec<Waiting> {
        self.accepted.remove(append).answer(Err(why));
        self.back()
    }

    pub(super) fn answer(self, result: &Result<(), AppendError>) {
        for one in self.accepted {
            one.answer(result.clone_refusal());
        }
        for (one, last) in self.conflicting {
            one.answer(result.clone_refusal().and(Err(AppendError::Conflict { last })));
        }
    }
}
