//! Refuses requests from web pages of other origins.
//!
//! Any web page can make a browser send requests to this server, from inside the user's network. It cannot hide
//! its origin: browsers send `Origin` and `Sec-Fetch-Site`, and if a page uses DNS to point its own name at this
//! machine, that name is in `Host`. All three are checked on every request, WebSocket upgrades included, and no
//! setting turns that off. Programs other than browsers send only `Host`.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::App;
use super::error::Problem;
use super::hosts::{Host, Hosts};

/// Set by browsers on requests to HTTPS and to this machine; pages cannot change them.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// A refusal repeats at most this much of a header.
const ECHO_CHARS: usize = 100;

pub(crate) async fn same_origin(State(app): State<App>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match check(&app.0.hosts, &parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(problem) => problem.into_response(),
    }
}

/// Headers that every response carries.
pub(crate) async fn headers(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    // No page of another origin may embed a response or keep a reference to a window of the web app.
    let same_origin = HeaderValue::from_static("same-origin");
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same_origin.clone());
    headers.insert(HeaderName::from_static("cross-origin-opener-policy"), same_origin);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn check(hosts: &Hosts, request: &Parts) -> Result<(), Problem> {
    let host = host(request)?;
    let Some(host) = Host::parse(host).filter(|host| hosts.contains(&host.name)) else {
        let detail = format!(
            "{} is not an allowed host name; if it belongs to this server, add it to server.allowed_hosts",
            echo(host)
        );
        return Err(Problem::foreign_origin(detail));
    };
    if let Some(origin) = single(&request.headers, &header::ORIGIN)?
        && !is_origin_of(origin, &host)
    {
        let detail = format!("the origin {} does not match the Host header", echo(origin));
        return Err(Problem::foreign_origin(detail));
    }
    match single(&request.headers, &SEC_FETCH_SITE)? {
        // `none`: a person typed the address or opened a bookmark.
        None | Some("same-origin" | "none") => Ok(()),
        // Another site may link to the web app. `same-site` is not trusted either: it includes every port of
        // this machine and every sibling domain.
        Some(_) if is_page_visit(request) => Ok(()),
        Some(site) => {
            let detail = format!("requests from a {} page are refused", echo(site));
            Err(Problem::foreign_origin(detail))
        }
    }
}

/// The requested host. It is in `Host`; if the request line has an absolute URL, that must name the same host.
fn host(request: &Parts) -> Result<&str, Problem> {
    let header = single(&request.headers, &header::HOST)?;
    let line = request.uri.authority().map(|authority| authority.as_str());
    match (header, line) {
        (Some(header), Some(line)) if header != line => {
            Err(Problem::bad_header("Host and the request line name different servers"))
        }
        (Some(host), _) | (None, Some(host)) => Ok(host),
        (None, None) => Err(Problem::bad_header("the Host header is missing")),
    }
}

/// A header that must not be given twice, because a proxy and this server could use different ones.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Problem::bad_header(format!("the header {name} is given twice")));
    }
    first.map(HeaderValue::to_str).transpose().map_err(|_| {
        let detail = format!("the header {name} has invalid characters");
        Problem::bad_header(detail)
    })
}

/// Whether a page of this origin was served under this host. Behind a TLS proxy the scheme differs, so it only
/// determines the default port.
fn is_origin_of(origin: &str, host: &Host) -> bool {
    let Some((scheme, rest)) = origin.split_once("://") else { return false };
    let usual = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    Host::parse(rest).is_some_and(|origin| {
        origin.name == host.name && origin.port.unwrap_or(usual) == host.port.unwrap_or(usual)
    })
}

/// Whether this is a visit of the web app by a link, not a use of the API.
fn is_page_visit(request: &Parts) -> bool {
    let navigates = request.headers.get(SEC_FETCH_MODE).is_some_and(|mode| mode == "navigate");
    let reads = request.method == Method::GET || request.method == Method::HEAD;
    navigates && reads && !request.uri.path().starts_with("/v1")
}

/// Client input, shortened and escaped.
fn echo(text: &str) -> String {
    format!("{:?}", text.chars().take(ECHO_CHARS).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: (&str, &str) = ("host", "localhost:8787");
    const PROXIED: (&str, &str) = ("host", "chat.example.com");

    /// The status of a refusal, or 200.
    fn ask(method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let hosts = Hosts::of("chat.example.com,*.team.example");
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        check(&hosts, &parts).map_or_else(|problem| problem.into_response().status().as_u16(), |()| 200)
    }

    #[test]
    fn the_origin_must_be_the_host() {
        for (host, origin, expected) in [
            ("localhost:8787", "http://localhost:8787", 200),
            ("localhost:8787", "http://LOCALHOST:8787", 200),
            ("[::1]:8787", "http://[::1]:8787", 200),
            ("localhost", "http://localhost", 200),
            ("localhost:80", "http://localhost", 200),
            ("chat.example.com", "https://chat.example.com", 200),
            ("chat.example.com:443", "https://chat.example.com", 200),
            ("chat.example.com:8443", "https://chat.example.com:8443", 200),
            ("a.team.example", "https://a.team.example", 200),
            ("localhost:8787", "http://localhost", 403),
            ("localhost:8787", "http://localhost:5173", 403),
            ("localhost:8787", "http://127.0.0.1:8787", 403),
            ("localhost:8787", "http://evil.example", 403),
            ("localhost:8787", "http://user@localhost:8787", 403),
            ("localhost:8787", "http://localhost:8787/", 403),
            ("localhost:8787", "http://localhost:8787.evil.example", 403),
            ("localhost:8787", "ftp://localhost:8787", 403),
            ("localhost:8787", "localhost:8787", 403),
            ("localhost:8787", "null", 403),
            ("localhost:8787", "", 403),
            ("chat.example.com", "https://evil.example", 403),
            ("chat.example.com", "https://chat.example.com:8443", 403),
            ("chat.example.com:443", "http://chat.example.com", 403),
            ("a.team.example", "https://b.team.example", 403),
        ] {
            for target in ["/", "/v1/conversations", "/v1/conversations/c/ws"] {
                let status = ask("GET", target, &[("host", host), ("origin", origin)]);
                assert_eq!(status, expected, "{target} of {host} from {origin}");
            }
        }
    }

    #[test]
    fn a_foreign_host_name_is_refused() {
        for host in
            ["rebound.example:8787", "example.com", "[::1].evil", "127.0.0.1.evil.com", "localhost.evil"]
        {
            assert_eq!(ask("GET", "/v1/conversations", &[("host", host)]), 403, "{host}");
        }
        for host in [OWN, PROXIED, ("host", "[::1]:8787")] {
            assert_eq!(ask("GET", "/v1/conversations", &[host]), 200, "{host:?}");
        }
    }

    #[test]
    fn headers_that_contradict_each_other_are_refused() {
        let origin = ("origin", "http://localhost:8787");
        assert_eq!(ask("GET", "/", &[OWN, OWN]), 400);
        assert_eq!(ask("GET", "/", &[OWN, PROXIED]), 400);
        assert_eq!(ask("GET", "/", &[OWN, origin, origin]), 400);
        assert_eq!(ask("GET", "/", &[OWN, origin, ("origin", "http://evil.example")]), 400);
        assert_eq!(
            ask("GET", "/", &[OWN, ("sec-fetch-site", "none"), ("sec-fetch-site", "cross-site")]),
            400
        );
        assert_eq!(ask("GET", "/", &[]), 400);
        assert_eq!(ask("GET", "http://localhost:8787/", &[OWN]), 200);
        assert_eq!(ask("GET", "http://evil.example/", &[OWN]), 400);
        assert_eq!(ask("GET", "http://evil.example/", &[]), 403);
    }

    #[test]
    fn another_site_may_link_to_the_web_app_and_use_nothing_else() {
        let api = "/v1/conversations";
        for (method, target, site, mode, expected) in [
            ("GET", api, "same-origin", "cors", 200),
            ("POST", api, "same-origin", "cors", 200),
            ("GET", api, "none", "navigate", 200),
            ("GET", api, "cross-site", "no-cors", 403),
            ("GET", api, "cross-site", "navigate", 403),
            ("GET", api, "same-site", "cors", 403),
            ("POST", api, "cross-site", "navigate", 403),
            ("POST", api, "same-site", "navigate", 403),
            ("DELETE", api, "cross-site", "cors", 403),
            ("GET", "/v1/conversations/c/ws", "cross-site", "websocket", 403),
            ("GET", "/v1/conversations/c/ws", "same-origin", "websocket", 200),
            ("GET", api, "something-new", "cors", 403),
            ("GET", "/c/conv_1", "cross-site", "navigate", 200),
            ("GET", "/", "same-site", "navigate", 200),
            ("POST", "/", "cross-site", "navigate", 403),
            ("GET", "/assets/app.js", "cross-site", "no-cors", 403),
        ] {
            for host in [OWN, PROXIED] {
                let headers = [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
                assert_eq!(ask(method, target, &headers), expected, "{method} {target} {site} {mode}");
            }
        }
    }
}
