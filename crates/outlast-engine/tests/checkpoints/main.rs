//! Checkpoints of real folders: taken, restored, compared, and taken while the process dies.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

#[cfg(feature = "fault-points")]
mod crash;
mod folders;
mod retention;
mod trees;
