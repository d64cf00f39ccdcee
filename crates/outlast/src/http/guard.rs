//! Keeps other people's web pages away from a server that has no keys.
//!
//! A page of any origin can make a browser send requests to this machine. It cannot hide where it comes
//! from: browsers say so in `Origin`, and a name that was bent to point here stands in `Host`.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::error::Problem;

pub(crate) async fn same_origin(State(app): State<App>, request: Request, next: Next) -> Response {
    if app.0.insecure || is_ours(request.uri().authority().map(Authority::as_str), request.headers()) {
        return next.run(request).await;
    }
    Problem::foreign_origin().into_response()
}

/// Headers that every answer carries.
pub(crate) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The name asked for stands in `Host`, or in the address itself where HTTP/2 has put it.
fn is_ours(authority: Option<&str>, headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let Some(host) = text(header::HOST).or(authority).filter(|host| is_local(host)) else {
        return false;
    };
    match text(header::ORIGIN) {
        None => true,
        Some(origin) => origin.split_once("://").is_some_and(|(_, origin)| origin == host),
    }
}

/// Whether a host, with or without a port, is this machine by name or address.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(pairs: &[(header::HeaderName, &str)]) -> bool {
        is_ours(None, &pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect())
    }

    #[test]
    fn pages_of_other_origins_are_not_ours() {
        assert!(ours(&[(header::HOST, "127.0.0.1:8787")]));
        assert!(ours(&[(header::HOST, "[::1]:8787"), (header::ORIGIN, "http://[::1]:8787")]));
        assert!(ours(&[(header::HOST, "localhost:8787"), (header::ORIGIN, "http://localhost:8787")]));
        assert!(!ours(&[(header::HOST, "localhost:8787"), (header::ORIGIN, "http://evil.example")]));
        assert!(!ours(&[(header::HOST, "localhost:8787"), (header::ORIGIN, "null")]));
        assert!(!ours(&[(header::HOST, "rebound.example:8787")]));
        assert!(!ours(&[]) && is_ours(Some("localhost:8787"), &HeaderMap::new()));
    }
}
