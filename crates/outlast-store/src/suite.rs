//! The conformance suite: tests of the contract that every store must pass.
//!
//! A store needs one [`Subject`] and one call of [`conformance!`](crate::conformance), which turns each case
//! into a separate test.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq, UserId};

use crate::MemoryStore;
use crate::contract::{Append, Change, Document, Fence, Record, Store, Table};

pub mod appends;
pub mod convex;
pub mod documents;
pub mod instances;
pub mod items;
pub mod limits;
pub mod mail;
pub mod ownership;
pub mod postgres;
pub mod reads;
pub mod redis;
pub mod removal;
pub mod tags;

/// A store under test, initially empty.
#[async_trait]
pub trait Subject: Send {
    fn store(&self) -> Arc<dyn Store>;

    /// Closes the store and opens it again, as a restart would. Does nothing for a store that is not durable.
    /// The caller must not hold the store meanwhile.
    async fn reopen(&mut self);

    /// Another instance's handle to the same store; `None` where a second process is kept out.
    async fn another(&self) -> Option<Arc<dyn Store>>;

    /// Whether appended records survive `reopen`.
    fn durable(&self) -> bool;

    /// Runs the store's background housekeeping now, if it has any.
    async fn settle(&mut self) {}
}

/// The memory store as a subject.
pub struct Memory(pub Arc<MemoryStore>);

#[async_trait]
impl Subject for Memory {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    async fn reopen(&mut self) {}

    async fn another(&self) -> Option<Arc<dyn Store>> {
        Some(Arc::new(self.0.join("two")))
    }

    fn durable(&self) -> bool {
        false
    }
}

/// Calls the macro `$then` with every case, by group, and these arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:path, $argument:expr) => {
        $then! { $argument;
            appends: {
                records_come_back_byte_for_byte
                an_append_may_only_change_documents
                a_refused_append_leaves_nothing_behind
                a_wrong_expected_seq_is_a_conflict
                an_append_cannot_be_written_twice
                appends_of_many_conversations_run_concurrently
                concurrent_appends_are_each_checked
                what_was_acknowledged_survives_a_restart
            }
            reads: {
                a_page_is_limited_by_bytes_but_never_empty
                pages_join_without_holes
                reading_past_the_end_finds_nothing
                load_finds_no_conversation_without_a_document
                load_returns_the_records_after_the_document
                load_returns_the_newest_messages_in_order
                load_limits_messages_by_bytes
                load_is_one_consistent_snapshot
                watchers_are_woken
            }
            documents: {
                a_put_replaces_every_field
                changes_apply_in_order
                tables_do_not_share_ids
                list_needs_a_table
                list_is_newest_first_and_pages
                a_page_of_documents_is_limited_by_bytes_but_never_empty
                every_given_key_must_match
                what_is_due_is_listed_oldest_first_and_pages
                messages_have_no_due
                a_put_without_a_state_keeps_the_state_and_its_seq
                a_put_without_a_state_needs_a_conversation
                documents_survive_a_restart
            }
            tags: {
                s1_conversations_are_found_by_a_tag_and_page
                s1_tags_change_with_their_conversation
                only_the_conversations_of_a_user_are_found_by_a_tag
            }
            items: {
                an_item_comes_back_as_it_was_written
                a_write_names_the_version_it_replaces
                of_many_writers_of_one_version_one_succeeds
                an_item_is_removed_once
                kinds_are_listed_while_they_have_items
                items_are_listed_newest_first_and_page
                a_page_of_items_is_limited_by_bytes_but_never_empty
                items_of_one_user_are_listed_alone
                items_that_are_due_are_listed_oldest_first
                items_survive_a_restart
            }
            ownership: {
                a_claim_shuts_out_the_previous_owner
                fences_only_grow
                fences_can_be_raised
                a_released_fence_writes_nothing
                a_stale_release_is_harmless
                conversations_have_separate_owners
                a_claim_never_overlaps_an_append
            }
            instances: {
                b1_a_lease_keeps_other_instances_away
                b8_what_an_expired_instance_held_is_taken_over_and_it_can_write_nothing
                an_instance_that_leaves_gives_everything_up
                instances_with_a_lease_are_known_to_others
                what_is_due_and_unowned_is_listed
            }
            mail: {
                i19_mail_is_answered_in_the_append_that_carries_it_out
                a_refused_append_leaves_mail_unanswered
                sending_the_same_mail_again_changes_nothing
                a_release_says_whether_mail_waits
                mail_of_an_instance_that_left_is_not_delivered
                mail_wakes_both_sides
            }
            limits: {
                b4_an_append_over_a_limit_writes_nothing
                b4_starts_at_once_never_pass_a_limit_together
            }
            removal: {
                trim_leaves_a_hole
                trim_may_take_everything
                trim_ignores_missing_records
                trimmed_records_stay_away_after_a_restart
                delete_removes_everything_of_one_conversation
                delete_shuts_out_the_owner
                a_deleted_conversation_can_be_created_again
                deleted_stays_deleted_after_a_restart
            }
        }
    };
}

/// Makes every case of the suite a `#[tokio::test]`; the expression gives a fresh [`Subject`].
#[macro_export]
macro_rules! conformance {
    ($subject:expr) => {
        $crate::conformance_cases!($crate::conformance_tests, $subject);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ($subject:expr; $($group:ident: { $($case:ident)* })*) => { $(
        $crate::conformance_tests!(@group $group, $subject, $($case)*);
    )* };
    (@group $group:ident, $subject:expr, $($case:ident)*) => {
        mod $group {
            #[allow(unused_imports)]
            use super::*;
            $(
                #[tokio::test]
                async fn $case() {
                    let mut subject = $subject;
                    $crate::suite::$group::$case(&mut subject).await;
                }
            )*
        }
    };
}

/// Runs every case, one after the other; the function gives a fresh [`Subject`] for its name. For stores whose
/// server is shared by all cases.
#[macro_export]
macro_rules! conformance_in_order {
    ($subject:expr) => {
        $crate::conformance_cases!($crate::conformance_sequence, $subject);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_sequence {
    ($subject:expr; $($group:ident: { $($case:ident)* })*) => { $(
        $crate::conformance_sequence!(@group $group, $subject, $($case)*);
    )* };
    (@group $group:ident, $subject:expr, $($case:ident)*) => { $(
        let name = concat!(stringify!($group), "::", stringify!($case));
        println!("{name}");
        let mut subject = $subject(name).await;
        $crate::suite::$group::$case(&mut subject).await;
    )* };
}

/// A conversation's id.
pub fn conversation(id: &str) -> ConversationId {
    ConversationId::from(id)
}

/// An append of these lines after `expected`, without documents.
pub fn append(conversation: &ConversationId, fence: Fence, expected: u64, lines: &[&str]) -> Append {
    let mut seq = Seq(expected);
    let mut records = Vec::new();
    for line in lines {
        seq = seq.next();
        records.push(Record { seq, bytes: Bytes::copy_from_slice(line.as_bytes()) });
    }
    Append {
        conversation: conversation.clone(),
        fence,
        expected: Seq(expected),
        records,
        changes: Vec::new(),
        replies: Vec::new(),
        limits: Vec::new(),
    }
}

/// A document with the given keys, and a value in every other field.
pub fn document(table: Table, id: &str, conversation: &ConversationId, order: i64) -> Document {
    Document {
        table,
        id: id.to_owned(),
        conversation: conversation.clone(),
        user: UserId::from("user"),
        seq: Seq::ZERO,
        order,
        due: None,
        status: String::new(),
        request: String::new(),
        tags: Vec::new(),
        body: format!(r#"{{"title":"{id}","content":"Grüße, 世界"}}"#),
        state: (table == Table::Conversations).then(|| format!("state of {id}")),
    }
}

/// The document of a conversation as of `seq`.
pub fn head(conversation: &ConversationId, seq: u64) -> Document {
    Document { seq: Seq(seq), ..document(Table::Conversations, conversation.as_str(), conversation, 1) }
}

/// An append without records that puts these documents.
pub fn put(conversation: &ConversationId, fence: Fence, expected: u64, documents: Vec<Document>) -> Append {
    let changes = documents.into_iter().map(Change::Put).collect();
    Append { changes, ..append(conversation, fence, expected, &[]) }
}

/// Claims and appends these lines after `expected`.
pub async fn write(store: &dyn Store, conversation: &ConversationId, expected: u64, lines: &[&str]) -> Fence {
    let fence = store.claim(conversation).await.expect("claim");
    store.append(append(conversation, fence, expected, lines)).await.expect("append");
    fence
}

/// Every record as (seq, text).
pub async fn all(store: &dyn Store, conversation: &ConversationId) -> Vec<(u64, String)> {
    texts(&store.read(conversation, Seq::ZERO, usize::MAX).await.expect("read"))
}

/// Records as (seq, text).
pub fn texts(records: &[Record]) -> Vec<(u64, String)> {
    records.iter().map(|record| (record.seq.0, String::from_utf8_lossy(&record.bytes).into_owned())).collect()
}

/// The expected result of `texts`.
pub fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
    expected.iter().map(|(seq, line)| (*seq, (*line).to_owned())).collect()
}
