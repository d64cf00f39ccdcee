//! Checkpoints of real folders: taken, restored, compared, and taken while the process dies.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod bucket;
mod costs;
#[cfg(feature = "fault-points")]
mod crash;
mod diffs;
mod folders;
mod hostile;
mod retention;
mod trees;
