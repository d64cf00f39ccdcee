//! One attempt to deliver: the request to a webhook (Standard Webhooks) or to a push service (RFC 8030).

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use outlast_core::{NotificationKind, Timestamp};
use outlast_store::Item;
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::json;

use super::Notification;
use super::endpoints::{Delivery, PUSH, PushSubscription, Webhook};
use super::push::{self, VapidKey};
use crate::outside::{Outside, OutsideError};

/// How long a receiver may take to answer. It should answer first and work later.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);
/// The body of a response says nothing that we need.
const RESPONSE_BYTES_MAX: usize = 1024;
/// Every secret begins with this.
const SECRET_PREFIX: &str = "whsec_";
/// How long a push service keeps a message for a browser that is not connected, in seconds.
const PUSH_KEPT: &str = "86400";

/// How much of a title is sent: push messages are small, however it is escaped.
const TITLE_CHARS_MAX: usize = 200;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    Accepted,
    /// The receiver says that it wants no more.
    Gone,
    Failed(String),
}

pub(super) struct Sender {
    pub(super) outside: Outside,
    pub(super) vapid: VapidKey,
}

impl Sender {
    pub(super) async fn send(&self, endpoint: &Item, delivery: &Delivery, now: Timestamp) -> Sent {
        let request = match endpoint.kind.as_str() {
            PUSH => self.push(endpoint, delivery, now),
            _ => self.webhook(endpoint, delivery, now),
        };
        let sent = match request {
            Ok(request) => self.outside.send(request, ATTEMPT_TIME, RESPONSE_BYTES_MAX).await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(reply) if reply.status.is_success() => Sent::Accepted,
            Ok(reply) if reply.status == StatusCode::GONE => Sent::Gone,
            Ok(reply) if reply.status == StatusCode::NOT_FOUND && endpoint.kind == PUSH => Sent::Gone,
            Ok(reply) => Sent::Failed(format!("the receiver answered {}", reply.status.as_u16())),
            Err(error) => Sent::Failed(error.to_string()),
        }
    }

    fn webhook(
        &self,
        endpoint: &Item,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Result<RequestBuilder, OutsideError> {
        let webhook: Webhook = read(endpoint)?;
        let seconds = now.0 / 1000;
        let signature = sign(&webhook.secret, &format!("{}.{seconds}.{}", delivery.id, delivery.payload))?;
        Ok(self
            .outside
            .request(Method::POST, &webhook.url)?
            .header("content-type", "application/json")
            .header("user-agent", concat!("Outlast/", env!("CARGO_PKG_VERSION")))
            .header("webhook-id", &delivery.id)
            .header("webhook-timestamp", seconds.to_string())
            .header("webhook-signature", format!("v1,{signature}"))
            .body(delivery.payload.clone()))
    }

    fn push(
        &self,
        endpoint: &Item,
        delivery: &Delivery,
        now: Timestamp,
    ) -> Result<RequestBuilder, OutsideError> {
        let to: PushSubscription = read(endpoint)?;
        let invalid = || OutsideError::Failed("the subscription is invalid".to_owned());
        let request = self.outside.request(Method::POST, &to.endpoint)?;
        let secret = push::encrypt(&to.p256dh, &to.auth, delivery.payload.as_bytes()).ok_or_else(invalid)?;
        let authorization = self.vapid.authorization(&to.endpoint, now).ok_or_else(invalid)?;
        Ok(request
            .header("content-encoding", "aes128gcm")
            .header("content-type", "application/octet-stream")
            .header("ttl", PUSH_KEPT)
            .header("urgency", "normal")
            .header("authorization", authorization)
            .body(secret))
    }
}

fn read<T: serde::de::DeserializeOwned>(endpoint: &Item) -> Result<T, OutsideError> {
    serde_json::from_str(&endpoint.body)
        .map_err(|_| OutsideError::Failed("the endpoint cannot be read".to_owned()))
}

fn sign(secret: &str, content: &str) -> Result<String, OutsideError> {
    let key = BASE64_STANDARD.decode(secret.trim_start_matches(SECRET_PREFIX));
    let key = key.map_err(|_| OutsideError::Failed("the secret cannot be read".to_owned()))?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
    Ok(BASE64_STANDARD.encode(hmac::sign(&key, content.as_bytes())))
}

/// What a receiver gets. It has no part of the answer.
pub(super) fn payload(one: &Notification, public_url: &str) -> String {
    let page = match one.kind {
        NotificationKind::Approval => format!("/approve/{}", one.id),
        NotificationKind::Completed
        | NotificationKind::Error
        | NotificationKind::Cancelled
        | NotificationKind::Interrupted => format!("/c/{}", one.conversation_id),
    };
    json!({
        "type": format!("generation.{}", one.kind.as_str()),
        "timestamp": one.created_at,
        "data": {
            "id": one.id,
            "kind": one.kind,
            "conversationId": one.conversation_id,
            "generationId": one.generation_id,
            "title": one.title.as_deref().map(|title| title.chars().take(TITLE_CHARS_MAX).collect::<String>()),
            "createdAt": one.created_at,
            "url": format!("{}{page}", public_url.trim_end_matches('/')),
        },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_a_signature_is_the_one_of_standard_webhooks() {
        // The example of the specification's reference libraries.
        let content = r#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#;
        let signature = sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", content).unwrap();
        assert_eq!(signature, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
