//! Tests the promises of Outlast on the real process.
//!
//! The server is a black box here: it is started, used over HTTP, killed and restarted. What clients recorded is
//! compared with what the server returns afterwards, byte for byte. The fold over the log is implemented a second
//! time on purpose, because the server's own would agree with itself.

pub mod wait;

pub mod canary;

pub mod binaries;
mod process;
mod tools;

pub mod server;
pub mod upstream;

pub mod cluster;
mod wire;

pub mod agent;
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
pub mod instances;
pub mod torture;
