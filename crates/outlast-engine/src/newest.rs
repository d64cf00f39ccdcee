//! The newest generations with one of several statuses, at a cost that does not grow with how many there are.
//!
//! Stores keep the documents of each status in order, but not those of several. So each status is asked for, and the
//! answers are merged.

use std::cmp::Reverse;

use futures_util::future::try_join_all;
use outlast_core::GenerationStatus;
use outlast_store::{Document, Listed, Query, StoreError};

use crate::engine::Shared;

impl Shared {
    /// One page, newest first. The query names neither a status nor `due_by`.
    pub(crate) async fn newest_of(
        &self,
        query: Query,
        statuses: &[GenerationStatus],
    ) -> Result<Listed, StoreError> {
        let pages = statuses.iter().map(|status| {
            let statuses = vec![status.as_str().to_owned()];
            self.store.list(Query { statuses, ..query.clone() })
        });
        Ok(merge(try_join_all(pages).await?, &query))
    }
}

/// The first page of what these are the first pages of.
fn merge(pages: Vec<Listed>, query: &Query) -> Listed {
    let key = |document: &Document| (document.order, document.id.clone());
    // A page that ended has more after that key, which may be newer than what other pages have.
    let known_to = pages.iter().filter_map(|page| page.next.clone()).max();
    let mut documents: Vec<Document> = pages.into_iter().flat_map(|page| page.documents).collect();
    documents.sort_by_cached_key(|document| Reverse(key(document)));
    let found = documents.len();
    let mut bytes = 0;
    let fits = documents.iter().take(query.limit).take_while(|document| {
        bytes += document.body.len();
        known_to.as_ref().is_none_or(|to| key(document) >= *to) && bytes <= query.max_bytes
    });
    let fits = fits.count().max(1); // the newest one is always known
    documents.truncate(fits);
    let has_more = known_to.is_some() || fits < found;
    let next = documents.last().filter(|_| has_more).map(key);
    Listed { documents, next }
}

#[cfg(test)]
mod tests {
    use outlast_core::Seq;
    use outlast_store::Table;

    use super::*;

    fn document(order: i64, status: &str) -> Document {
        Document {
            table: Table::Generations,
            id: format!("gen_{order:04}"),
            conversation: "conv".into(),
            user: "ann".into(),
            seq: Seq(1),
            order,
            due: None,
            status: status.to_owned(),
            request: String::new(),
            tags: Vec::new(),
            body: "x".repeat(100),
            state: None,
        }
    }

    /// A page of these, as a store returns it.
    fn page(all: &[Document], status: &str, query: &Query) -> Listed {
        let after =
            |one: &&Document| query.after.as_ref().is_none_or(|after| (one.order, one.id.clone()) < *after);
        let mut of_status: Vec<Document> =
            all.iter().rev().filter(|one| one.status == status).filter(after).cloned().collect();
        let fits = query.limit.min((query.max_bytes / 100).max(1)).min(of_status.len());
        let has_more = of_status.len() > fits;
        of_status.truncate(fits);
        let next = of_status.last().filter(|_| has_more).map(|last| (last.order, last.id.clone()));
        Listed { documents: of_status, next }
    }

    #[test]
    fn i18_pages_of_several_statuses_have_every_document_once_in_order() {
        // Runs of one status, so that some pages end long before others.
        let all: Vec<Document> =
            (0..300).map(|n| document(n, ["done", "error", "running"][(n / 37 % 3) as usize])).collect();
        for (limit, max_bytes) in [(1, usize::MAX), (7, usize::MAX), (50, 450), (50, 1), (500, usize::MAX)] {
            let mut query = Query { limit, max_bytes, ..Query::default() };
            let mut seen = Vec::new();
            loop {
                let pages = ["done", "error", "running"].map(|status| page(&all, status, &query));
                let merged = merge(pages.to_vec(), &query);
                assert!(merged.documents.len() <= limit);
                seen.extend(merged.documents.iter().map(|one| one.order));
                query.after = merged.next;
                if query.after.is_none() {
                    break;
                }
            }
            assert!(
                seen.iter().copied().eq((0..300).rev()),
                "pages of {limit} and {max_bytes} bytes: {seen:?}"
            );
        }
        assert_eq!(merge(Vec::new(), &Query::default()), Listed::default());
    }
}
