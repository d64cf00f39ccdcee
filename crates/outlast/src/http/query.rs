//! Query parameters. A parameter without a value counts as absent.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::Problem;

/// A query, read into a struct. A wrong value is 422 and named.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<App> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Query<T>, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let given = form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty());
        let given = form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
        let deserializer = serde_urlencoded::Deserializer::new(form_urlencoded::parse(given.as_bytes()));
        let parsed = serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            Problem::invalid(path.trim_matches('.'), error.into_inner())
        })?;
        Ok(Query(parsed))
    }
}

/// A whole number. One that is too large for us counts as the largest: it is past every end and above every
/// limit all the same.
#[derive(Clone, Copy, Debug, PartialEq, ToSchema)]
#[schema(value_type = u64)]
pub(crate) struct Whole(pub(crate) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(D::Error::custom(format!("{text:?} is not a whole number")));
        }
        Ok(Whole(text.parse().unwrap_or(u64::MAX)))
    }
}

/// How many of a list: `default` if the client does not say, and never more than `most`.
pub(crate) fn limit(asked: Option<Whole>, default: usize, most: usize) -> Result<usize, Problem> {
    match asked {
        Some(Whole(0)) => Err(Problem::invalid("limit", "must be at least 1")),
        Some(Whole(limit)) => Ok(usize::try_from(limit).unwrap_or(most).min(most)),
        None => Ok(default),
    }
}

/// Entries of a list: a screenful by default, and no more than a client can want at once.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PageQuery {
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// At most this many; more than 200 means 200.
    #[param(value_type = Option<u64>, minimum = 1, default = 50)]
    limit: Option<Whole>,
}

impl PageQuery {
    pub(crate) fn paging(self) -> Result<outlast_engine::Paging, Problem> {
        let limit = limit(self.limit, PAGE_DEFAULT, PAGE_MAX)?;
        Ok(outlast_engine::Paging { cursor: self.cursor, limit })
    }
}
