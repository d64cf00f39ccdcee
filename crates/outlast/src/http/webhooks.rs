//! The webhooks and browsers of a user.

use aws_lc_rs::rand;
use axum::http::StatusCode;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use outlast_core::{NotificationKind, Timestamp};
use outlast_engine::{Delivery, DeliveryState, Webhook, is_push_key};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, RequestName};
use super::caller::{Caller, Read, Write};
use super::error::Problem;
use super::query::{PageQuery, Query};
use super::streamed::StreamedJson;

/// The length of a secret, as Standard Webhooks recommends.
const SECRET_BYTES: usize = 32;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(add, list))
        .routes(routes!(remove))
        .routes(routes!(deliveries))
        .routes(routes!(push_key, add_push, remove_push))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewWebhook {
    /// Where to send notifications. It must begin with `https://` and lead to the internet.
    #[schema(max_length = 2048)]
    url: String,
    /// What to send; everything if absent.
    #[schema(min_items = 1)]
    events: Option<Vec<NotificationKind>>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Webhook)]
struct WebhookBody {
    id: String,
    url: String,
    events: Vec<NotificationKind>,
    created_at: Timestamp,
    /// The key that signs every delivery. It is shown once, when the webhook is added.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    secret: Option<String>,
}

fn shown(webhook: Webhook, with_secret: bool) -> WebhookBody {
    let Webhook { id, url, events, created_at, secret, .. } = webhook;
    WebhookBody { id, url, events, created_at, secret: with_secret.then_some(secret) }
}

#[derive(Serialize, ToSchema)]
struct WebhookList {
    data: Vec<WebhookBody>,
}

/// Add a webhook
///
/// Notifications are sent there as Standard Webhooks: signed, and retried if the receiver does not accept them.
#[utoipa::path(post, path = "/v1/webhooks", operation_id = "addWebhook", tag = "Notifications",
    security(("key" = ["write"])),
    responses(
        (status = 201, body = WebhookBody, description = "Added. The secret is shown only once."),
        (status = 429, description = "`limit_reached`: too many webhooks."),
    ))]
async fn add(
    caller: Caller<Write>,
    Json(body): Json<NewWebhook>,
) -> Result<(StatusCode, axum::Json<WebhookBody>), Problem> {
    let mut events = body.events.unwrap_or_else(|| NotificationKind::ALL.to_vec());
    events.dedup();
    if events.is_empty() || events.len() > NotificationKind::ALL.len() {
        return Err(Problem::invalid("events", "must have at least one kind, and none twice"));
    }
    let url = check(&caller, "url", &body.url).await?;
    let mut secret = [0; SECRET_BYTES];
    rand::fill(&mut secret).expect("the system provides random bytes");
    let secret = format!("whsec_{}", BASE64_STANDARD.encode(secret));
    let webhook = caller.engine().add_webhook(caller.user(), url, events, secret).await?;
    Ok((StatusCode::CREATED, axum::Json(shown(webhook, true))))
}

/// The URL, if it may be called now. Every call checks again.
async fn check(caller: &Caller<Write>, field: &str, url: &str) -> Result<String, Problem> {
    match caller.app().0.outside.check(url).await {
        Ok(url) => Ok(url.into()),
        Err(error) => Err(Problem::invalid(field, error)),
    }
}

/// List webhooks
#[utoipa::path(get, path = "/v1/webhooks", operation_id = "listWebhooks", tag = "Notifications",
    security(("key" = ["read"])),
    responses((status = 200, body = WebhookList, description = "All of them, newest first, without their secrets.")))]
async fn list(caller: Caller<Read>) -> Result<axum::Json<WebhookList>, Problem> {
    let webhooks = caller.engine().webhooks(caller.user()).await?;
    Ok(axum::Json(WebhookList { data: webhooks.into_iter().map(|one| shown(one, false)).collect() }))
}

/// Remove a webhook
///
/// Pending deliveries are dropped.
#[utoipa::path(delete, path = "/v1/webhooks/{id}", operation_id = "removeWebhook", tag = "Notifications",
    security(("key" = ["write"])),
    responses((status = 204, description = "Removed.")))]
async fn remove(caller: Caller<Write>, Id(id): Id<String>) -> Result<StatusCode, Problem> {
    caller.engine().remove_webhook(caller.user(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct DeliveriesQuery {
    /// Only deliveries in this state; `dead` are those that were given up.
    state: Option<State>,
}

#[derive(Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = DeliveryState)]
enum State {
    Pending,
    Delivered,
    Dead,
}

impl From<State> for DeliveryState {
    fn from(state: State) -> DeliveryState {
        match state {
            State::Pending => DeliveryState::Pending,
            State::Delivered => DeliveryState::Delivered,
            State::Dead => DeliveryState::Dead,
        }
    }
}

impl From<DeliveryState> for State {
    fn from(state: DeliveryState) -> State {
        match state {
            DeliveryState::Pending => State::Pending,
            DeliveryState::Delivered => State::Delivered,
            DeliveryState::Dead => State::Dead,
        }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Delivery)]
struct DeliveryBody {
    /// The notification, and the receiver's `webhook-id`.
    id: String,
    kind: NotificationKind,
    state: State,
    attempts: u32,
    created_at: Timestamp,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next_attempt_at: Option<Timestamp>,
}

impl From<Delivery> for DeliveryBody {
    fn from(one: Delivery) -> DeliveryBody {
        let Delivery { id, kind, state, attempts, created_at, error, next_attempt_at, .. } = one;
        DeliveryBody { id, kind, state: state.into(), attempts, created_at, error, next_attempt_at }
    }
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeliveryList {
    data: Vec<DeliveryBody>,
    /// Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// List the deliveries of a webhook
///
/// Delivered ones are kept for a week, and those that were given up for 30 days. With `state`, a page may have fewer
/// deliveries than `limit`, or none, although more follow: go on until `nextCursor` is `null`.
#[utoipa::path(get, path = "/v1/webhooks/{id}/deliveries", operation_id = "listDeliveries", tag = "Notifications",
    params(PageQuery, DeliveriesQuery),
    security(("key" = ["read"])),
    responses((status = 200, body = DeliveryList, description = "Newest first.")))]
async fn deliveries(
    caller: Caller<Read>,
    Id(id): Id<String>,
    Query(paging): Query<PageQuery>,
    Query(DeliveriesQuery { state }): Query<DeliveriesQuery>,
) -> Result<StreamedJson<DeliveryList>, Problem> {
    let (state, paging) = (state.map(DeliveryState::from), paging.paging()?);
    let page = caller.engine().deliveries(caller.user(), &id, state, paging).await?;
    let data = page.data.into_iter().map(DeliveryBody::from).collect();
    Ok(StreamedJson(DeliveryList { data, next_cursor: page.next_cursor }))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PushKey {
    /// The `applicationServerKey` to subscribe with.
    public_key: String,
}

/// Get the key for push subscriptions
#[utoipa::path(get, path = "/v1/push", operation_id = "getPushKey", tag = "Notifications",
    security(("key" = ["read"])),
    responses((status = 200, body = PushKey, description = "The public key of this server.")))]
async fn push_key(caller: Caller<Read>) -> Result<axum::Json<PushKey>, Problem> {
    Ok(axum::Json(PushKey { public_key: caller.engine().vapid_key().await?.public() }))
}

/// What `PushSubscription.toJSON()` returns.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Subscription {
    #[schema(max_length = 2048)]
    endpoint: String,
    keys: SubscriptionKeys,
    /// Not used.
    #[serde(rename = "expirationTime")]
    #[schema(value_type = Option<f64>)]
    _expiration_time: Option<f64>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SubscriptionKeys {
    #[schema(max_length = 128)]
    p256dh: String,
    #[schema(max_length = 64)]
    auth: String,
}

#[derive(Serialize, ToSchema)]
struct Subscribed {
    id: String,
}

/// Add a browser
///
/// Notifications are sent to it by web push, even while no page is open.
#[utoipa::path(post, path = "/v1/push", operation_id = "addPush", tag = "Notifications",
    security(("key" = ["write"])),
    responses((status = 201, body = Subscribed, description = "Added, now or before.")))]
async fn add_push(
    caller: Caller<Write>,
    Json(body): Json<Subscription>,
) -> Result<(StatusCode, axum::Json<Subscribed>), Problem> {
    let SubscriptionKeys { p256dh, auth } = body.keys;
    if !is_push_key(&p256dh, &auth) {
        return Err(Problem::invalid("keys", "must be the keys of a push subscription"));
    }
    let endpoint = check(&caller, "endpoint", &body.endpoint).await?;
    let added = caller.engine().add_push(caller.user(), endpoint, p256dh, auth).await?;
    Ok((StatusCode::CREATED, axum::Json(Subscribed { id: added.id })))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Unsubscribe {
    #[schema(max_length = 2048)]
    endpoint: String,
}

/// Remove a browser
#[utoipa::path(delete, path = "/v1/push", operation_id = "removePush", tag = "Notifications",
    security(("key" = ["write"])),
    responses((status = 204, description = "Removed.")))]
async fn remove_push(caller: Caller<Write>, Json(body): Json<Unsubscribe>) -> Result<StatusCode, Problem> {
    match caller.engine().remove_push(caller.user(), &body.endpoint).await {
        Ok(()) | Err(outlast_engine::EngineError::NotFound) => Ok(StatusCode::NO_CONTENT),
        Err(error) => Err(error.into()),
    }
}
