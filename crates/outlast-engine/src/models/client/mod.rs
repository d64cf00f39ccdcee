//! Shared by all upstreams that stream over HTTP. Each vendor's dialect, which interprets its events, has a file
//! next to this folder.

mod body;
mod calls;
mod endpoint;
mod failures;
mod pool;
mod reading;
mod settings;

pub(super) use calls::{Calls, Delta};
pub(super) use endpoint::Endpoint;
pub(super) use failures::{broke_off, invalid, transient};
pub(super) use reading::{Dialect, Out};
pub use settings::{Secret, UpstreamSettings};

#[cfg(test)]
pub(super) use {
    body::Broken,
    calls::{CALL_BYTES_MAX, CALLS_MAX},
    reading::{Form, Reading},
};
