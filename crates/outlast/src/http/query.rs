//! Query parameters. A parameter without a value counts as absent.

use std::fmt;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::{DeserializeOwned, Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::Problem;

/// A query, parsed into a struct. A wrong value is 422, and the problem names it.
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

/// The fields of the parameter `metadata`, each as `metadata[field]=value`: OpenAPI's `deepObject`.
pub(crate) struct Fields(pub(crate) Vec<(String, String)>);

impl FromRequestParts<App> for Fields {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Fields, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        let given = form_urlencoded::parse(query.as_bytes()).filter(|(_, value)| !value.is_empty());
        let mut fields = Vec::new();
        for (name, value) in given {
            let Some(rest) = name.strip_prefix("metadata") else { continue };
            match rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(field) => fields.push((field.to_owned(), value.into_owned())),
                None => {
                    return Err(Problem::invalid("metadata", "must name a field: `metadata[field]=value`"));
                }
            }
        }
        Ok(Fields(fields))
    }
}

/// A position or a count, in a query or in a body. In JSON, `2` and `2.0` are the same number.
#[derive(Clone, Copy, Debug, PartialEq, ToSchema)]
#[schema(value_type = u64)]
pub(crate) struct Whole(pub(crate) u64);

impl Whole {
    pub(crate) fn read(text: &str) -> Option<Whole> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = text.parse::<i64>().ok().filter(|_| digits)?;
        u64::try_from(number).ok().map(Whole)
    }
}

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Whole, D::Error> {
        deserializer.deserialize_any(ReadWhole)
    }
}

struct ReadWhole;

impl Visitor<'_> for ReadWhole {
    type Value = Whole;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", i64::MAX) // what the document calls int64
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
        match i64::try_from(number) {
            Ok(_) => Ok(Whole(number)),
            Err(_) => Err(E::invalid_value(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
        // Below 2^53, where every whole number is exact.
        if number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number) {
            return Ok(Whole(number as u64));
        }
        Err(E::invalid_value(Unexpected::Float(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
        Whole::read(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// The number of entries to return: `default` if the client does not say, and at most `most`.
pub(crate) fn limit(asked: Option<Whole>, default: usize, most: usize) -> Result<usize, Problem> {
    match asked {
        Some(Whole(0)) => Err(Problem::invalid("limit", "must be at least 1")),
        Some(Whole(limit)) => Ok(usize::try_from(limit).unwrap_or(most).min(most)),
        None => Ok(default),
    }
}

/// The default number of entries on a page: about a screen; the maximum follows.
const PAGE_DEFAULT: usize = 50;
const PAGE_MAX: usize = 200;

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
