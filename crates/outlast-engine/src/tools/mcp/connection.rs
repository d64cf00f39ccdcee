//! A connection to a server, in the words of the library that speaks the protocol. They stop here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities, ClientConfig,
    ClientRequest, Implementation, JsonObject, ListToolsRequest, PaginatedRequestParams,
    ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestId, RequestMetaObject, ServerResult,
};
#[expect(deprecated, reason = "no server gets a list of roots")]
use rmcp::model::{ListRootsRequestMethod, ListRootsResult};
use rmcp::service::{
    ClientInitializeError, NotificationContext, PeerRequestOptions, RequestContext, RunningService,
    RxJsonRpcMessage, TxJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig, StreamableHttpError,
};
use rmcp::{ClientHandler, ErrorData, Peer, RoleClient, ServiceError, serve_client};
use serde_json::Value;
use tokio::sync::{Notify, broadcast, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::elsewhere::{Answer, Asked};
use super::http::Guarded;
use super::listing::{Described, LIST_BYTES_MAX, TOOLS_MAX};
use super::program::{self, Running};
use super::result::{refused, said};
use super::{MESSAGE_BYTES_MAX, McpAddress, McpSettings};
use crate::outside::OutsideError;

/// How many pages a list of tools may have.
const PAGES_MAX: usize = 32;
/// News about progress that wait to be read. A call that reads too slowly misses some.
const PROGRESS_KEPT: usize = 64;
/// Calls that were given up and of which the server must still be told.
const CANCELS: usize = 64;
/// How long the server may take to hear of one.
const CANCEL_WITHIN: Duration = Duration::from_secs(5);
/// How long the other side may take to end the connection.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);
/// How often a stream that broke is opened again, to receive an answer that the server still has.
const STREAM_TRIES: usize = 3;
/// The longest message of an error that a model reads.
const ERROR_BYTES_MAX: usize = 4 * 1024;
/// Where a server finds the execution id, if it wants to tell whether it was asked before.
const EXECUTION_ID: &str = "outlast/executionId";

/// A connection, and what only its owner does with it.
pub(super) struct Connection {
    pub(super) line: Arc<Line>,
    service: RunningService<RoleClient, Ears>,
    program: Option<Running>,
    cancels: mpsc::Receiver<RequestId>,
}

/// What calls need of a connection.
pub(super) struct Line {
    peer: Peer<RoleClient>,
    progress: broadcast::Sender<(ProgressToken, String)>,
    cancels: mpsc::Sender<RequestId>,
    /// The server says that its list has changed.
    pub(super) list_changed: Arc<Notify>,
    /// Cancelled when the connection has ended.
    pub(super) closed: CancellationToken,
}

/// A transport that says when nobody uses it any more, because the library does not.
struct Watched<T> {
    transport: T,
    _closed: DropGuard,
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Watched<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.transport.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleClient>>> + Send {
        self.transport.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), T::Error>> + Send {
        self.transport.close()
    }
}

/// What the server may say without being asked. It is offered no sampling, no roots and no questions to people.
struct Ears {
    progress: broadcast::Sender<(ProgressToken, String)>,
    list_changed: Arc<Notify>,
}

impl ClientHandler for Ears {
    fn get_info(&self) -> ClientConfig {
        let client = Implementation::new("outlast", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), client)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    // The default is an empty list.
    #[expect(deprecated, reason = "no server gets a list of roots")]
    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn on_progress(&self, news: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let steps = match news.total {
            Some(total) => format!("{}/{total}", news.progress),
            None => news.progress.to_string(),
        };
        let line = news.message.map_or(steps.clone(), |message| format!("{steps} {message}"));
        self.progress.send((news.progress_token, line)).ok(); // nobody waits for it any more
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.list_changed.notify_one();
    }
}

impl Connection {
    /// Connects and shakes hands. The error is for people, and says nothing that the server said.
    pub(super) async fn open(settings: &McpSettings) -> Result<Connection, String> {
        let (progress, list_changed) = (broadcast::Sender::new(PROGRESS_KEPT), Arc::new(Notify::new()));
        let ears = Ears { progress: progress.clone(), list_changed: list_changed.clone() };
        let closed = CancellationToken::new();
        let (service, program) = match &settings.address {
            McpAddress::Url { url, outside, headers } => {
                let client = Guarded { outside: outside.clone(), headers: headers.clone() };
                let transport = StreamableHttpClientTransport::with_client(client, http_config(url));
                let transport = Watched { transport, _closed: closed.clone().drop_guard() };
                (serve_client(ears, transport).await, None)
            }
            McpAddress::Program(command) => {
                let (transport, mut running) = program::start(command)?;
                let transport = Watched { transport, _closed: closed.clone().drop_guard() };
                let service = tokio::select! {
                    service = serve_client(ears, transport) => service,
                    never = running.log(&settings.name) => match never {},
                };
                (service, Some(running))
            }
        };
        let service = service.map_err(|error| why(&error))?;
        let (cancel, cancels) = mpsc::channel(CANCELS);
        let line = Line { peer: service.peer().clone(), progress, cancels: cancel, list_changed, closed };
        Ok(Connection { line: Arc::new(line), service, program, cancels })
    }

    /// Tells the server about calls that were given up, and logs what a program writes.
    pub(super) async fn serve(&mut self, server: &str) -> Infallible {
        let Connection { line, program, cancels, .. } = self;
        let logged = async {
            match program {
                Some(program) => program.log(server).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(logged);
        loop {
            let id = tokio::select! {
                never = &mut logged => return never,
                Some(id) = cancels.recv() => id,
            };
            let given_up = CancelledNotificationParam::new(Some(id), None);
            if tokio::time::timeout(CANCEL_WITHIN, line.peer.notify_cancelled(given_up)).await.is_err() {
                tracing::warn!(server, "an MCP server could not be told that a call was cancelled");
            }
        }
    }

    pub(super) async fn close(mut self) {
        self.service.close_with_timeout(CLOSE_WITHIN).await.ok(); // ended one way or another
        if let Some(program) = self.program {
            program.end().await;
        }
    }
}

impl Line {
    /// All tools, as the server describes them. The error is for people.
    pub(super) async fn list(&self) -> Result<Vec<Described>, String> {
        let (mut tools, mut bytes, mut cursor) = (Vec::new(), 0, None);
        for _ in 0..PAGES_MAX {
            // Not by the library's own method, which may answer from its cache.
            let request = ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(cursor));
            let listed = self.peer.send_request(ClientRequest::ListToolsRequest(request)).await;
            let Ok(ServerResult::ListToolsResult(page)) = listed else {
                return Err("it did not list its tools".to_owned());
            };
            for tool in page.tools {
                let schema = Value::Object(Arc::unwrap_or_clone(tool.input_schema));
                let description = tool.description.map(|text| text.into_owned());
                bytes += schema.to_string().len() + description.as_ref().map_or(0, String::len);
                tools.push(Described { name: tool.name.into_owned(), description, schema });
            }
            cursor = page.next_cursor;
            // What is over the limit is refused as a whole, so there is no need to read on.
            if cursor.is_none() || tools.len() > TOOLS_MAX || bytes > LIST_BYTES_MAX {
                return Ok(tools);
            }
        }
        Err(format!("its list of tools has more than {PAGES_MAX} pages"))
    }

    /// Asks once. If this is dropped, the server is told that nobody waits any more.
    pub(super) async fn call(&self, tool: &str, call: Asked<'_>, within: Duration) -> Answer {
        let mut params = CallToolRequestParams::new(tool.to_owned());
        params.arguments = call.input.as_object().cloned();
        let request = CallToolRequest::new(params);
        let mut meta = JsonObject::new();
        meta.insert(EXECUTION_ID.to_owned(), call.execution.as_str().into());
        let options = PeerRequestOptions::no_options().with_meta(RequestMetaObject::from(meta));
        // Heard from before the request is sent, so that nothing is missed.
        let mut progress = self.progress.subscribe();
        let request = ClientRequest::CallToolRequest(request);
        let Ok(sent) = self.peer.send_cancellable_request(request, options).await else {
            return Answer::NotAsked("the connection was closed".to_owned());
        };
        let mut given_up = CancelOnDrop { id: Some(sent.id.clone()), cancels: &self.cancels };
        let token = sent.progress_token.clone();
        let (response, late) = (sent.await_response(), tokio::time::sleep(within));
        tokio::pin!(response, late);
        loop {
            tokio::select! {
                answered = &mut response => {
                    given_up.id = None;
                    return answer(answered);
                }
                () = &mut late => return Answer::Unanswered("timed out".to_owned()),
                news = progress.recv() => if let Ok((of, line)) = news && of == token {
                    call.progress.try_send(line).ok(); // what nobody reads in time is left out
                },
            }
        }
    }
}

struct CancelOnDrop<'a> {
    id: Option<RequestId>,
    cancels: &'a mpsc::Sender<RequestId>,
}

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.take() {
            self.cancels.try_send(id).ok(); // a full queue means that the server does not listen
        }
    }
}

fn http_config(url: &str) -> StreamableHttpClientTransportConfig {
    let mut tries = rmcp::transport::common::client_side_sse::ExponentialBackoff::default();
    tries.max_times = Some(STREAM_TRIES);
    let mut config = StreamableHttpClientTransportConfig::with_uri(url)
        .max_sse_event_size(MESSAGE_BYTES_MAX)
        // It would send calls again, and whether that is allowed is not for the library to decide.
        .reinit_on_expired_session(false);
    config.retry_config = Arc::new(tries);
    config
}

fn answer(answered: Result<ServerResult, ServiceError>) -> Answer {
    match answered {
        Ok(ServerResult::CallToolResult(result)) => said(result),
        Ok(ServerResult::InputRequiredResult(_)) => {
            refused("the tool asks for input from a person, which is not supported".to_owned())
        }
        Ok(ServerResult::CreateTaskResult(_)) => {
            refused("the tool wants to answer later, which is not supported".to_owned())
        }
        Ok(_) => refused("the server's response is not the result of a tool".to_owned()),
        Err(ServiceError::McpError(error)) => {
            let text = format!("error {}: {}", error.code.0, error.message);
            let end = (0..=ERROR_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            refused(text[..end.unwrap_or(0)].to_owned())
        }
        Err(ServiceError::TransportSend(error)) => not_sent(&*error.error),
        Err(_) => Answer::Unanswered("the connection was closed".to_owned()),
    }
}

/// Whether a request that could not be sent has certainly not been received.
fn not_sent(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Answer {
    match error.downcast_ref::<StreamableHttpError<OutsideError>>() {
        Some(StreamableHttpError::Client(OutsideError::Refused(why) | OutsideError::Unreachable(why))) => {
            Answer::NotAsked(why.clone())
        }
        Some(StreamableHttpError::SessionExpired) => Answer::NotAsked("the server was restarted".to_owned()),
        Some(StreamableHttpError::Client(error)) => Answer::Unanswered(error.to_string()),
        Some(StreamableHttpError::UnexpectedServerResponse(why)) => {
            refused(format!("the server responded: {why}"))
        }
        _ => Answer::Unanswered("the connection broke".to_owned()),
    }
}

/// Why no connection came about, without a word of the server's.
fn why(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => match not_sent(&*error.error) {
            Answer::NotAsked(why) | Answer::Unanswered(why) => why,
            Answer::Said { result, .. } => result.as_str().unwrap_or_default().to_owned(),
        },
        ClientInitializeError::ConnectionClosed(_) => "the connection was closed".to_owned(),
        ClientInitializeError::JsonRpcError(error) => format!("it refused to begin: error {}", error.code.0),
        _ => "it does not speak the protocol".to_owned(),
    }
}
