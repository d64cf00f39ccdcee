//! Named points where a test can kill the process, to prove that a crash there loses nothing.
//!
//! Without the feature `fault-points` a point compiles to nothing.

/// The points that a server reaches, in the order in which a normal run reaches them.
pub const POINTS: &[&str] = &[
    "open.epoch",
    "open.scanned",
    "append.received",
    "append.begun",
    "append.inserted",
    "append.before_commit",
    "append.after_commit",
    "append.answered_first",
    "settle.before",
    "settle.copied",
    "settle.committed",
    "truncate.committed",
    "delete.marked",
    "delete.step",
];

/// Reached by `outlast migrate` alone, after every conversation.
pub const MIGRATE: &str = "migrate.copied";

/// Kills the process immediately, as `kill -9` would, if `OUTLAST_FAULT` is `name`, or if it is `name:N`
/// and this point is reached for the N-th time.
#[cfg(feature = "fault-points")]
pub fn point(name: &'static str) {
    armed::point(name);
}

/// Does nothing: this build has no fault points.
#[cfg(not(feature = "fault-points"))]
#[inline(always)]
pub fn point(_name: &'static str) {}

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Fault {
        name: String,
        at: u64,
        hits: AtomicU64,
    }

    static FAULT: LazyLock<Option<Fault>> = LazyLock::new(|| {
        let wanted = std::env::var("OUTLAST_FAULT").ok()?;
        let (name, at) = match wanted.split_once(':') {
            Some((name, at)) => (name, at.parse().expect("OUTLAST_FAULT is name or name:N")),
            None => (wanted.as_str(), 1),
        };
        Some(Fault { name: name.to_owned(), at, hits: AtomicU64::new(0) })
    });

    pub(super) fn point(name: &'static str) {
        let Some(fault) = FAULT.as_ref().filter(|fault| fault.name == name) else { return };
        if fault.hits.fetch_add(1, Ordering::SeqCst) + 1 == fault.at {
            // No destructor runs and nothing is flushed; only what the operating system already has survives.
            std::process::abort();
        }
    }
}
