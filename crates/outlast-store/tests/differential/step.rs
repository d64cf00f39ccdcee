//! What can be asked of a store, at random.

use proptest::prelude::*;

/// A table, a name, a status or a removal, and whether a conversation's state changes.
pub(crate) type Changed = (usize, usize, usize, bool);

/// A table, whether it counts one user only, a status, and how many there may be.
pub(crate) type Limited = (usize, bool, usize, usize);

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Claim { c: usize },
    Release { c: usize },
    Append(Written),
    Read { c: usize, after: u64, max_bytes: usize },
    Load { c: usize, messages: usize, max_bytes: usize },
    Get { table: usize, id: usize },
    List { table: usize, by_user: bool, c: Option<usize>, status: Option<usize>, page: (usize, usize) },
    Due { conversations: bool, unowned: bool, by: i64, page: (usize, usize) },
    Trim { c: usize, first: u64, last: u64 },
    Delete { c: usize },
    Send { c: usize, mail: usize },
    Mail { c: usize },
    Forget { mail: usize },
    PutItem { id: usize, version: u64, n: i64 },
    RemoveItem { id: usize },
    ListItems { by_user: bool, due_by: Option<i64>, page: (usize, usize) },
    Settle,
    Reopen,
}

#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) c: usize,
    /// Whether the fence is one of before.
    pub(crate) stale: bool,
    /// How far the expected seq is off.
    pub(crate) off: i64,
    pub(crate) sizes: Vec<usize>,
    pub(crate) changes: Vec<Changed>,
    pub(crate) replies: Vec<usize>,
    pub(crate) limits: Vec<Limited>,
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let c = 0..3_usize;
    let page = (0..5_usize, 0..200_usize);
    prop_oneof![
        3 => c.clone().prop_map(|c| Step::Claim { c }),
        1 => c.clone().prop_map(|c| Step::Release { c }),
        24 => written().prop_map(Step::Append),
        6 => (c.clone(), 0..60_u64, 0..400_usize)
            .prop_map(|(c, after, max_bytes)| Step::Read { c, after, max_bytes }),
        4 => (c.clone(), 0..4_usize, 0..200_usize)
            .prop_map(|(c, messages, max_bytes)| Step::Load { c, messages, max_bytes }),
        1 => (0..3_usize, 0..4_usize).prop_map(|(table, id)| Step::Get { table, id }),
        2 => (0..3_usize, any::<bool>(), prop::option::of(c.clone()), prop::option::of(0..3_usize), page.clone())
            .prop_map(|(table, by_user, c, status, page)| Step::List { table, by_user, c, status, page }),
        2 => (any::<bool>(), any::<bool>(), 0..20_i64, page.clone())
            .prop_map(|(conversations, unowned, by, page)| Step::Due { conversations, unowned, by, page }),
        2 => (c.clone(), 0..40_u64, 0..15_u64)
            .prop_map(|(c, first, more)| Step::Trim { c, first, last: first + more }),
        1 => c.clone().prop_map(|c| Step::Delete { c }),
        2 => (c.clone(), 0..4_usize).prop_map(|(c, mail)| Step::Send { c, mail }),
        1 => c.prop_map(|c| Step::Mail { c }),
        1 => (0..4_usize).prop_map(|mail| Step::Forget { mail }),
        4 => (0..4_usize, prop_oneof![3 => Just(0_u64), 1 => 1..4_u64], 0..20_i64)
            .prop_map(|(id, version, n)| Step::PutItem { id, version, n }),
        1 => (0..4_usize).prop_map(|id| Step::RemoveItem { id }),
        2 => (any::<bool>(), prop::option::of(0..20_i64), page)
            .prop_map(|(by_user, due_by, page)| Step::ListItems { by_user, due_by, page }),
        2 => Just(Step::Settle),
        1 => Just(Step::Reopen),
    ]
}

fn written() -> impl Strategy<Value = Written> {
    let mostly_right = prop_oneof![12 => Just(0_i64), 1 => Just(1), 1 => Just(-1)];
    let parts = (
        0..3_usize,
        prop::bool::weighted(0.05),
        mostly_right,
        prop::collection::vec(0..90_usize, 0..5),
        prop::collection::vec((0..3_usize, 0..4_usize, 0..4_usize, any::<bool>()), 0..3),
        prop::collection::vec(0..4_usize, 0..2),
        prop::collection::vec((0..3_usize, any::<bool>(), 0..3_usize, 0..4_usize), 0..2),
    );
    parts.prop_map(|(c, stale, off, sizes, changes, replies, limits)| Written {
        c,
        stale,
        off,
        sizes,
        changes,
        replies,
        limits,
    })
}
