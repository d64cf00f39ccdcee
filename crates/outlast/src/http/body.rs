//! Extractors that check what clients send: JSON bodies, ids in paths, and request ids.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use http_body_util::{BodyExt, Limited};
use outlast_core::RequestId;
use serde::de::{DeserializeOwned, Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use tokio::time::timeout;
use utoipa::ToSchema;

use super::App;
use super::error::Problem;

/// A body must have arrived within this time, so that a slow client does not hold a connection.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a request id, which is stored with every event of its generation.
pub(crate) const REQUEST_ID_BYTES_MAX: usize = 200;
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// A JSON body. Bad JSON is 400; an unknown field or a wrong type is 422 and named.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        check_key(request.headers())?;
        let bytes = read(request, app.0.body_bytes).await?;
        // An empty body counts as an empty object, because all fields may be optional.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        parse(&bytes).map(Json)
    }
}

pub(crate) async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let body = timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect()).await;
    match body.map_err(|_| Problem::broken_off("the body took too long to arrive"))? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::too_large(limit)),
        Err(_) => Err(Problem::broken_off("the body was cut off")),
    }
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde would accept a list in place of an object.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::invalid("", "must be an object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed: T =
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| explain(bytes, error))?;
    deserializer.end().map_err(|error| not_json(&error))?;
    Ok(parsed)
}

/// Why a body cannot be read, in terms of the body.
fn explain(bytes: &[u8], error: serde_path_to_error::Error<serde_json::Error>) -> Problem {
    // Reading stops at the first field that is wrong, but what follows may not even be JSON.
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        return not_json(&error);
    }
    let path = error.path().to_string();
    let (path, inner) = (path.trim_matches('.'), error.into_inner());
    let detail = inner.to_string();
    // Twice what any field may have is more than serde_json reads.
    if detail.starts_with("recursion limit") {
        return Problem::invalid(path, super::free::too_deep());
    }
    // Serde reads a list as an object, field by field, and stumbles over what is left of it.
    let is_no_object = detail.contains("expected struct ") || detail.contains(" tagged enum ");
    if is_no_object || detail.starts_with("trailing characters") {
        return Problem::invalid(path, "must be an object");
    }
    if inner.classify() != Category::Data {
        return not_json(&inner); // a number or an escape that no value can hold
    }
    for (wrong, words) in [("missing field `", "is missing"), ("duplicate field `", "is given twice")] {
        if let Some(field) = detail.strip_prefix(wrong).and_then(|rest| rest.split('`').next()) {
            let path = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
            return Problem::invalid(&path, words);
        }
    }
    Problem::invalid(path, detail)
}

pub(crate) fn not_json(error: &serde_json::Error) -> Problem {
    Problem::bad_json(format!("the body is not valid JSON: {error}"))
}

/// The id in a path. One that is not UTF-8 is not found.
pub(crate) struct Id<T>(pub(crate) T);

impl<T: for<'a> From<&'a str>> FromRequestParts<App> for Id<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Id<T>, Problem> {
        let Path(id) =
            Path::<String>::from_request_parts(parts, app).await.map_err(|_| Problem::not_found())?;
        Ok(Id(T::from(&id)))
    }
}

/// Two ids in a path.
pub(crate) struct TwoIds<T, U>(pub(crate) T, pub(crate) U);

impl<T: for<'a> From<&'a str>, U: for<'a> From<&'a str>> FromRequestParts<App> for TwoIds<T, U> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<TwoIds<T, U>, Problem> {
        let path = Path::<(String, String)>::from_request_parts(parts, app).await;
        let Path((first, second)) = path.map_err(|_| Problem::not_found())?;
        Ok(TwoIds(T::from(&first), U::from(&second)))
    }
}

/// The body of a request that needs nothing but may carry a request id, because every POST may. Where doing
/// something twice is harmless, the id is checked and not kept.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct NoFields {
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// The client's name for a request.
#[derive(Clone, Debug, ToSchema)]
#[schema(as = IdempotencyKey, value_type = String, min_length = 1, max_length = 200)]
pub(crate) struct RequestName(String);

impl RequestName {
    pub(crate) fn new(id: String) -> Result<RequestName, Problem> {
        if fits(&id) { Ok(RequestName(id)) } else { Err(Problem::invalid("requestId", WRONG_LENGTH)) }
    }
}

impl<'de> Deserialize<'de> for RequestName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RequestName, D::Error> {
        let id = String::deserialize(deserializer)?;
        if fits(&id) { Ok(RequestName(id)) } else { Err(D::Error::custom(WRONG_LENGTH)) }
    }
}

const WRONG_LENGTH: &str = "must have 1 to 200 bytes";

fn fits(id: &str) -> bool {
    (1..=REQUEST_ID_BYTES_MAX).contains(&id.len())
}

/// The request id: in the body, or in the header that means the same.
pub(crate) fn request_id(headers: &HeaderMap, body: Option<RequestName>) -> Option<RequestId> {
    let header = headers.get(IDEMPOTENCY_KEY).and_then(|id| id.to_str().ok());
    body.as_ref().map(|RequestName(id)| id.as_str()).or(header).map(RequestId::from)
}

/// Refuses a header that cannot be a request id, whether or not the handler keeps it.
fn check_key(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(id) = headers.get(IDEMPOTENCY_KEY) else { return Ok(()) };
    let id = id.to_str().unwrap_or_default();
    if fits(id) && id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    let detail = format!("must have 1 to {REQUEST_ID_BYTES_MAX} visible ASCII characters");
    Err(Problem::invalid("Idempotency-Key", detail))
}
