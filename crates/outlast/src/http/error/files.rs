//! Problems with files that people put into a workspace.

use axum::http::StatusCode;

use super::Problem;
use crate::http::problem::ProblemCode;

impl Problem {
    /// The files of the conversation would be larger than the operator allows.
    pub(super) fn no_room(detail: &str) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ProblemCode::TooLarge, detail).of_limit("sandbox.disk")
    }

    pub(crate) fn too_many_uploads() -> Problem {
        let detail = "the server is receiving as many files as it can hold; try again later";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::LimitReached, detail)
    }
}
