//! The workspace of a conversation: its files, their content, what changed, and changes that people make.

use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use outlast_core::{Change, CheckpointId, ConversationId, GenerationId};
use outlast_engine::checkpoints::{FileContent, FileKind};
use outlast_engine::{ChangedFile, FILE_BYTES_MAX, FilesPage, WorkspaceFile};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::Id;
use super::caller::{Caller, Read, Write};
use super::error::Problem;
use super::query::{Query, Whole, limit};
use super::streamed::StreamedJson;

/// The default number of files on a page: most projects fit; the maximum follows, which is about 2 MB.
const FILES_USUAL: usize = 1_000;
const FILES_MAX: usize = 10_000;
/// How many files the server receives at once: each is in memory as a whole until it is written.
static UPLOADS: Semaphore = Semaphore::const_new(16);

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(content, put, remove)).routes(routes!(diff))
}

/// Ordered by path.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FilePage {
    data: Vec<File>,
    /// The checkpoint that is listed; null if none was taken yet.
    #[schema(required, value_type = Option<String>)]
    checkpoint: Option<CheckpointId>,
    /// Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A file or link of a workspace.
#[derive(Serialize, ToSchema)]
#[schema(as = WorkspaceFile)]
pub(crate) struct File {
    /// Relative to the workspace.
    path: String,
    size: u64,
    /// Permission bits.
    mode: u32,
    /// BLAKE3 of the content, 64 hexadecimal digits; for a link, of its target.
    #[schema(value_type = String)]
    hash: String,
    /// Compared with the state before the generation in `since`. Null if it is the same, or without `since`.
    #[schema(required)]
    change: Option<Change>,
    /// What the model said about it.
    #[schema(required)]
    description: Option<String>,
}

impl From<WorkspaceFile> for File {
    fn from(file: WorkspaceFile) -> File {
        let WorkspaceFile { path, size, mode, hash, change, description } = file;
        File { path, size, mode, hash: hash.to_string(), change, description }
    }
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FilesQuery {
    /// A generation of the conversation. Each file says how it differs from the state before that generation, and
    /// deleted files are listed too.
    #[param(value_type = Option<String>)]
    since: Option<GenerationId>,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// At most this many; more than 10000 means 10000.
    #[param(value_type = Option<u64>, minimum = 1, default = 1000)]
    limit: Option<Whole>,
}

/// List the files of the workspace
///
/// As of the newest checkpoint, which is taken after every round that may have changed files.
#[utoipa::path(get, path = "/v1/conversations/{id}/files", operation_id = "listFiles", tag = "Files",
    params(FilesQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, body = FilePage, description = "One page."),
        (status = 410, description = "`gone`: the state before the generation in `since` is no longer kept."),
    ))]
async fn list(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    Query(query): Query<FilesQuery>,
) -> Result<StreamedJson<FilePage>, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    let limit = limit(query.limit, FILES_USUAL, FILES_MAX)?;
    let page = FilesPage { since: query.since, cursor: query.cursor, limit };
    let files = caller.engine().files(caller.user(), &id, page).await?;
    Ok(StreamedJson(FilePage {
        data: files.data.into_iter().map(File::from).collect(),
        checkpoint: files.checkpoint,
        next_cursor: files.next_cursor,
    }))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ContentQuery {
    /// An older checkpoint, from `checkpoint.taken` or a list of files.
    checkpoint: Option<String>,
}

/// Download a file
///
/// The path may contain slashes. A symbolic link has no content: 404.
#[utoipa::path(get, path = "/v1/conversations/{id}/files/{*path}", operation_id = "getFile", tag = "Files",
    params(ContentQuery),
    security(("key" = ["read"])),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>,
        description = "The content, as an attachment.")))]
async fn content(
    caller: Caller<Read>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    Query(query): Query<ContentQuery>,
) -> Result<Response, Problem> {
    let Path((id, path)) = path.map_err(|_| Problem::not_found())?;
    let id = caller.engine().thread(caller.user(), &id).await?;
    let file = caller.engine().open_file(caller.user(), &id, &path, query.checkpoint.as_deref()).await?;
    if file.version.kind != FileKind::File {
        return Err(Problem::not_found());
    }
    let length = HeaderValue::from(file.version.size);
    let mut response = attachment(Body::from_stream(pieces(file)), file_name(&path));
    response.headers_mut().insert(header::CONTENT_LENGTH, length);
    Ok(response)
}

/// A file that was put into the workspace.
#[derive(Serialize, ToSchema)]
pub(crate) struct PutFile {
    /// Relative to the workspace.
    path: String,
    size: u64,
    /// BLAKE3 of the content, 64 hexadecimal digits.
    hash: String,
    change: Change,
    /// The checkpoint that has the file. Null if it could not be saved yet: then the file is in the sandbox, and will be in
    /// the next checkpoint.
    #[schema(required, value_type = Option<String>)]
    checkpoint: Option<CheckpointId>,
}

/// Put a file into the workspace
///
/// Creates or replaces a file of at most 16 MiB, with the folders above it. The body is its content. A file that is
/// replaced keeps its mode. Links are not followed. The response comes when the file is saved in a checkpoint.
#[utoipa::path(put, path = "/v1/conversations/{id}/files/{*path}", operation_id = "putFile", tag = "Files",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    security(("key" = ["write"])),
    responses(
        (status = 200, body = PutFile, description = "The file is there."),
        (status = 409, description = "`tool_running`: a tool runs in the conversation."),
        (status = 413, description = "`too_large`: the file is too large, or the workspace has no room for it."),
        (status = 422, description = "`invalid_request`: there can be no file under this path."),
    ))]
async fn put(
    caller: Caller<Write>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    request: Request,
) -> Result<axum::Json<PutFile>, Problem> {
    let Path((id, path)) = path.map_err(|_| Problem::not_found())?;
    let id = caller.engine().thread(caller.user(), &id).await?;
    let _room = UPLOADS.try_acquire().map_err(|_| Problem::too_many_uploads())?;
    let content = super::body::read(request, FILE_BYTES_MAX).await?;
    let size = content.len() as u64;
    let file = caller.engine().put_file(caller.user(), &id, &path, content).await?;
    let ChangedFile { path, change, hash, checkpoint, .. } = file;
    let hash = hash.map(|hash| hash.to_string()).unwrap_or_default();
    Ok(axum::Json(PutFile { path, size, hash, change, checkpoint }))
}

/// Take a file away
///
/// Removes a file, or a link itself, from the workspace. Folders stay.
#[utoipa::path(delete, path = "/v1/conversations/{id}/files/{*path}", operation_id = "deleteFile", tag = "Files",
    security(("key" = ["write"])),
    responses(
        (status = 204, description = "The file is gone."),
        (status = 409, description = "`tool_running`: a tool runs in the conversation."),
        (status = 422, description = "`invalid_request`: there can be no file under this path."),
    ))]
async fn remove(
    caller: Caller<Write>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<StatusCode, Problem> {
    let Path((id, path)) = path.map_err(|_| Problem::not_found())?;
    let id = caller.engine().thread(caller.user(), &id).await?;
    caller.engine().delete_file(caller.user(), &id, &path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The content in pieces, each verified. An error breaks the response off, so that nobody takes a part for the whole.
fn pieces(
    file: FileContent,
) -> impl futures_util::Stream<Item = Result<axum::body::Bytes, outlast_engine::checkpoints::CheckpointError>>
{
    stream::try_unfold(file, async |mut file| Ok(file.next().await?.map(|piece| (piece, file))))
}

/// Never shown by a browser as a page of ours: what a model wrote may be a script.
pub(super) fn attachment(body: Body, name: &str) -> Response {
    let quoted: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '"' && c != '\\' { c } else { '_' }).collect();
    let encoded: String =
        form_urlencoded::byte_serialize(name.as_bytes()).collect::<String>().replace('+', "%20");
    let disposition = format!("attachment; filename=\"{quoted}\"; filename*=UTF-8''{encoded}");
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(disposition) = HeaderValue::from_str(&disposition) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct DiffQuery {
    /// A generation of the conversation. Without it, every file counts as new.
    #[param(value_type = Option<String>)]
    since: Option<GenerationId>,
}

/// Compare the workspace
///
/// A unified diff of text files since the state before a generation, in the form that `git apply` takes. At most 1 MiB;
/// a line in brackets says what was left out.
#[utoipa::path(get, path = "/v1/conversations/{id}/diff", operation_id = "getDiff", tag = "Files",
    params(DiffQuery),
    security(("key" = ["read"])),
    responses(
        (status = 200, content_type = "text/plain", body = String, description = "The diff; empty if nothing changed."),
        (status = 410, description = "`gone`: the state before the generation in `since` is no longer kept."),
    ))]
async fn diff(
    caller: Caller<Read>,
    Id(id): Id<ConversationId>,
    Query(query): Query<DiffQuery>,
) -> Result<Response, Problem> {
    let id = caller.engine().thread(caller.user(), id.as_str()).await?;
    let diff = caller.engine().diff(caller.user(), &id, query.since.as_ref()).await?;
    let mut response = diff.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
