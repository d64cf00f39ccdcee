//! Serves the web app, which is part of the binary.

use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::error::Problem;

/// Paths and contents of the app's files. Empty if the app was not built before the server.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/app.rs"));

/// The page loads nothing from other origins and talks to none, runs only its own scripts and styles, and cannot be
/// framed. Images may also be inline (`data:`).
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

/// For files with a hash in their name, which never change.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Handles every path that is not an API route: a file of the app, or the page for the app's own routes.
pub(crate) async fn file(method: Method, uri: Uri) -> Response {
    let path = uri.path().trim_start_matches('/');
    let found = find(path).or_else(|| is_page(path).then(|| find("index.html")).flatten());
    if (found.is_some() || is_page(path)) && method != Method::GET && method != Method::HEAD {
        let allow = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allow, Problem::wrong_method()).into_response();
    }
    match found {
        Some((name, bytes)) => respond(name, bytes),
        None if is_page(path) && FILES.is_empty() => not_built(),
        None => (StatusCode::NOT_FOUND, Problem::not_found()).into_response(),
    }
}

fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    FILES.iter().find(|(name, _)| *name == path).copied()
}

/// The routes of the app itself: the start page, the operator's page, a conversation, an inspected generation, a decision.
fn is_page(path: &str) -> bool {
    let pages = ["c/", "inspect/", "approve/"];
    path.is_empty() || path == "operate" || pages.iter().any(|page| path.starts_with(page))
}

fn respond(name: &'static str, bytes: &'static [u8]) -> Response {
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type(name)));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    let kept = if name.starts_with("assets/") { IMMUTABLE } else { "no-cache" };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    response
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "webmanifest" => "application/manifest+json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

fn not_built() -> Response {
    let text = "This server was built without the web app. `make run` builds both.\nThe API works without it; see /openapi.json\n";
    (StatusCode::NOT_FOUND, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_apps_own_paths_show_the_page() {
        assert!(is_page("") && is_page("c/conv_1") && is_page("inspect/gen_1") && is_page("operate"));
        assert!(!is_page("v1/nothing") && !is_page("wp-login.php") && !is_page("assets/gone.js"));
    }

    #[tokio::test]
    async fn the_app_is_read_only() {
        for path in ["/", "/c/conv_1", "/inspect/gen_1"] {
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
                let response = file(method.clone(), Uri::from_static(path)).await;
                assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                assert_eq!(response.headers()[header::ALLOW], "GET, HEAD");
            }
            let read = file(Method::HEAD, Uri::from_static(path)).await;
            assert_ne!(read.status(), StatusCode::METHOD_NOT_ALLOWED);
        }
        let nowhere = file(Method::POST, Uri::from_static("/v1/nowhere")).await;
        assert_eq!(nowhere.status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_page_talks_only_to_its_own_server() {
        for word in ["unsafe", "blob:", "ws:", "wss:", "http", "*"] {
            assert!(!POLICY.contains(word), "{word}");
        }
    }

    #[test]
    fn every_file_of_the_app_has_a_known_content_type() {
        for (name, _) in FILES.iter().filter(|(name, _)| !name.ends_with(".map")) {
            assert_ne!(content_type(name), "application/octet-stream", "{name}");
        }
    }
}
