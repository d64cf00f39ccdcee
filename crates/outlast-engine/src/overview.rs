//! What an operator may see of all users.

use outlast_core::{GenerationDocument, GenerationStatus, UserId};
use outlast_store::{Query, StoreError, Table};

use crate::engine::Engine;

/// Waiting generations are counted up to this number; an operator who has more need not know how many.
const WAITING_MAX: usize = 1_000;

impl Engine {
    /// The newest generations with one of these statuses, of all users. One that cannot be read is left out.
    pub async fn newest_of_all_users(
        &self,
        statuses: &[GenerationStatus],
        limit: usize,
    ) -> Result<Vec<(UserId, GenerationDocument)>, StoreError> {
        let listed = self.shared.newest_of(generations(limit), statuses).await?;
        let documents =
            listed.documents.into_iter().filter_map(|document| match serde_json::from_str(&document.body) {
                Ok(generation) => Some((document.user, generation)),
                Err(error) => {
                    tracing::error!(generation = document.id, %error, "skipped an unreadable document");
                    None
                }
            });
        Ok(documents.collect())
    }

    /// How many generations wait for a decision, in the whole store: at most [`WAITING_MAX`].
    pub async fn waiting_for_people(&self) -> Result<usize, StoreError> {
        let (mut waiting, mut after) = (0, None);
        loop {
            let query = Query { after, ..generations(WAITING_MAX) };
            let page = self
                .shared
                .newest_of(query, &[GenerationStatus::AwaitingApproval, GenerationStatus::Paused])
                .await?;
            waiting += page.documents.len();
            match page.next {
                Some(next) if waiting < WAITING_MAX => after = Some(next),
                _ => return Ok(waiting.min(WAITING_MAX)),
            }
        }
    }

    /// The live generations of this instance.
    pub fn live(&self) -> usize {
        self.shared.live.in_all()
    }

    /// The name of this instance among those that share the store.
    pub fn instance(&self) -> &str {
        &self.shared.store.instance().0
    }
}

fn generations(limit: usize) -> Query {
    Query { table: Some(Table::Generations), limit, ..Query::default() }
}
