//! Calls the functions of one deployment over HTTP.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use reqwest::header::AUTHORIZATION;
use reqwest::{Client, StatusCode, Url, redirect, retry};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::failure::{Failure, Refusal};
use crate::StoreError;

/// How long anybody waits for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Shorter than servers keep an idle connection, so that none is closed while a request is on its way.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// A function that takes longer may or may not have had its effect.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Convex returns at most 16 MiB, which JSON can make several times as long.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// What Convex calls a transaction that lost to others, after it has retried it by itself.
const CONTENTION: &str = "OptimisticConcurrencyControlFailure";
/// How often such a transaction is tried, and the first wait in between, which doubles.
const TRIES: u32 = 6;
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// With this status Convex reports what a function threw to older clients.
const FUNCTION_FAILED: u16 = 560;

#[derive(Clone)]
pub(super) struct Deployment {
    client: Client,
    /// Without the key, so that it can be shown.
    api: Arc<str>,
    authorization: Arc<str>,
}

#[derive(Serialize)]
struct Call<'a, A> {
    path: &'a str,
    args: &'a A,
    format: &'static str,
}

/// What Convex sends when the function ran.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    status: &'a str,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    error_message: Option<String>,
    #[serde(borrow)]
    error_data: Option<&'a RawValue>,
}

/// What Convex sends when it did not.
#[derive(Deserialize)]
struct Problem {
    code: String,
    message: String,
}

impl Deployment {
    /// The password of the URL is the deploy key.
    pub(super) fn new(url: &str) -> Result<Self, StoreError> {
        // The URL holds the key, so no message repeats it.
        let broken = |why: &str| StoreError::Broken(format!("the Convex URL {why}"));
        let address = url.strip_prefix("convex+").ok_or_else(|| broken("must begin with convex+https://"))?;
        let mut url = Url::parse(address).map_err(|error| broken(&format!("cannot be used: {error}")))?;
        let local = is_local(&url);
        match url.scheme() {
            "https" => {}
            "http" if local => {}
            "http" => return Err(broken("must begin with convex+https:// unless it names this machine")),
            _ => return Err(broken("must begin with convex+https://")),
        }
        let key = url.password().unwrap_or_default();
        let key = percent_decode_str(key).decode_utf8().map_err(|_| broken("has an invalid deploy key"))?;
        if key.is_empty() {
            return Err(broken("has no deploy key: use convex+https://key:DEPLOY_KEY@host"));
        }
        let authorization = format!("Convex {key}").into();
        let cleared = url.set_password(None).and_then(|()| url.set_username(""));
        cleared.map_err(|()| broken("has no host"))?;
        let api = format!("{}/api", url.as_str().trim_end_matches('/')).into();
        let builder = Client::builder()
            // A repeated mutation could have its effect twice, and a redirect would take the key to another host.
            .retry(retry::never())
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_WITHIN)
            .timeout(ANSWER_WITHIN)
            .pool_idle_timeout(IDLE_WITHIN)
            .tcp_nodelay(true);
        let builder = if local { builder.no_proxy() } else { builder };
        let client = builder.build().map_err(|error| StoreError::Broken(reason(&error)))?;
        Ok(Self { client, api, authorization })
    }

    /// Runs a function that only reads.
    pub(super) async fn query<T: DeserializeOwned>(
        &self,
        path: &str,
        args: &(impl Serialize + Sync),
    ) -> Result<T, Failure> {
        self.call("query", path, args).await
    }

    /// Runs a transaction, again if it lost to others and had no effect.
    pub(super) async fn mutation<T: DeserializeOwned>(
        &self,
        path: &str,
        args: &(impl Serialize + Sync),
    ) -> Result<T, Failure> {
        let mut wait = FIRST_WAIT;
        for _ in 1..TRIES {
            match self.call("mutation", path, args).await {
                Err(Failure::NotRun(why)) if why.starts_with(CONTENTION) => {}
                answer => return answer,
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        self.call("mutation", path, args).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        kind: &str,
        path: &str,
        args: &(impl Serialize + Sync),
    ) -> Result<T, Failure> {
        let request = self
            .client
            .post(format!("{}/{kind}", self.api))
            .header(AUTHORIZATION, &*self.authorization)
            .json(&Call { path, args, format: "json" });
        let mut response = request.send().await.map_err(|error| failure(&error))?;
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(Failure::Unknown("the answer of Convex is too long".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        if status == StatusCode::OK || status.as_u16() == FUNCTION_FAILED {
            return result(path, &body);
        }
        Err(refused(status, &body))
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
}

/// The result of a function that ran. What it throws undoes all of its changes.
fn result<T: DeserializeOwned>(path: &str, body: &[u8]) -> Result<T, Failure> {
    let odd = |error| Failure::Unknown(format!("unexpected answer of the Convex function {path}: {error}"));
    let answer: Answer<'_> = serde_json::from_slice(body).map_err(odd)?;
    if answer.status == "success" {
        // JSON's null is a result, too.
        return serde_json::from_str(answer.value.map_or("null", RawValue::get)).map_err(odd);
    }
    let refusal = answer.error_data.and_then(|data| serde_json::from_str::<Refusal>(data.get()).ok());
    Err(match refusal {
        Some(refusal) => Failure::Refused(refusal),
        None => Failure::Broken(format!(
            "the Convex function {path} failed: {}",
            answer.error_message.as_deref().unwrap_or("no reason given")
        )),
    })
}

/// A request that Convex did not run, or of which nobody knows whether it ran.
fn refused(status: StatusCode, body: &[u8]) -> Failure {
    let why = match serde_json::from_slice::<Problem>(body) {
        Ok(Problem { code, message }) => format!("{code}: {message}"),
        Err(_) => format!("Convex responded with status {}", status.as_u16()),
    };
    if why.starts_with(CONTENTION) || status == StatusCode::TOO_MANY_REQUESTS {
        Failure::NotRun(why)
    } else if status.is_client_error() || status.is_redirection() {
        Failure::Broken(why)
    } else {
        Failure::Unknown(why)
    }
}

fn failure(error: &reqwest::Error) -> Failure {
    let why = reason(error);
    if error.is_connect() { Failure::NotRun(why) } else { Failure::Unknown(why) }
}

/// The innermost cause, which says more than "error sending request".
fn reason(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "Convex does not respond".to_owned();
    }
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    format!("cannot reach Convex: {cause}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_taken_out_of_the_url() {
        let deployment =
            Deployment::new("convex+https://key:prod:a-1|eyJ2%2FMiI6=@a-1.convex.cloud").unwrap();
        assert_eq!(&*deployment.api, "https://a-1.convex.cloud/api");
        assert_eq!(&*deployment.authorization, "Convex prod:a-1|eyJ2/MiI6=");
        let deployment = Deployment::new("convex+http://key:k@127.0.0.1:3210/one/").unwrap();
        assert_eq!(&*deployment.api, "http://127.0.0.1:3210/one/api");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused_without_repeating_the_key() {
        for (url, why) in [
            ("convex+https://a-1.convex.cloud", "no deploy key"),
            ("convex+http://key:secret@a-1.convex.cloud", "https"),
            ("convex+ftp://key:secret@127.0.0.1", "https"),
            ("convex:secret", "https"),
            ("convex+https://key:sec/ret@host", "cannot be used"),
        ] {
            let refused = Deployment::new(url).map(|_| ()).unwrap_err().to_string();
            assert!(refused.contains(why) && !refused.contains("secret"), "{url}: {refused}");
        }
    }

    #[test]
    fn it_is_known_whether_a_failed_call_had_an_effect() {
        let refused =
            |status: u16, body: &str| refused(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        let contention = r#"{"code":"OptimisticConcurrencyControlFailure","message":"changed"}"#;
        assert!(matches!(refused(503, contention), Failure::NotRun(why) if why.contains("changed")));
        assert!(matches!(refused(429, "{}"), Failure::NotRun(_)));
        assert!(matches!(refused(401, r#"{"code":"BadDeployKey","message":"no"}"#), Failure::Broken(_)));
        assert!(matches!(refused(502, "<html>"), Failure::Unknown(_)));
        let threw = result::<()>("f", br#"{"status":"error","errorMessage":"it threw"}"#);
        assert!(matches!(threw, Err(Failure::Broken(why)) if why.contains("it threw")));
        let data = br#"{"status":"error","errorMessage":"x","errorData":{"refused":"over","value":"1"}}"#;
        assert!(matches!(result::<()>("f", data), Err(Failure::Refused(_))));
        assert!(matches!(result::<()>("f", b"{"), Err(Failure::Unknown(_))));
        assert_eq!(result::<Option<u8>>("f", br#"{"status":"success","value":null}"#).unwrap(), None);
    }
}
