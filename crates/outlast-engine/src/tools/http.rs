//! Tools behind HTTP, as the settings describe them.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use outlast_core::{DEPTH_MAX, ToolSpec, depth};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use serde_json::Value;

use super::INLINE_MAX;
use super::elsewhere::{Answer, Asked, ToolElsewhere};
use crate::models::Secret;
use crate::outside::{Outside, OutsideError, Reply};

/// The execution id, so that a server that is asked twice can tell.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Clone, Debug)]
pub struct HttpToolSettings {
    pub name: String,
    /// For the model.
    pub description: Option<String>,
    pub url: String,
    pub method: HttpMethod,
    /// The JSON schema of the arguments.
    pub schema: Value,
    pub headers: BTreeMap<String, Secret>,
    pub timeout: Duration,
}

/// With `GET` and `DELETE` the arguments are sent as query parameters, otherwise as a JSON body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpMethod {
    Get,
    Post,
    Put,
    Patch,
    Delete,
}

pub struct HttpTool {
    outside: Outside,
    settings: HttpToolSettings,
    headers: HeaderMap,
}

impl HttpTool {
    /// Checks what can be checked without a network, so that an invalid value stops the start of the server.
    pub fn new(outside: Outside, settings: HttpToolSettings) -> Result<HttpTool, String> {
        if !settings.schema.is_object() {
            return Err("schema must be a JSON schema, which is an object".to_owned());
        }
        if settings.timeout.is_zero() {
            return Err("timeout must be longer than 0, or every call would time out at once".to_owned());
        }
        drop(outside.request(Method::GET, &settings.url).map_err(|error| format!("url: {error}"))?);
        let mut headers = HeaderMap::new();
        for (name, value) in &settings.headers {
            let parsed = HeaderName::from_bytes(name.as_bytes());
            let parsed = parsed.map_err(|_| format!("headers: {name:?} is not a valid header name"))?;
            if parsed == IDEMPOTENCY_KEY {
                return Err(format!("headers: {name} is set by the server itself"));
            }
            // The value is not shown: it may be a key.
            let value = HeaderValue::from_str(value.expose());
            let mut value =
                value.map_err(|_| format!("headers: the value of {name} is not a valid header"))?;
            value.set_sensitive(true);
            headers.insert(parsed, value);
        }
        Ok(HttpTool { outside, settings, headers })
    }

    async fn send(&self, call: Asked<'_>) -> Result<Reply, OutsideError> {
        let HttpToolSettings { url, method, timeout, .. } = &self.settings;
        let (method, in_query) = match method {
            HttpMethod::Get => (Method::GET, true),
            HttpMethod::Delete => (Method::DELETE, true),
            HttpMethod::Post => (Method::POST, false),
            HttpMethod::Put => (Method::PUT, false),
            HttpMethod::Patch => (Method::PATCH, false),
        };
        let url = if in_query { with_query(url, call.input) } else { url.clone() };
        let request = self.outside.request(method, &url)?.headers(self.headers.clone());
        let request = request.header(IDEMPOTENCY_KEY, call.execution.as_str());
        let request = if in_query { request } else { request.json(call.input) };
        self.outside.send(request, *timeout, INLINE_MAX).await
    }
}

#[async_trait]
impl ToolElsewhere for HttpTool {
    fn spec(&self) -> ToolSpec {
        let HttpToolSettings { name, description, schema, .. } = &self.settings;
        let (name, description, parameters) = (name.clone(), description.clone(), Some(schema.clone()));
        ToolSpec { name, description, parameters, strict: None }
    }

    async fn ask(&self, call: Asked<'_>) -> Answer {
        match self.send(call).await {
            Ok(reply) => said(&reply),
            Err(OutsideError::Refused(why) | OutsideError::Unreachable(why)) => Answer::NotAsked(why),
            Err(error @ (OutsideError::Failed(_) | OutsideError::TimedOut)) => {
                Answer::Unanswered(error.to_string())
            }
        }
    }
}

/// The arguments as query parameters: text as it is, everything else as JSON.
fn with_query(url: &str, input: &Value) -> String {
    let (Ok(mut parsed), Some(arguments)) = (Url::parse(url), input.as_object()) else {
        return url.to_owned();
    };
    for (name, value) in arguments {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        parsed.query_pairs_mut().append_pair(name, &text);
    }
    parsed.into()
}

/// What the model reads.
fn said(reply: &Reply) -> Answer {
    let error = |text: String| Answer::Said { result: Value::String(text), is_error: true };
    if reply.is_cut {
        return error(format!("the response is longer than {INLINE_MAX} bytes, the most that is accepted"));
    }
    if reply.status.is_redirection() {
        return error(format!("HTTP {}: redirects are not followed", reply.status.as_u16()));
    }
    let kind = reply.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json = kind == "application/json" || kind.ends_with("+json");
    let json = is_json.then(|| serde_json::from_slice::<Value>(&reply.body).ok()).flatten();
    let json = json.filter(|value| depth(value) <= DEPTH_MAX);
    let text = || String::from_utf8(reply.body.to_vec());
    match (reply.status.is_success(), json, text()) {
        (true, Some(result), _) => Answer::Said { result, is_error: false },
        (true, None, Ok(text)) => Answer::Said { result: Value::String(text), is_error: false },
        (true, None, Err(_)) => {
            error(format!("the response is {} bytes of {kind}, not text", reply.body.len()))
        }
        (false, _, text) => error(format!("HTTP {}\n{}", reply.status, text.unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests;
