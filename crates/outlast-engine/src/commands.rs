//! The commands of clients.

use outlast_core::{
    Brief, ChildQuestion, Command, ConversationId, Decide, Decided, Earlier, GenerationId, GenerationStatus,
    MessageId, Part, Producer, Refusal, RequestId, Retry, RetryMode, Role, Start, UserId, WhenBusy,
};
use outlast_store::{Document, Table};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::actor::Receipt;
use crate::conversations::keyed;
use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;

/// A message to be answered.
#[derive(Clone, Debug, Serialize)]
pub struct StartRequest {
    /// A new conversation is created if this is `None`.
    pub conversation: Option<ConversationId>,
    /// The client's own key for the conversation, which is created if there is none with this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Whether to create the named conversation if it does not exist.
    #[serde(skip)]
    pub create: bool,
    /// The role of the message: the user's, or that of the last message of a prompt.
    pub role: Role,
    pub parts: Vec<Part>,
    /// Its tools are resolved by [`StartRequest::tools`].
    pub brief: Brief,
    /// The tools that the model may ask for, by name. None given: all that the server offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// The client's idempotency key.
    #[serde(skip)]
    pub request: Option<RequestId>,
    #[serde(skip)]
    pub when_busy: WhenBusy,
    /// The API key that asks for it, whichever repetition comes first.
    #[serde(skip)]
    pub api_key_id: Option<String>,
}

impl StartRequest {
    /// A user's message, with defaults for everything else.
    pub fn new(parts: Vec<Part>) -> StartRequest {
        StartRequest {
            conversation: None,
            key: None,
            create: false,
            role: Role::User,
            parts,
            brief: Brief::default(),
            tools: None,
            request: None,
            when_busy: WhenBusy::Reject,
            api_key_id: None,
        }
    }
}

/// A generation that was started.
#[derive(Clone, Debug)]
pub struct Started {
    pub generation: GenerationId,
    pub conversation: ConversationId,
    /// The user's message.
    pub message: MessageId,
    pub status: GenerationStatus,
}

/// A person's decision about a tool call.
#[derive(Clone, Debug)]
pub struct ToolDecision {
    pub tool_use_id: String,
    /// The hash of the question that the person saw, if the client sent it.
    pub hash: Option<String>,
    pub decided: Decided,
}

/// The result of a cancel.
#[derive(Clone, Copy, Debug)]
pub struct Cancelled {
    /// Whether this request ended the generation.
    pub success: bool,
    /// How the generation ended.
    pub status: GenerationStatus,
}

impl Engine {
    /// Starts a generation. The user's message is durable when this returns.
    pub async fn start(&self, user: &UserId, request: StartRequest) -> Result<Started, EngineError> {
        let shared = &self.shared;
        let digest = digest(&request);
        let named = request.request.is_some();
        let conversation = match (&request.conversation, &request.key, &request.request) {
            (Some(conversation), ..) => conversation.clone(),
            (None, Some(key), _) => keyed(user, key),
            (None, None, Some(request)) => conversation_of("start", user, request),
            (None, None, None) => shared.ids.make("conv").into(),
        };
        let start = Start {
            generation: shared.ids.make("gen").into(),
            message: shared.ids.make("msg").into(),
            request: request.request.unwrap_or_else(|| shared.ids.make("req").into()),
            digest,
            role: request.role,
            parts: request.parts,
            brief: Brief {
                model: self.model_of(&request.brief)?,
                tools: self.tools_of(&request.brief, request.tools)?,
                api_key_id: request.api_key_id,
                ..request.brief
            },
            when_busy: request.when_busy,
            key: request.key,
        };
        let create = request.create || request.conversation.is_none();
        if !create {
            self.must_own(user, &conversation).await?;
        }
        let generation = start.generation.clone();
        let options = CommandOptions { create, named };
        let replied = self.command(&conversation, user, Command::Start(start), options).await;
        self.started(conversation, generation, replied).await
    }

    /// The tools to record: those that the server runs. A worker runs its own, and so does a client that brings its
    /// own prompt.
    fn tools_of(&self, brief: &Brief, named: Option<Vec<String>>) -> Result<Vec<String>, EngineError> {
        if brief.is_for_worker() || brief.prompt.is_some() {
            return Ok(Vec::new());
        }
        let offered = self.tools();
        let Some(named) = named else { return Ok(offered) };
        match named.iter().find(|name| !offered.contains(name)) {
            Some(unknown) => Err(EngineError::UnknownTool {
                asked: unknown.clone(),
                why: self.no_tools().map(str::to_owned),
            }),
            None => Ok(named),
        }
    }

    /// The model to record. For a worker's generation it may be any name, with a default of its own.
    fn model_of(&self, brief: &Brief) -> Result<String, EngineError> {
        match brief.producer {
            Some(Producer::External) if brief.model == Brief::DEFAULT_MODEL => Ok("external".to_owned()),
            Some(Producer::External) => Ok(brief.model.clone()),
            None => self.shared.models.resolve(Some(&brief.model)),
        }
    }

    /// Cancels a generation. The first cancel wins; a later one returns how the generation ended.
    pub async fn cancel(&self, user: &UserId, id: &GenerationId) -> Result<Cancelled, EngineError> {
        let (conversation, _) = self.place_of(user, id).await?;
        let command = Command::Cancel { generation: id.clone() };
        match self.command(&conversation, user, command, CommandOptions::default()).await {
            Ok(_) => Ok(Cancelled { success: true, status: GenerationStatus::Cancelled }),
            Err(EngineError::Refused(Refusal::AlreadyEnded { status })) => {
                Ok(Cancelled { success: false, status })
            }
            Err(EngineError::Refused(Refusal::EndedLongAgo)) => {
                let (_, status) = self.place_of(user, id).await?;
                Ok(Cancelled { success: false, status })
            }
            Err(error) => Err(error),
        }
    }

    /// Continues an interrupted generation.
    pub async fn resume(&self, user: &UserId, id: &GenerationId) -> Result<GenerationStatus, EngineError> {
        let command = Command::Resume { generation: id.clone(), by: user.as_str().to_owned() };
        self.decide_about(user, id, command).await
    }

    /// Ends an interrupted generation and keeps its text.
    pub async fn dismiss(&self, user: &UserId, id: &GenerationId) -> Result<GenerationStatus, EngineError> {
        self.decide_about(user, id, Command::Dismiss { generation: id.clone() }).await
    }

    /// Decides about a tool call that waits for a person. The first decision counts; a later one is refused.
    pub async fn decide(
        &self,
        user: &UserId,
        id: &GenerationId,
        decision: ToolDecision,
    ) -> Result<GenerationStatus, EngineError> {
        let ToolDecision { tool_use_id, hash, decided } = decision;
        let decide = Decide { generation: id.clone(), tool_use_id, hash, decided };
        match self.decide_about(user, id, Command::Decide(decide.clone())).await {
            // A question of a child: the decision is carried out there, and the child tells its parent.
            Err(EngineError::Refused(Refusal::AskedByChild(question))) => {
                let ChildQuestion { generation_id: generation, tool_use_id, .. } = *question;
                let decide = Decide { generation: generation.clone(), tool_use_id, ..decide };
                self.decide_about(user, &generation, Command::Decide(decide)).await?;
                let (_, status) = self.place_of(user, id).await?;
                Ok(status)
            }
            decided => decided,
        }
    }

    /// Retries or continues a generation that failed or was cancelled, as a new generation.
    pub async fn retry(
        &self,
        user: &UserId,
        id: &GenerationId,
        mode: RetryMode,
        request: Option<RequestId>,
        api_key_id: Option<String>,
    ) -> Result<Started, EngineError> {
        let (conversation, _) = self.place_of(user, id).await?;
        let options = CommandOptions { create: false, named: request.is_some() };
        let retry = Retry {
            of: id.clone(),
            mode,
            generation: self.shared.ids.make("gen").into(),
            request: request.unwrap_or_else(|| self.shared.ids.make("req").into()),
            digest: digest(&(id, mode)),
            api_key_id,
        };
        let generation = retry.generation.clone();
        let replied = self.command(&conversation, user, Command::Retry(retry), options).await;
        self.started(conversation, generation, replied).await
    }

    async fn decide_about(
        &self,
        user: &UserId,
        id: &GenerationId,
        command: Command,
    ) -> Result<GenerationStatus, EngineError> {
        let (conversation, _) = self.place_of(user, id).await?;
        match self.command(&conversation, user, command, CommandOptions::default()).await {
            Ok(receipt) => Ok(receipt.status),
            Err(EngineError::Refused(Refusal::EndedLongAgo)) => {
                let (_, status) = self.place_of(user, id).await?;
                Err(EngineError::Refused(Refusal::AlreadyEnded { status }))
            }
            Err(error) => Err(error),
        }
    }

    /// The reply to a start: what it started, or what the same request started before.
    async fn started(
        &self,
        conversation: ConversationId,
        generation: GenerationId,
        replied: Result<Receipt, EngineError>,
    ) -> Result<Started, EngineError> {
        match replied {
            Ok(Receipt { message, status, .. }) => Ok(Started { generation, conversation, message, status }),
            Err(EngineError::Refused(Refusal::Repeated(earlier))) => {
                let document = self.shared.store.get(Table::Generations, earlier.generation.as_str()).await?;
                let status = document.as_ref().and_then(status_of).ok_or(EngineError::NotFound)?;
                let Earlier { generation, message, .. } = earlier;
                Ok(Started { generation, conversation, message, status })
            }
            Err(error) => Err(error),
        }
    }

    /// The conversation of a generation and its last stored status, if it belongs to this user.
    pub(crate) async fn place_of(
        &self,
        user: &UserId,
        id: &GenerationId,
    ) -> Result<(ConversationId, GenerationStatus), EngineError> {
        let document = self.shared.store.get(Table::Generations, id.as_str()).await?;
        let document = document.filter(|document| document.user == *user).ok_or(EngineError::NotFound)?;
        let status = status_of(&document).ok_or_else(|| EngineError::Broken("unknown status".to_owned()))?;
        Ok((document.conversation, status))
    }

    /// Refuses another user's conversation as if it did not exist.
    pub(crate) async fn must_own(&self, user: &UserId, id: &ConversationId) -> Result<(), EngineError> {
        let document = self.shared.store.get(Table::Conversations, id.as_str()).await?;
        document.filter(|document| document.user == *user).map(|_| ()).ok_or(EngineError::NotFound)
    }
}

/// The conversation for a request that has an idempotency key but names no conversation: the same for every
/// repetition of the request.
pub(crate) fn conversation_of(verb: &str, user: &UserId, request: &RequestId) -> ConversationId {
    format!("conv_{}", &digest(&(verb, user, request))[..32]).into()
}

/// A fingerprint of a request.
pub(crate) fn digest<T: Serialize>(request: &T) -> String {
    let json = serde_json::to_vec(request).expect("a request has string keys");
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The status of a generation, without parsing its document.
fn status_of(document: &Document) -> Option<GenerationStatus> {
    GenerationStatus::from_name(&document.status)
}
