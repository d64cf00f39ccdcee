//! Tests the promises of Outlast on the real process.
//!
//! The server is a black box here: it is started, used over HTTP, killed and restarted. What clients recorded is
//! compared with what the server returns afterwards, byte for byte. The fold over the log is implemented a second
//! time on purpose, because the server's own would agree with itself.

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
