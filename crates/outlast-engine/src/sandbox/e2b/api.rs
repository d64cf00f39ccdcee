//! E2B's control API: sandboxes are created, found, connected to, paused and killed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::{HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::E2bSettings;
use crate::models::Secret;

/// The name under which E2B keeps our id of a sandbox.
const OUR_ID: &str = "outlast.sandbox";
/// Longer answers are cut when they are shown.
const MESSAGE_MAX: usize = 300;
/// A pause writes the memory of the sandbox to E2B's disk.
const PAUSE_TIME_MAX: Duration = Duration::from_secs(120);
/// The longest `Retry-After` that is honoured.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(30);

pub(super) struct Api {
    client: Client,
    settings: E2bSettings,
    /// Whether the first version of the API is gone there.
    only_v2: AtomicBool,
}

/// How to reach a sandbox.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Access {
    #[serde(rename = "sandboxID")]
    pub(super) id: String,
    #[serde(rename = "envdAccessToken")]
    pub(super) token: Option<Secret>,
    #[serde(default)]
    pub(super) domain: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Listed {
    #[serde(rename = "sandboxID")]
    pub(super) id: String,
    started_at: String,
    state: ListedState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ListedState {
    Running,
    Paused,
}

impl Listed {
    pub(super) fn is_paused(&self) -> bool {
        self.state == ListedState::Paused
    }
}

/// Why a call failed, by what can be done about it.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// The sandbox does not exist, or the address does not.
    #[error("{0}")]
    NotFound(String),
    /// The sandbox is in another state, or changing it.
    #[error("{0}")]
    Conflict(String),
    /// The settings are wrong.
    #[error("{0}")]
    Refused(String),
    /// The account may not have more now.
    #[error("{message}")]
    Limit { message: String, wait: Option<Duration> },
    /// E2B has no room now.
    #[error("{message}")]
    Capacity { message: String, wait: Option<Duration> },
    /// E2B did not answer, or not with an answer.
    #[error("{0}")]
    Passing(String),
}

impl ApiError {
    /// How long to wait before the same call may succeed; nothing if it cannot.
    pub(super) fn wait(&self) -> Option<Duration> {
        match self {
            ApiError::NotFound(_) | ApiError::Refused(_) => None,
            ApiError::Conflict(_) | ApiError::Passing(_) => Some(Duration::ZERO),
            ApiError::Limit { wait, .. } | ApiError::Capacity { wait, .. } => Some(wait.unwrap_or_default()),
        }
    }
}

impl Api {
    pub(super) fn new(client: Client, settings: E2bSettings) -> Api {
        Api { client, settings, only_v2: AtomicBool::new(false) }
    }

    pub(super) async fn create(&self, ours: &str) -> Result<Access, ApiError> {
        let body = json!({
            "templateID": self.settings.template,
            "timeout": self.settings.lifetime.as_secs(),
            "secure": true,
            "autoPause": true,
            "autoResume": {"enabled": false},
            "metadata": {OUR_ID: ours},
        });
        parsed(self.versioned("/sandboxes", body).await?)
    }

    /// Resumes the sandbox if it is paused.
    pub(super) async fn connect(&self, id: &str) -> Result<Access, ApiError> {
        let body = json!({"timeout": self.settings.lifetime.as_secs()});
        parsed(self.versioned(&format!("/sandboxes/{id}/connect"), body).await?)
    }

    /// Those that carry our id, the oldest first.
    pub(super) async fn find(&self, ours: &str) -> Result<Vec<Listed>, ApiError> {
        // Our ids are letters, digits, `_` and `-`, so only `=` has to be encoded for the query.
        let path = format!("/v2/sandboxes?metadata={OUR_ID}%3D{ours}&state=running,paused");
        let mut found: Vec<Listed> =
            parsed(self.call(Method::GET, &path, None, self.settings.patience).await?)?;
        found.sort_by(|one, other| (&one.started_at, &one.id).cmp(&(&other.started_at, &other.id)));
        Ok(found)
    }

    pub(super) async fn pause(&self, id: &str) -> Result<(), ApiError> {
        let path = format!("/sandboxes/{id}/pause");
        self.call(Method::POST, &path, Some(json!({})), PAUSE_TIME_MAX).await.map(drop)
    }

    /// Lets the sandbox live for another while.
    pub(super) async fn extend(&self, id: &str) -> Result<(), ApiError> {
        let body = json!({"timeout": self.settings.lifetime.as_secs()});
        let path = format!("/sandboxes/{id}/timeout");
        self.call(Method::POST, &path, Some(body), self.settings.patience).await.map(drop)
    }

    /// Also one that is paused. One that is gone is `Ok`.
    pub(super) async fn kill(&self, id: &str) -> Result<(), ApiError> {
        let path = format!("/sandboxes/{id}");
        match self.call(Method::DELETE, &path, None, self.settings.patience).await {
            Ok(_) | Err(ApiError::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The first version exists everywhere today, the second one is where it goes.
    async fn versioned(&self, path: &str, body: Value) -> Result<Value, ApiError> {
        let patience = self.settings.patience;
        if !self.only_v2.load(Ordering::Relaxed) {
            match self.call(Method::POST, path, Some(body.clone()), patience).await {
                Err(ApiError::NotFound(_)) => {} // the sandbox or the version: the other version knows
                answer => return answer,
            }
        }
        let mut body = body;
        if let Some(body) = body.as_object_mut() {
            body.remove("secure"); // always, there
        }
        let answer = self.call(Method::POST, &format!("/v2{path}"), Some(body), patience).await?;
        self.only_v2.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        patience: Duration,
    ) -> Result<Value, ApiError> {
        let mut key = HeaderValue::from_str(self.settings.api_key.expose())
            .map_err(|_| ApiError::Refused("the key for E2B is not a key".to_owned()))?;
        key.set_sensitive(true);
        let mut request = self.client.request(method, format!("{}{path}", self.settings.api()));
        request = request.header("X-API-Key", key).timeout(patience);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(unanswered)?;
        let status = response.status();
        let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let wait = seconds.map(|seconds| Duration::from_secs(seconds).min(RETRY_AFTER_MAX));
        let bytes = response.bytes().await.map_err(unanswered)?;
        if status.is_success() {
            return match bytes.is_empty() {
                true => Ok(Value::Null),
                false => serde_json::from_slice(&bytes).map_err(|_| nonsense()),
            };
        }
        let message = message(&bytes).replace(self.settings.api_key.expose(), "[key]");
        Err(classified(status, &message, wait))
    }
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ApiError> {
    serde_json::from_value(value).map_err(|_| nonsense())
}

fn nonsense() -> ApiError {
    ApiError::Passing("E2B answered with something that is no answer".to_owned())
}

fn unanswered(error: reqwest::Error) -> ApiError {
    let error = error.without_url();
    ApiError::Passing(match error.is_timeout() {
        true => "E2B did not answer in time".to_owned(),
        false => format!("cannot reach E2B: {error}"),
    })
}

fn message(bytes: &[u8]) -> String {
    let body: Option<Value> = serde_json::from_slice(bytes).ok();
    let told = body.as_ref().and_then(|body| body["message"].as_str()).unwrap_or_default();
    told.chars().take(MESSAGE_MAX).collect()
}

fn classified(status: StatusCode, said: &str, wait: Option<Duration>) -> ApiError {
    let code = status.as_u16();
    match code {
        404 | 405 | 410 => ApiError::NotFound(format!("E2B: {said}")),
        409 => ApiError::Conflict(format!("E2B: {said}")),
        401 | 403 => ApiError::Refused(format!(
            "E2B does not accept the key ({said}). Check the key in e2b.api_key_env or api_key_file"
        )),
        429 => ApiError::Limit {
            message: format!(
                "E2B allows this account no more sandboxes now ({said}). Kill those you no longer need, or ask E2B for \
                 a higher limit, then retry"
            ),
            wait,
        },
        503 | 504 => ApiError::Capacity {
            message: format!("E2B has no room for another sandbox now ({said}). Retry in a few minutes"),
            wait,
        },
        500..=599 => ApiError::Passing(format!("E2B failed with {code}: {said}")),
        _ => ApiError::Refused(format!("E2B refused the request with {code}: {said}")),
    }
}
