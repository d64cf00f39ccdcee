//! One request to an upstream: its head is made once, when the settings are read, so that what cannot be
//! sent stops the start and not the first call.

use std::sync::Arc;

use futures_util::stream::StreamExt;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HOST,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, Uri};
use outlast_core::Failure;
use serde_json::Value;

use super::exchange::{Connector, Exchange};
use super::failures::{answered, broken, invalid, without};
use super::settings::{Secret, UpstreamSettings};
use super::wire::{Dialect, Form, Reading};
use super::{Arrived, ModelStream};

/// How much of an error's body is read to find out what it says.
const ERROR_BYTES_MAX: usize = 16 * 1024;
/// What belongs to the exchange itself and not to the operator.
const OURS: &[HeaderName] =
    &[HOST, CONTENT_TYPE, CONTENT_LENGTH, TRANSFER_ENCODING, ACCEPT, ACCEPT_ENCODING, CONNECTION, UPGRADE];

/// Where a vendor listens, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    connector: Connector,
    uri: Uri,
    headers: HeaderMap,
    secrets: Arc<[Secret]>,
}

impl Endpoint {
    /// `vendor` are the headers that a vendor wants; the operator's own are laid over them.
    pub(super) fn new(
        path: &str,
        settings: &UpstreamSettings,
        vendor: Vec<(HeaderName, String)>,
    ) -> Result<Endpoint, String> {
        let base = settings.base_url.trim_end_matches('/');
        if base.split('/').nth(2).is_some_and(|host| host.contains('@')) {
            return Err("base_url holds a user or password: put it into headers".to_owned());
        }
        let wrong = |what: &str| format!("base_url {base:?} {what}");
        if !["http://", "https://"].iter().any(|scheme| base.starts_with(scheme)) {
            return Err(wrong("must begin with http:// or https://"));
        }
        let uri: Uri =
            format!("{base}{path}").parse().map_err(|error| wrong(&format!("is not an address: {error}")))?;
        let host = uri.authority().map(|authority| HeaderValue::from_str(authority.as_str()));
        let host = host.and_then(Result::ok).ok_or_else(|| wrong("names no host"))?;
        let mut headers = HeaderMap::from_iter([
            (HOST, host),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static("text/event-stream")),
            (USER_AGENT, HeaderValue::from_static(concat!("outlast/", env!("CARGO_PKG_VERSION")))),
        ]);
        for (name, value) in vendor {
            headers
                .insert(name, sensitive(&value).ok_or("the key holds characters that no header may have")?);
        }
        lay_over(&mut headers, settings)?;
        Ok(Endpoint { connector: Connector::new()?, uri, headers, secrets: settings.secrets().into() })
    }

    /// Whether this is that vendor's own address.
    pub(super) fn is_host(&self, name: &str) -> bool {
        self.uri.host() == Some(name)
    }

    /// Sends a request when the stream is first polled, and reads its answer. An upstream that repeats a
    /// key in an error does not get it into the log.
    pub(super) fn stream(&self, body: Result<Value, Failure>, dialect: impl Dialect) -> ModelStream {
        let (endpoint, secrets) = (self.clone(), self.secrets.clone());
        let opened = async move {
            match endpoint.open(body).await {
                Ok((form, bytes)) => Reading::new(bytes, form, dialect).boxed(),
                Err(failure) => futures_util::stream::iter([Err(failure)]).boxed(),
            }
        };
        let arriving = futures_util::stream::once(opened).flatten();
        arriving.map(move |arrived| hide(&secrets, arrived)).boxed()
    }

    async fn open(&self, body: Result<Value, Failure>) -> Result<(Form, Exchange), Failure> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(body?.to_string());
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() =
            path.parse().map_err(|_| invalid("base_url holds a path that cannot be sent"))?;
        *request.headers_mut() = self.headers.clone();
        let response =
            self.connector.send(self.uri.clone(), request).await.map_err(|error| broken(&error))?;
        if response.status().as_u16() != 200 {
            return Err(refusal(response).await);
        }
        let form = form(response.headers())?;
        Ok((form, response.into_body()))
    }
}

fn lay_over(headers: &mut HeaderMap, settings: &UpstreamSettings) -> Result<(), String> {
    for (name, value) in &settings.headers {
        // The value is not shown: it may be a key.
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok();
        let parsed = parsed.ok_or_else(|| format!("headers: {name:?} is not the name of a header"))?;
        if OURS.contains(&parsed) {
            return Err(format!("headers: {name} is set by the server itself"));
        }
        let value = sensitive(value.expose());
        let value =
            value.ok_or_else(|| format!("headers: the value of {name} cannot be sent in a header"))?;
        headers.insert(parsed, value);
    }
    Ok(())
}

fn sensitive(value: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(value).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// How the answer is written, by what its head says.
fn form(headers: &HeaderMap) -> Result<Form, Failure> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let coding = text(CONTENT_ENCODING);
    if !matches!(coding, "" | "identity") {
        return Err(invalid(&format!("upstream answered in {coding}, which was not asked for")));
    }
    let kind = text(CONTENT_TYPE).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match kind.as_str() {
        "application/json" => Ok(Form::whole()),
        // Somebody else's page; most likely the address is wrong.
        "text/html" => Err(invalid("upstream answered with a web page: is base_url right?")),
        _ => Ok(Form::events()),
    }
}

async fn refusal(response: Response<Exchange>) -> Failure {
    let (head, mut answer) = response.into_parts();
    let mut body: Vec<u8> = Vec::new();
    while let Some(Ok(bytes)) = answer.next().await {
        body.extend_from_slice(&bytes[..bytes.len().min(ERROR_BYTES_MAX - body.len())]);
        if body.len() == ERROR_BYTES_MAX {
            break;
        }
    }
    answered(head.status.as_u16(), &head.headers, &body)
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
            base_url: base_url.to_owned(),
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
    fn b7_what_cannot_be_sent_is_refused_by_name_and_without_its_value() {
        let url = "http://localhost:1/v1";
        assert_eq!(
            refused("localhost:1", &[]),
            r#"base_url "localhost:1" must begin with http:// or https://"#
        );
        assert!(refused("ftp://a", &[]).contains("http://"));
        assert!(refused("http://", &[]).contains("base_url"));
        assert_eq!(
            refused("http://me:hunter2@a/", &[]),
            "base_url holds a user or password: put it into headers"
        );
        assert_eq!(refused(url, &[("bad name", "x")]), r#"headers: "bad name" is not the name of a header"#);
        let value = refused(url, &[("x-team", "line\nbreak")]);
        assert_eq!(value, "headers: the value of x-team cannot be sent in a header");
        assert_eq!(refused(url, &[("Host", "other")]), "headers: Host is set by the server itself");
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
    fn i14_a_word_that_only_stands_for_a_key_garbles_nothing() {
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
