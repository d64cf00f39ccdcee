//! What a store's failures are to a client.

use axum::http::StatusCode;
use outlast_store::StoreError;

use super::Problem;
use crate::http::problem::ProblemCode;

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let detail = error.to_string();
        match error {
            StoreError::Unavailable(_) => unavailable(&detail),
            StoreError::Broken(_) => broken(&detail),
        }
    }
}

pub(super) fn unavailable(detail: &str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::StoreUnavailable, detail)
}

/// The details are logged, because a client can do nothing with them.
pub(super) fn broken(detail: &str) -> Problem {
    tracing::error!(detail, "stored data cannot be read");
    let told = "the server cannot read its stored data; its log says why";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ProblemCode::StoreBroken, told)
}
