//! The address and headers of an upstream. They are checked when the settings are read, so that an invalid value
//! stops the start of the server instead of failing the first call.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::stream::StreamExt;
use outlast_core::Failure;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, StatusCode, Url};
use serde_json::Value;

use super::super::{Arrived, ModelStream};
use super::body::{Broken, Chunks, chunks};
use super::failures::{answered, broken, invalid, without};
use super::pool::{Pool, Proxies};
use super::reading::{Dialect, Form, Reading};
use super::settings::{Secret, UpstreamSettings};

/// How much of an error's body is read.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// Headers that the operator cannot set, because the request depends on them.
const OURS: &[HeaderName] =
    &[HOST, CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING, ACCEPT, ACCEPT_ENCODING, CONNECTION, UPGRADE];

#[derive(Clone)]
pub(in super::super) struct Endpoint {
    pool: Arc<Pool>,
    url: Url,
    headers: HeaderMap,
    secrets: Arc<[Secret]>,
}

impl Endpoint {
    /// `vendor` are the headers that the vendor requires. Headers from the settings replace them.
    pub(in super::super) fn new(
        path: &str,
        settings: &UpstreamSettings,
        vendor: Vec<(HeaderName, String)>,
    ) -> Result<Endpoint, String> {
        let url = url(settings.base_url.expose(), path)?;
        let mut headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("text/event-stream")),
            (USER_AGENT, HeaderValue::from_static(concat!("outlast/", env!("CARGO_PKG_VERSION")))),
        ]);
        for (name, value) in vendor {
            let value = sensitive(&value).ok_or("the key has characters that are not allowed in a header")?;
            headers.insert(name, value);
        }
        add_own(&mut headers, settings)?;
        // A proxy cannot reach an upstream on this machine, and it would see the key.
        let proxies = if is_local(&url) { Proxies::None } else { Proxies::Environment };
        let pool = Arc::new(Pool::new(proxies)?);
        Ok(Endpoint { pool, url, headers, secrets: settings.secrets().into() })
    }

    pub(in super::super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Sends a request when the stream is first polled, and reads its response. Keys that the upstream repeats in an
    /// error are removed.
    pub(in super::super) fn stream(
        &self,
        body: Result<Value, Failure>,
        dialect: impl Dialect,
    ) -> ModelStream {
        let (endpoint, secrets) = (self.clone(), self.secrets.clone());
        let opened = async move {
            match endpoint.open(body).await {
                Ok((chunks, form)) => Reading::new(chunks, form, dialect).boxed(),
                Err(failure) => futures_util::stream::iter([Err(failure)]).boxed(),
            }
        };
        let arriving = futures_util::stream::once(opened).flatten();
        arriving.map(move |arrived| hide(&secrets, arrived)).boxed()
    }

    async fn open(&self, body: Result<Value, Failure>) -> Result<(Chunks, Form), Failure> {
        let body = body?.to_string();
        let broke = |error: reqwest::Error| broken(&Broken::from(error));
        let slot = self.pool.slot().map_err(broke)?;
        let request = slot.client.post(self.url.clone()).headers(self.headers.clone()).body(body);
        let response = request.send().await.map_err(broke)?;
        if response.status() != StatusCode::OK {
            return Err(refusal(response).await);
        }
        let form = form(response.headers())?;
        Ok((chunks(response, slot), form))
    }
}

impl fmt::Debug for Endpoint {
    // Only fields without secrets: the query may contain a key, and the client a proxy's password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.host()).finish_non_exhaustive()
    }
}

/// The URL of a call; a query string stays at its end. No message repeats `base`, because a mistyped address may
/// contain a password anywhere.
fn url(base: &str, path: &str) -> Result<Url, String> {
    let base = base.trim();
    if !["http://", "https://"].iter().any(|scheme| base.starts_with(scheme)) {
        return Err("base_url must start with http:// or https://".to_owned());
    }
    let mut url = Url::parse(base).map_err(|error| format!("base_url is not a valid URL: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("base_url contains a user or password; put it into headers".to_owned());
    }
    let whole = format!("{}{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    Ok(url)
}

/// Whether the address is on this machine.
fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    match host.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

fn add_own(headers: &mut HeaderMap, settings: &UpstreamSettings) -> Result<(), String> {
    for (name, value) in &settings.headers {
        // The value is not shown: it may be a key.
        let parsed = HeaderName::from_bytes(name.as_bytes());
        let parsed = parsed.map_err(|_| format!("headers: {name:?} is not a valid header name"))?;
        if OURS.contains(&parsed) {
            return Err(format!("headers: {name} is set by the server itself"));
        }
        let value = sensitive(value.expose());
        let value = value.ok_or_else(|| {
            format!("headers: the value of {name} has characters that are not allowed in a header")
        })?;
        headers.insert(parsed, value);
    }
    Ok(())
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn form(headers: &HeaderMap) -> Result<Form, Failure> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let coding = text(CONTENT_ENCODING);
    if !matches!(coding, "" | "identity") {
        return Err(invalid(&format!(
            "upstream compressed its response with {coding}, which was not requested"
        )));
    }
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => Ok(Form::Document),
        "text/html" => Err(invalid("upstream responded with a web page; check base_url")),
        _ => Ok(Form::Events),
    }
}

async fn refusal(mut response: Response) -> Failure {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body: Vec<u8> = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes[..bytes.len().min(ERROR_BYTES_MAX - body.len())]);
        if body.len() == ERROR_BYTES_MAX {
            break;
        }
    }
    answered(status, &headers, &body)
}

fn hide(secrets: &[Secret], arrived: Result<Arrived, Failure>) -> Result<Arrived, Failure> {
    match arrived {
        Ok(Arrived::Finished { reason }) => Ok(Arrived::Finished { reason: without(secrets, &reason) }),
        Ok(arrived) => Ok(arrived),
        Err(failure) => Err(Failure { message: without(secrets, &failure.message), ..failure }),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn settings(base_url: &str, headers: &[(&str, &str)]) -> UpstreamSettings {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value)));
        UpstreamSettings {
            base_url: Secret::new(base_url),
            model: "m".to_owned(),
            api_key: Some(Secret::new("sk-canary")),
            headers: BTreeMap::from_iter(headers),
            max_tokens: None,
        }
    }

    fn refused(base_url: &str, headers: &[(&str, &str)]) -> String {
        Endpoint::new("/x", &settings(base_url, headers), Vec::new()).unwrap_err()
    }

    #[test]
    fn b7_an_invalid_setting_is_refused_by_name_without_its_value() {
        let url = "http://localhost:1/v1";
        assert_eq!(refused("localhost:1", &[]), "base_url must start with http:// or https://");
        assert!(refused("ftp://a", &[]).contains("http://"));
        assert_eq!(refused("http://", &[]), "base_url is not a valid URL: empty host");
        let user = "base_url contains a user or password; put it into headers";
        assert_eq!(refused("http://me:hunter2@a/", &[]), user);
        assert_eq!(refused(url, &[("bad name", "x")]), r#"headers: "bad name" is not a valid header name"#);
        let value = refused(url, &[("x-team", "line\nbreak")]);
        assert_eq!(value, "headers: the value of x-team has characters that are not allowed in a header");
        assert_eq!(refused(url, &[("Host", "other")]), "headers: Host is set by the server itself");
    }

    #[test]
    fn i14_no_message_repeats_a_password_in_a_base_url_however_it_is_mistyped() {
        for base in [
            "me:canary@host/v1",
            "http:/me:canary@host/v1",
            "http//me:canary@host/v1",
            "https://me:canary@",
            "https://me:canary@host:port/v1",
            "https://me:can#canary@host/v1",
            "https://me:can/canary@host:99999/v1",
            "https://me:canary canary@ho st/v1",
            "https://me@canary:pw@host/v1",
            "https://[canary/v1",
            "HTTPS://me:canary@host",
            "canary",
        ] {
            let settings = settings(base, &[]);
            let built = Endpoint::new("/x", &settings, Vec::new());
            let printed = format!("{settings:?} {built:?} {:?}", built.as_ref().map(Endpoint::host));
            assert!(!printed.contains("canary"), "{base}: {printed}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        let local = |base| is_local(&url(base, "/x").unwrap());
        for base in ["http://localhost:1", "http://a.localhost", "http://127.9.9.9:1", "http://[::1]:1/v1"] {
            assert!(local(base), "{base}");
        }
        for base in
            ["http://10.0.0.1", "http://localhost.example.com", "http://[::2]", "https://api.openai.com"]
        {
            assert!(!local(base), "{base}");
        }
    }

    #[test]
    fn a_path_is_added_before_the_query_of_the_base_url() {
        let whole = |base| url(base, "/chat/completions").unwrap().to_string();
        assert_eq!(whole("http://a/v1/"), "http://a/v1/chat/completions");
        assert_eq!(whole("http://a"), "http://a/chat/completions");
        assert_eq!(whole("http://a/v1?api-version=1"), "http://a/v1/chat/completions?api-version=1");
    }

    #[test]
    fn i14_debug_shows_neither_key_nor_headers() {
        let settings =
            settings("http://localhost:1", &[("authorization", "Bearer canary-two"), ("x", "canary-3")]);
        let vendor = vec![(HeaderName::from_static("x-api-key"), "sk-canary".to_owned())];
        let endpoint = Endpoint::new("/x", &settings, vendor).unwrap();
        let printed = format!("{settings:?} {endpoint:?} {endpoint:#?}");
        assert!(printed.contains("localhost") && !printed.contains("canary"), "{printed}");
    }

    #[test]
    fn i14_a_placeholder_instead_of_a_key_is_not_hidden() {
        let hidden = |key: &str| {
            let settings = UpstreamSettings { api_key: Some(Secret::new(key)), ..settings("http://a", &[]) };
            without(&settings.secrets(), "none of the ollama models, sk-1234")
        };
        for word in ["none", "ollama", "a"] {
            assert_eq!(hidden(word), "none of the ollama models, sk-1234");
        }
        assert_eq!(hidden("sk-1234"), "none of the ollama models, [key]");
    }

    #[test]
    fn i14_secrets_are_hidden_whole_and_without_their_first_word() {
        let settings = settings("http://a", &[("authorization", "Bearer canary-two"), ("x-title", "Tea")]);
        let secrets = settings.secrets();
        let shown = without(&secrets, "sk-canary, Bearer canary-two, canary-two, Tea");
        assert_eq!(shown, "[key], [key], [key], Tea");
    }
}
