//! Tools that do not run in the conversation's sandbox: HTTP tools, MCP servers and sub-agents.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

mod delegations;
mod fake_mcp;
mod http;
mod mcp;
