//! The commands of clients.

use outlast_core::{
    Brief, Command, ConversationId, Decide, Decided, Earlier, Event, GenerationId, GenerationStatus,
    MessageId, Part, Producer, Refusal, RequestId, Retry, RetryMode, Role, Seq, Start, UserId, WhenBusy,
    decode,
};
use outlast_store::{Document, Table};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::actor::{Mail, Receipt};
use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;

/// A message to be answered.
#[derive(Clone, Debug, Serialize)]
pub struct StartRequest {
    /// A new conversation is created if this is `None`.
    pub conversation: Option<ConversationId>,
    /// Whether to create the named conversation if it does not exist.
    #[serde(skip)]
    pub create: bool,
    /// The role of the message: the user's, or that of the last message of a prompt.
    pub role: Role,
    pub parts: Vec<Part>,
    pub brief: Brief,
    /// The client's idempotency key.
    #[serde(skip)]
    pub request: Option<RequestId>,
    #[serde(skip)]
    pub when_busy: WhenBusy,
}

impl StartRequest {
    /// A user's message, with defaults for everything else.
    pub fn new(parts: Vec<Part>) -> StartRequest {
        StartRequest {
            conversation: None,
            create: false,
            role: Role::User,
            parts,
            brief: Brief::default(),
            request: None,
            when_busy: WhenBusy::Reject,
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
        let conversation = match (&request.conversation, &request.request) {
            (Some(conversation), _) => conversation.clone(),
            (None, Some(request)) => conversation_of("start", user, request),
            (None, None) => shared.ids.make("conv").into(),
        };
        let start = Start {
            generation: shared.ids.make("gen").into(),
            message: shared.ids.make("msg").into(),
            request: request.request.unwrap_or_else(|| shared.ids.make("req").into()),
            digest,
            role: request.role,
            parts: request.parts,
            brief: Brief { model: self.model_of(&request.brief)?, ..request.brief },
            when_busy: request.when_busy,
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
        self.decide_about(user, id, Command::Decide(decide)).await
    }

    /// Retries or continues a generation that failed or was cancelled, as a new generation.
    pub async fn retry(
        &self,
        user: &UserId,
        id: &GenerationId,
        mode: RetryMode,
        request: Option<RequestId>,
    ) -> Result<Started, EngineError> {
        let (conversation, _) = self.place_of(user, id).await?;
        let options = CommandOptions { create: false, named: request.is_some() };
        let retry = Retry {
            of: id.clone(),
            mode,
            generation: self.shared.ids.make("gen").into(),
            request: request.unwrap_or_else(|| self.shared.ids.make("req").into()),
            digest: digest(&(id, mode)),
        };
        let generation = retry.generation.clone();
        let replied = self.command(&conversation, user, Command::Retry(retry), options).await;
        self.started(conversation, generation, replied).await
    }

    /// Creates an empty conversation.
    pub async fn create_conversation(
        &self,
        user: &UserId,
        title: Option<String>,
        metadata: Option<Value>,
        request: Option<RequestId>,
    ) -> Result<ConversationId, EngineError> {
        let id = match &request {
            Some(request) => conversation_of("create", user, request),
            None => self.shared.ids.make("conv").into(),
        };
        let options = CommandOptions { create: true, named: false };
        let made = (title.clone(), metadata.clone());
        let command = Command::Create { title, metadata, request: request.clone() };
        match (self.command(&id, user, command, options).await, request) {
            (Ok(_), _) => Ok(id),
            (Err(EngineError::Refused(Refusal::AlreadyExists)), Some(request)) => {
                match self.made_by(&id, &request).await? == made {
                    true => Ok(id),
                    false => Err(EngineError::MadeOtherwise { conversation: id }),
                }
            }
            (Err(error), _) => Err(error),
        }
    }

    /// The title and metadata with which a request created a conversation, from its first event.
    async fn made_by(
        &self,
        id: &ConversationId,
        request: &RequestId,
    ) -> Result<(Option<String>, Option<Value>), EngineError> {
        let first = self.shared.store.read(id, Seq::ZERO, 1).await?;
        let first = first.first().map(|record| decode(&record.bytes)).transpose();
        let first = first.map_err(|error| EngineError::Broken(error.to_string()))?;
        Ok(match first.filter(|entry| entry.request.as_ref() == Some(request)).map(|entry| entry.event) {
            Some(Event::ConversationUpdated { title, metadata }) => (title.flatten(), metadata),
            _ => (None, None),
        })
    }

    /// Creates a conversation under an id that the caller chose, unless it exists.
    pub async fn create_if_missing(&self, user: &UserId, id: &ConversationId) -> Result<(), EngineError> {
        match self.must_own(user, id).await {
            Err(EngineError::NotFound) => {}
            known => return known,
        }
        let options = CommandOptions { create: true, named: false };
        let create = Command::Create { title: None, metadata: None, request: None };
        match self.command(id, user, create, options).await {
            Ok(_) | Err(EngineError::Refused(Refusal::AlreadyExists)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Resolves a user's own name for a conversation, or the id of one of the user's conversations. Two users
    /// can use the same name for different conversations.
    pub async fn thread(&self, user: &UserId, name: &str) -> Result<ConversationId, EngineError> {
        match self.must_own(user, &name.into()).await {
            Ok(()) => Ok(name.into()),
            Err(EngineError::NotFound) => Ok(thread_of(user, name)),
            Err(error) => Err(error),
        }
    }

    /// Sets the title or the metadata: `None` leaves a value as it is, null clears it.
    pub async fn update_conversation(
        &self,
        user: &UserId,
        id: &ConversationId,
        title: Option<Option<String>>,
        metadata: Option<Value>,
    ) -> Result<(), EngineError> {
        self.must_own(user, id).await?;
        let command = Command::Update { title, metadata };
        self.command(id, user, command, CommandOptions::default()).await?;
        Ok(())
    }

    /// Removes a conversation and everything in it.
    pub async fn delete_conversation(&self, user: &UserId, id: &ConversationId) -> Result<(), EngineError> {
        self.must_own(user, id).await?;
        self.ask(id, |reply| Mail::Delete { user: user.clone(), reply }).await
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
fn conversation_of(verb: &str, user: &UserId, request: &RequestId) -> ConversationId {
    format!("conv_{}", &digest(&(verb, user, request))[..32]).into()
}

/// The user's name for it comes last, so that it can be extracted again.
fn thread_of(user: &UserId, name: &str) -> ConversationId {
    format!("thread_{}_{name}", &digest(&("thread", user, name))[..32]).into()
}

/// A user's own name for a conversation, or its id if the user gave it none.
pub fn thread_name<'a>(user: &UserId, id: &'a ConversationId) -> &'a str {
    let name = id.as_str().strip_prefix("thread_").and_then(|rest| rest.split_once('_'));
    name.map(|(_, name)| name).filter(|name| thread_of(user, name) == *id).unwrap_or(id.as_str())
}

/// A fingerprint of a request.
fn digest<T: Serialize>(request: &T) -> String {
    let json = serde_json::to_vec(request).expect("a request has string keys");
    Sha256::digest(&json).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The status of a generation, without parsing its document.
fn status_of(document: &Document) -> Option<GenerationStatus> {
    GenerationStatus::from_name(&document.status)
}
