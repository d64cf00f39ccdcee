//! What an error of Convex means: whether a function had an effect, and what to do about it.

use serde::Deserialize;

use crate::contract::{AppendError, StoreError};
use crate::items::PutError;
use crate::page;

/// Why a function has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// It had no effect, because it refused what was asked.
    Refused(Refusal),
    /// It had no effect, and may be tried again.
    NotRun(String),
    /// It had no effect. Trying again will not help.
    Broken(String),
    /// It may have had its effect.
    Unknown(String),
}

/// What `refuse` in `functions.ts` throws.
#[derive(Debug, Deserialize)]
pub(super) struct Refusal {
    refused: String,
    value: String,
}

impl Refusal {
    fn text(&self) -> String {
        format!("a Convex function refused: {} {}", self.refused, self.value)
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) | Failure::Unknown(why) => StoreError::Unavailable(why),
            Failure::Broken(why) => StoreError::Broken(why),
            Failure::Refused(refusal) => StoreError::Broken(refusal.text()),
        }
    }
}

impl From<Failure> for AppendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) => AppendError::Unavailable(why),
            Failure::Broken(why) => AppendError::Broken(why),
            Failure::Unknown(why) => AppendError::Unconfirmed(why),
            Failure::Refused(refusal) => match (refusal.refused.as_str(), refusal.value.parse()) {
                ("stateless", _) => page::no_state_to_keep(&refusal.value),
                ("over", Ok(limit)) => AppendError::OverLimit { limit },
                _ => AppendError::Broken(refusal.text()),
            },
        }
    }
}

impl From<Failure> for PutError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotRun(why) | Failure::Broken(why) => PutError::Unavailable(why),
            Failure::Unknown(why) => PutError::Unconfirmed(why),
            Failure::Refused(refusal) => PutError::Unavailable(refusal.text()),
        }
    }
}
