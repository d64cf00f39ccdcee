//! What an error of Redis means: whether a script ran, and what to do about it.

use redis::RedisError;

use crate::contract::{AppendError, StoreError};
use crate::items::PutError;

/// Why a script has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// It did not run, and may be tried again.
    NotRun(String),
    /// It did not run, or found data that it cannot use. Trying again will not help.
    Broken(String),
    /// It may have run.
    Unknown(String),
}

/// With these replies Redis refuses a script before it begins.
const REFUSALS: [&str; 15] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "WRONGPASS",
];

impl Failure {
    pub(super) fn of(error: &RedisError) -> Failure {
        let why = reason(error);
        match error.code() {
            Some(code) if REFUSALS.contains(&code) => Failure::NotRun(why),
            // Any other reply is a script's own error. A script checks before it writes, so this is a bug, and
            // nobody knows how far the script came.
            Some(_) | None => Failure::Unknown(why),
        }
    }
}

/// Whether another connection, perhaps to another server, may work where this one did not.
pub(super) fn needs_reconnect(error: &RedisError) -> bool {
    match error.code() {
        Some(code) => ["CLUSTERDOWN", "LOADING", "MASTERDOWN", "MOVED", "READONLY"].contains(&code),
        None => true,
    }
}

/// The words of the server or of the library. Neither repeats the URL, which may hold a password.
pub(super) fn reason(error: &RedisError) -> String {
    if error.is_timeout() {
        return "Redis does not respond".to_owned();
    }
    error.to_string()
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) | Failure::Unknown(why) => StoreError::Unavailable(why),
            Failure::Broken(why) => StoreError::Broken(why),
        }
    }
}

impl From<Failure> for AppendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) | Failure::Broken(why) => AppendError::Unavailable(why),
            Failure::Unknown(why) => AppendError::Unconfirmed(why),
        }
    }
}

impl From<Failure> for PutError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) | Failure::Broken(why) => PutError::Unavailable(why),
            Failure::Unknown(why) => PutError::Unconfirmed(why),
        }
    }
}
