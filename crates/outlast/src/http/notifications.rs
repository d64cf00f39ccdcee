//! What a user was told while nobody watched: the list, its live stream, and the links that lead to a decision.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream::{self, Stream};
use outlast_core::{
    ConversationId, Decided, Decision, GenerationId, NotificationId, NotificationKind, Timestamp, UserId,
};
use outlast_engine::{Bell, Engine, Inbox, Notification, ToolDecision};
use outlast_store::StoreError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, RequestName};
use super::caller::{Approve, Caller, Read, Write};
use super::error::Problem;
use super::events::{KEEP_ALIVE, event_stream};
use super::free::{Sentences, Short};
use super::generations::Outcome;
use super::per_user::Open;
use super::streamed::StreamedJson;
use crate::auth::Principal;

/// How often a silent stream sends a comment.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// Between two looks at the whole list, a stream only looks whether there is a newer notification. What was marked as
/// read at another instance is therefore seen within half a minute.
const GLANCES: u32 = 5;
/// A link that decides is valid for this long.
const LINK_LIVES: Duration = Duration::from_secs(7 * 24 * 60 * 60);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(follow))
        .routes(routes!(read_all))
        .routes(routes!(read))
        .routes(routes!(question, decide))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Notification)]
pub(crate) struct NotificationBody {
    id: NotificationId,
    kind: NotificationKind,
    conversation_id: ConversationId,
    generation_id: GenerationId,
    /// The conversation's title when it happened.
    #[schema(required)]
    title: Option<String>,
    created_at: Timestamp,
    #[schema(required)]
    read_at: Option<Timestamp>,
    /// The tool call that waits for a decision. Only for kind `approval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tool_use_id: Option<String>,
}

impl From<Notification> for NotificationBody {
    fn from(one: Notification) -> NotificationBody {
        let Notification { id, kind, conversation_id, generation_id, title, created_at, read_at, .. } = one;
        let tool_use_id = one.tool_use_id;
        NotificationBody { id, kind, conversation_id, generation_id, title, created_at, read_at, tool_use_id }
    }
}

#[derive(Serialize, ToSchema)]
pub(crate) struct NotificationList {
    /// Newest first. Old ones are removed, so this is all of them.
    data: Vec<NotificationBody>,
    /// How many of them have not been read.
    unread: usize,
}

/// List notifications
///
/// What happened while nobody was watching: generations that ended or that wait for a person.
#[utoipa::path(get, path = "/v1/notifications", operation_id = "listNotifications", tag = "Notifications",
    security(("key" = ["read"])),
    responses((status = 200, body = NotificationList, description = "The newest notifications.")))]
async fn list(caller: Caller<Read>) -> Result<StreamedJson<NotificationList>, Problem> {
    let Inbox { notifications, unread } = caller.engine().notifications(caller.user()).await?;
    let data = notifications.into_iter().map(NotificationBody::from).collect();
    Ok(StreamedJson(NotificationList { data, unread }))
}

/// Mark a notification as read
#[utoipa::path(post, path = "/v1/notifications/{id}/read", operation_id = "readNotification", tag = "Notifications",
    security(("key" = ["write"])),
    responses((status = 200, body = NotificationBody, description = "Read, now or before.")))]
async fn read(
    caller: Caller<Write>,
    Id(id): Id<NotificationId>,
    Json(_body): Json<Nothing>,
) -> Result<axum::Json<NotificationBody>, Problem> {
    Ok(axum::Json(caller.engine().mark_read(caller.user(), &id).await?.into()))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = EmptyBody)]
struct Nothing {
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

#[derive(Serialize, ToSchema)]
struct AllRead {
    /// How many were not read before.
    read: usize,
}

/// Mark all notifications as read
#[utoipa::path(post, path = "/v1/notifications/read", operation_id = "readAllNotifications", tag = "Notifications",
    security(("key" = ["write"])),
    responses((status = 200, body = AllRead, description = "All are read.")))]
async fn read_all(caller: Caller<Write>, Json(_body): Json<Nothing>) -> Result<axum::Json<AllRead>, Problem> {
    Ok(axum::Json(AllRead { read: caller.engine().mark_all_read(caller.user()).await? }))
}

/// A frame of the stream of notifications, as SSE parsers return it.
#[derive(ToSchema)]
#[schema(as = NotificationFrame)]
#[allow(dead_code)] // only its schema is used
struct FrameSchema {
    /// `notification` or `unread`.
    event: String,
    /// A `Notification`, or `{"unread": 3}`.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// Follow notifications
///
/// First how many are unread, then each notification when it arrives, and the count when it changes. The stream has no
/// positions: after reconnecting, read the list again.
#[utoipa::path(get, path = "/v1/notifications/events", operation_id = "followNotifications", tag = "Notifications",
    security(("key" = ["read"])),
    responses(
        (status = 200, body = FrameSchema, content_type = "text/event-stream", description = "The stream."),
        (status = 429, description = "`limit_reached`: too many streams."),
    ))]
async fn follow(caller: Caller<Read>) -> Result<Response, Problem> {
    let (engine, user) = (caller.engine().clone(), caller.user().clone());
    let bell = engine.bell(&user)?;
    let (unsent, open) = (VecDeque::new(), caller.open_stream()?);
    let news =
        News { engine, user, bell, known: None, newest: None, glances: 0, unread: None, unsent, _open: open };
    Ok(event_stream(frames(news, caller.principal().clone())))
}

/// What one stream has shown.
struct News {
    engine: Engine,
    user: UserId,
    bell: Bell,
    /// The notifications that were there when it last looked. `None` before the first look.
    known: Option<HashSet<NotificationId>>,
    newest: Option<NotificationId>,
    /// How often it has only looked at the newest one since then.
    glances: u32,
    unread: Option<usize>,
    unsent: VecDeque<Bytes>,
    _open: Open,
}

impl News {
    /// Waits until the list may have changed, and looks.
    async fn wait_and_look(&mut self) -> Result<(), StoreError> {
        if self.known.is_some() && !self.bell.rung().await && self.glances < GLANCES {
            self.glances += 1;
            if self.engine.newest_notification(&self.user).await? == self.newest {
                return Ok(());
            }
        }
        self.look().await
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        self.glances = 0;
        let Inbox { notifications, unread } = self.engine.notifications(&self.user).await?;
        self.newest = notifications.first().map(|one| one.id.clone());
        let ids = notifications.iter().map(|one| one.id.clone()).collect();
        if let Some(known) = self.known.replace(ids) {
            let new = notifications.into_iter().filter(|one| !known.contains(&one.id));
            let mut new: Vec<NotificationBody> = new.map(NotificationBody::from).collect();
            new.reverse(); // oldest first
            self.unsent.extend(new.iter().map(|one| frame("notification", one)));
        }
        if self.unread.replace(unread) != Some(unread) {
            self.unsent.push_back(frame("unread", &serde_json::json!({"unread": unread})));
        }
        Ok(())
    }
}

fn frame(event: &str, data: &impl Serialize) -> Bytes {
    let data = serde_json::to_string(data).expect("our own types have string keys");
    format!("event: {event}\ndata: {data}\n\n").into()
}

fn frames(news: News, principal: Principal) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((news, principal), |(mut news, principal)| async move {
        let stopping = news.engine.stopping();
        let silent_until = Instant::now() + SILENCE_MAX;
        let next = async {
            loop {
                if let Some(frame) = news.unsent.pop_front() {
                    return Some(frame);
                }
                match news.wait_and_look().await {
                    Ok(()) if news.unsent.is_empty() && Instant::now() >= silent_until => {
                        return Some(KEEP_ALIVE);
                    }
                    Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(%error, "cannot read notifications; ended a stream");
                        return None;
                    }
                }
            }
        };
        let frame = tokio::select! {
            biased;
            () = principal.ended() => None,
            () = stopping.cancelled() => None,
            frame = next => frame,
        };
        frame.map(|frame| (Ok(frame), (news, principal)))
    })
}

/// The question behind a notification of kind `approval`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Question {
    notification_id: NotificationId,
    conversation_id: ConversationId,
    generation_id: GenerationId,
    #[schema(required)]
    title: Option<String>,
    tool_use_id: String,
    /// Whether it still waits for a decision. If not, tool and arguments are not shown.
    open: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    tool_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_input: Option<Value>,
    expires_at: Timestamp,
}

/// Read the question of a notification
///
/// For a page that a link opens. It decides nothing.
#[utoipa::path(get, path = "/v1/notifications/{id}/approval", operation_id = "getQuestion", tag = "Notifications",
    security(("key" = ["read"])),
    responses((status = 200, body = Question, description = "The question.")))]
async fn question(caller: Caller<Read>, Id(id): Id<NotificationId>) -> Result<axum::Json<Question>, Problem> {
    let one = caller.engine().notification(caller.user(), &id).await?;
    let (Some(tool_use_id), Some(hash)) = (one.tool_use_id.clone(), one.hash.clone()) else {
        return Err(Problem::not_found());
    };
    let expires_at = one.created_at.after(LINK_LIVES);
    let generation = caller.engine().generation(caller.user(), &one.generation_id).await?;
    let asked = generation.pending_approval.filter(|asked| asked.hash == hash);
    let asked = asked.filter(|_| one.decided_at.is_none() && caller.app().auth().now() < expires_at);
    let (tool_name, tool_input) = asked.map(|asked| (asked.tool_name, asked.tool_input)).unzip();
    Ok(axum::Json(Question {
        notification_id: one.id,
        conversation_id: one.conversation_id,
        generation_id: one.generation_id,
        title: one.title,
        tool_use_id,
        open: tool_name.is_some(),
        tool_name,
        tool_input,
        expires_at,
    }))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct LinkDecision {
    decision: Decision,
    /// Why, for the record.
    #[schema(value_type = Option<String>, max_length = 2048)]
    reason: Option<Sentences>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// Decide about the question of a notification
///
/// Works once, for the question that the notification is about and no other, until the link expires.
#[utoipa::path(post, path = "/v1/notifications/{id}/approval", operation_id = "decideQuestion", tag = "Notifications",
    security(("key" = ["approve"])),
    responses(
        (status = 200, body = Outcome, description = "Decided. The decision is durable."),
        (status = 409, description = "`link_used`, `link_expired`, `already_decided`, `approval_changed` or `already_ended`."),
        (status = 429, description = "`limit_reached`: too many live generations."),
    ))]
async fn decide(
    caller: Caller<Approve>,
    Id(id): Id<NotificationId>,
    Json(body): Json<LinkDecision>,
) -> Result<axum::Json<Outcome>, Problem> {
    let (engine, user) = (caller.engine(), caller.user());
    let one = engine.notification(user, &id).await?;
    let (Some(tool_use_id), Some(hash)) = (one.tool_use_id, one.hash) else {
        return Err(Problem::not_found());
    };
    if one.decided_at.is_some() {
        return Err(outlast_engine::EngineError::LinkUsed.into());
    }
    if one.created_at.after(LINK_LIVES) <= caller.app().auth().now() {
        return Err(Problem::link_expired());
    }
    let by = user.as_str().to_owned();
    let reason = body.reason.map(|Short(reason)| reason);
    let decided = Decided { decision: body.decision, by, reason, always: false, pattern: None };
    let decision = ToolDecision { tool_use_id, hash: Some(hash), decided };
    // The engine accepts one decision. The link is marked after it, so that a failure does not waste the link.
    let outcome = engine.decide(user, &one.generation_id, decision).await?;
    engine.use_link(user, &id).await?;
    Ok(axum::Json(outcome.into()))
}
