//! `[http_tools.<name>]`: a tool behind an HTTP server that is not ours.

use std::collections::BTreeMap;
use std::env::VarError;
use std::path::PathBuf;
use std::time::Duration;

use outlast_engine::Secret;
use outlast_engine::tools::{HttpMethod, HttpToolSettings};
use serde::Deserialize;
use serde_json::Value;

use super::duration;

/// How long a tool may take if the settings do not say.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HttpToolSection {
    url: String,
    #[serde(default)]
    method: Method,
    /// For the model.
    description: Option<String>,
    /// The JSON schema of the arguments.
    #[serde(default = "any_object")]
    schema: Value,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSource>,
    /// Whether it changes nothing.
    #[serde(default)]
    pub(super) read_only: bool,
    /// Whether two requests with the same `Idempotency-Key` have the effect of one.
    #[serde(default)]
    pub(super) idempotent: bool,
    #[serde(default = "timeout", deserialize_with = "duration::deserialize")]
    timeout: Duration,
    /// Whether it may be at a private address and use plain http.
    #[serde(default)]
    pub(crate) allow_private: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

/// Where the value of a header comes from. A value that is written down here may be a key too.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected text, { env = \"VARIABLE\" } or { file = \"PATH\" }")]
pub(super) enum HeaderSource {
    Text(Secret),
    Env { env: String },
    File { file: PathBuf },
}

fn any_object() -> Value {
    serde_json::json!({"type": "object"})
}

fn timeout() -> Duration {
    TIMEOUT
}

impl HttpToolSection {
    pub(crate) fn settings(&self, name: &str) -> Result<HttpToolSettings, String> {
        let method = match self.method {
            Method::Get => HttpMethod::Get,
            Method::Post => HttpMethod::Post,
            Method::Put => HttpMethod::Put,
            Method::Patch => HttpMethod::Patch,
            Method::Delete => HttpMethod::Delete,
        };
        let mut headers = BTreeMap::new();
        for (header, source) in &self.headers {
            let value = source.read().map_err(|error| format!("headers: {header}: {error}"))?;
            headers.insert(header.clone(), value);
        }
        Ok(HttpToolSettings {
            name: name.to_owned(),
            description: self.description.clone(),
            url: self.url.clone(),
            method,
            schema: self.schema.clone(),
            headers,
            timeout: self.timeout,
        })
    }
}

impl HeaderSource {
    /// No message repeats a value, because even a mistyped one may be a key.
    pub(super) fn read(&self) -> Result<Secret, String> {
        let text = match self {
            HeaderSource::Text(text) => return Ok(text.clone()),
            HeaderSource::Env { env } => std::env::var(env).map_err(|error| match error {
                VarError::NotPresent => "the variable is not set".to_owned(),
                VarError::NotUnicode(_) => "the variable is not valid UTF-8".to_owned(),
            })?,
            HeaderSource::File { file } => {
                std::fs::read_to_string(file).map_err(|error| format!("the file cannot be read: {error}"))?
            }
        };
        match text.trim() {
            "" => Err("the value is empty".to_owned()),
            text => Ok(Secret::new(text)),
        }
    }
}
