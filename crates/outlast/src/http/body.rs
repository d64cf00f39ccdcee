//! What clients send, checked: bodies, query parameters and headers.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use http_body_util::{BodyExt, Limited};
use outlast_core::RequestId;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::App;
use super::error::Problem;

/// A body must have arrived in this time.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// A request's name may be this long.
const REQUEST_ID_BYTES_MAX: usize = 200;

/// A JSON body. Bad JSON is 400; an unknown field or a wrong type is 422 and named.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Json<T>, Problem> {
        let bytes = read(request, app.0.body_bytes).await?;
        // An empty body is an empty object: every field of it may be optional.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"{}") } else { bytes };
        parse(&bytes).map(Json)
    }
}

async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let body = timeout(BODY_TIMEOUT, Limited::new(request.into_body(), limit).collect()).await;
    match body.map_err(|_| Problem::broken_off("the body took too long"))? {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Problem::too_large(limit)),
        Err(_) => Err(Problem::broken_off("the body broke off")),
    }
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // Serde would take a list for an object, field by field.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::invalid("", "must be an object"));
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed: T = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match inner.classify() {
            serde_json::error::Category::Data => Problem::invalid(path.trim_matches('.'), inner),
            _ => Problem::bad_json(format!("the body is not JSON: {inner}")),
        }
    })?;
    deserializer.end().map_err(|error| Problem::bad_json(format!("the body is not JSON: {error}")))?;
    Ok(parsed)
}

/// The id in a path. One that is not text names nothing.
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

/// The query of a request.
pub(crate) struct Params(HashMap<String, String>);

impl FromRequestParts<App> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Params, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Params(form_urlencoded::parse(query.as_bytes()).into_owned().collect()))
    }
}

impl Params {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem> {
        let parse = |value: &str| {
            value.parse().map_err(|_| Problem::invalid(name, format!("{value:?} is not a whole number")))
        };
        self.text(name).map(parse).transpose()
    }

    /// How many of a list: `usual` if nothing is said, and never more than `most`.
    pub(crate) fn limit(&self, usual: usize, most: usize) -> Result<usize, Problem> {
        match self.number::<usize>("limit")? {
            Some(0) => Err(Problem::invalid("limit", "must be at least 1")),
            Some(limit) => Ok(limit.min(most)),
            None => Ok(usual),
        }
    }
}

/// The name of a request: in the body, or in the header that means the same.
pub(crate) fn request_id(headers: &HeaderMap, body: Option<String>) -> Result<Option<RequestId>, Problem> {
    let header = match headers.get("idempotency-key") {
        Some(value) => {
            let text =
                value.to_str().map_err(|_| Problem::invalid("Idempotency-Key", "must be plain text"))?;
            Some(text.to_owned())
        }
        None => None,
    };
    match body.or(header) {
        Some(id) if id.is_empty() || id.len() > REQUEST_ID_BYTES_MAX => {
            let detail = format!("must have 1 to {REQUEST_ID_BYTES_MAX} bytes");
            Err(Problem::invalid("requestId", detail))
        }
        id => Ok(id.map(RequestId::from)),
    }
}
