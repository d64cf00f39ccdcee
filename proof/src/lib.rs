//! Tries the promises of Outlast on the real process.
//!
//! Nothing here knows the server from inside: it is started, talked to over HTTP, killed and started
//! again, and what clients recorded is compared with what the server says afterwards, byte for byte. The
//! fold over the log is written anew here on purpose; the server's own would agree with itself.

pub mod wait;

pub mod canary;

mod binaries;
mod process;

pub mod server;
pub mod upstream;

pub mod api;
pub mod script;
pub mod sse;

pub mod reader;
pub mod stored;

pub mod check;
pub mod transcript;
pub mod violation;

pub mod visitor;
pub mod worker;

pub mod crash;
pub mod faults;
pub mod torture;
