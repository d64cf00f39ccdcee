//! Problems with the caller: no valid credential, not allowed, too many requests.

use std::time::Duration;

use axum::http::StatusCode;

use super::Problem;
use crate::auth::{AuthError, Scope};
use crate::http::problem::ProblemCode;

impl Problem {
    /// For the audit log.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// No credential, or one that is not valid.
    pub(crate) fn unauthenticated(detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, ProblemCode::Unauthenticated, detail)
    }

    pub(crate) fn through_proxy() -> Problem {
        let detail = "the request came through a proxy, and this server has no API keys: create one with \
                      `outlast keys create`, or pass --insecure";
        Problem::unauthenticated(detail)
    }

    /// The credential does not allow this.
    pub(crate) fn forbidden(scope: Scope) -> Problem {
        let detail = format!("this needs the scope {}, which the key does not have", scope.name());
        Problem::new(StatusCode::FORBIDDEN, ProblemCode::Forbidden, detail)
    }

    /// The caller has as much as this setting allows.
    pub(crate) fn limited(limit: &'static str, detail: impl AsRef<str>) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, ProblemCode::LimitReached, detail).of_limit(limit)
    }

    /// Says when to try again.
    pub(crate) fn retry_after(self, wait: Duration) -> Problem {
        Problem { retry_after: Some(wait.as_secs() + 1), ..self }
    }

    /// Something was done more often than this setting allows.
    pub(crate) fn too_often(limit: &'static str, retry_after: u64) -> Problem {
        let detail =
            format!("too many requests in a short time: {limit} is reached; retry after {retry_after} s");
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, ProblemCode::LimitReached, detail);
        Problem { retry_after: Some(retry_after), ..problem.of_limit(limit) }
    }

    /// It is not this caller who did too much.
    pub(crate) fn of_everybody(self) -> Problem {
        Problem { status: StatusCode::SERVICE_UNAVAILABLE, ..self }
    }
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Problem {
        match error {
            AuthError::Missing | AuthError::Invalid => Problem::unauthenticated(error.to_string()),
            AuthError::Keys(error) => {
                tracing::warn!(%error, "cannot check tokens");
                let detail = "the public keys of the token's issuer cannot be fetched; try again";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, ProblemCode::IssuerUnavailable, detail)
            }
            AuthError::Store(error) => error.into(),
        }
    }
}
