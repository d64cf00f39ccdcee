//! Conversations: create, list, read, change, delete.

use axum::http::{HeaderMap, StatusCode};
use outlast_core::{ConversationDocument, ConversationId, ConversationView, Message, Seq};
use outlast_engine::{ConversationFilter, MetadataTag, NewConversation};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{Id, Json, RequestName, request_id};
use super::caller::{Caller, Read, Write};
use super::error::Problem;
use super::free::{Key, Metadata, Title};
use super::query::{Fields, PageQuery, Query, Whole, limit};
use super::streamed::StreamedJson;

/// The default number of messages in a view or page: more than a screen shows.
pub(crate) const MESSAGES_USUAL: usize = 200;
const MESSAGES_MAX: usize = 1_000;

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(read, update, delete))
        .routes(routes!(messages))
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CreateConversation {
    title: Option<Title>,
    metadata: Option<Metadata>,
    /// Your own key for the conversation, such as the id of a screen. At most one of your conversations has it:
    /// creating it again returns that one.
    key: Option<Key>,
    /// Idempotency key: repeating the request creates nothing new.
    request_id: Option<RequestName>,
}

/// Absent fields are left unchanged.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ConversationChange {
    /// Null clears the title.
    #[serde(default, deserialize_with = "even_null")]
    #[schema(value_type = Option<Title>)]
    title: Option<Option<Title>>,
    /// Replaced as a whole. Null clears the metadata.
    #[serde(default, deserialize_with = "even_null")]
    #[schema(value_type = Option<Metadata>)]
    metadata: Option<Option<Metadata>>,
    #[serde(rename = "requestId")]
    _request_id: Option<RequestName>,
}

/// Serde reads null as absent. Here null is a value.
fn even_null<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ConversationPage {
    data: Vec<ConversationDocument>,
    /// Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MessagePage {
    /// Ascending.
    data: Vec<Message>,
    /// Whether there are older messages.
    has_more: bool,
}

/// Create a conversation
#[utoipa::path(post, path = "/v1/conversations", operation_id = "createConversation", tag = "Conversations",
    security(("key" = ["write"])),
    responses(
        (status = 201, body = ConversationDocument, description = "Created, now or by an earlier request with the same id or key."),
        (status = 409, description = "`idempotency_conflict`: it was created with a different title or different metadata."),
    ))]
async fn create(
    caller: Caller<Write>,
    headers: HeaderMap,
    Json(body): Json<CreateConversation>,
) -> Result<(StatusCode, axum::Json<ConversationDocument>), Problem> {
    caller.may_store().await?;
    let request = request_id(&headers, body.request_id);
    let (title, metadata) = (body.title.map(|Title(title)| title), body.metadata.map(Value::from));
    let new = NewConversation { title, metadata, key: body.key.map(|Key(key)| key), request };
    let id = caller.engine().create_conversation(caller.user(), new).await?;
    let view = caller.engine().view(caller.user(), &id, 0).await?;
    Ok((StatusCode::CREATED, axum::Json(view.conversation)))
}

/// List conversations
///
/// Newest first. Metadata fields with text, a number or a boolean can be searched: the first 32 by name, if the
/// name and the value together have at most 500 bytes.
#[utoipa::path(get, path = "/v1/conversations", operation_id = "listConversations", tag = "Conversations",
    params(PageQuery, FilterQuery),
    security(("key" = ["read"])),
    responses((status = 200, body = ConversationPage, description = "One page.")))]
async fn list(
    caller: Caller<Read>,
    Query(page): Query<PageQuery>,
    Query(filter): Query<FilterQuery>,
    Fields(metadata): Fields,
) -> Result<StreamedJson<ConversationPage>, Problem> {
    let filter = ConversationFilter { key: filter.key, metadata: metadata_tag(metadata)? };
    let page = caller.engine().conversations(caller.user(), filter, page.paging()?).await?;
    Ok(StreamedJson(ConversationPage { data: page.data, next_cursor: page.next_cursor }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FilterQuery {
    /// Only the conversation with this key.
    key: Option<String>,
    /// Only conversations whose metadata have this value in this field: `metadata[projectId]=p1`. One field at most.
    #[serde(skip)]
    #[param(style = DeepObject, explode = true, value_type = Option<BTreeMap<String, String>>)]
    #[allow(dead_code, reason = "Fields reads it; here it is described")]
    metadata: (),
}

fn metadata_tag(fields: Vec<(String, String)>) -> Result<Option<MetadataTag>, Problem> {
    let [(field, value)] = &fields[..] else {
        return match fields.is_empty() {
            true => Ok(None),
            false => Err(Problem::invalid("metadata", "can be searched by one field at a time")),
        };
    };
    let tag = MetadataTag::new(field, value);
    tag.map(Some).ok_or_else(|| Problem::invalid("metadata", "is too long to be searched for"))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ViewQuery {
    /// At most this many messages; more than 1000 means 1000.
    #[param(value_type = Option<u64>, minimum = 1, default = 200)]
    limit: Option<Whole>,
}

/// Read a conversation
///
/// Everything needed to show it: the newest messages, the running generation, and where its events continue.
#[utoipa::path(get, path = "/v1/conversations/{id}", operation_id = "getConversation", tag = "Conversations",
    params(ViewQuery),
    security(("key" = ["read"])),
    responses((status = 200, body = ConversationView, description = "The view.")))]
async fn read(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    Query(query): Query<ViewQuery>,
) -> Result<StreamedJson<ConversationView>, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    let limit = limit(query.limit, MESSAGES_USUAL, MESSAGES_MAX)?;
    Ok(StreamedJson(caller.engine().view(caller.user(), &id, limit).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct MessagesQuery {
    /// Only messages that began before this position.
    #[param(value_type = Option<u64>)]
    before: Option<Whole>,
    /// At most this many messages; more than 1000 means 1000.
    #[param(value_type = Option<u64>, minimum = 1, default = 200)]
    limit: Option<Whole>,
}

/// Read older messages
#[utoipa::path(get, path = "/v1/conversations/{id}/messages", operation_id = "listMessages", tag = "Conversations",
    params(MessagesQuery),
    security(("key" = ["read"])),
    responses((status = 200, body = MessagePage, description = "One page.")))]
async fn messages(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    Query(query): Query<MessagesQuery>,
) -> Result<StreamedJson<MessagePage>, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    let limit = limit(query.limit, MESSAGES_USUAL, MESSAGES_MAX)?;
    let before = query.before.map(|Whole(seq)| Seq(seq));
    let (data, has_more) = caller.engine().messages(caller.user(), &id, before, limit).await?;
    Ok(StreamedJson(MessagePage { data, has_more }))
}

/// Change title or metadata
#[utoipa::path(patch, path = "/v1/conversations/{id}", operation_id = "updateConversation", tag = "Conversations",
    security(("key" = ["write"])),
    responses((status = 200, body = ConversationDocument, description = "The conversation as it is now.")))]
async fn update(
    caller: Caller<Write>,
    Id(id): Id<ConversationId>,
    Json(body): Json<ConversationChange>,
) -> Result<axum::Json<ConversationDocument>, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    caller.may_store().await?;
    let title = body.title.map(|title| title.map(|Title(title)| title));
    let metadata = body.metadata.map(|metadata| metadata.map_or(Value::Null, Value::from));
    caller.engine().update_conversation(caller.user(), &id, title, metadata).await?;
    let view = caller.engine().view(caller.user(), &id, 0).await?;
    Ok(axum::Json(view.conversation))
}

/// Delete a conversation
///
/// Messages and events are removed; a running generation is cancelled.
#[utoipa::path(delete, path = "/v1/conversations/{id}", operation_id = "deleteConversation", tag = "Conversations",
    security(("key" = ["write"])),
    responses((status = 204, description = "Deleted.")))]
async fn delete(caller: Caller<Write>, Id(id): Id<ConversationId>) -> Result<StatusCode, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    caller.engine().delete_conversation(caller.user(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
