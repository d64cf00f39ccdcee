//! What clients may ask of the engine.

use outlast_core::{
    Command, ConversationId, Decided, Event, GenerationId, GenerationStatus, MessageId, Part, Producer,
    Prompt, Refusal, RequestId, Retry, RetryMode, Role, Seq, Start, UserId, WhenBusy, decode,
};
use outlast_store::Table;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::actor::Mail;
use crate::documents::to_generation;
use crate::engine::{CommandOptions, Engine};
use crate::error::CommandError;

/// A message to be answered.
#[derive(Clone, Debug, Serialize)]
pub struct StartRequest {
    /// Where; a new conversation if none is named.
    pub conversation: Option<ConversationId>,
    /// Make the named conversation if it is not there.
    #[serde(skip)]
    pub create: bool,
    /// Who speaks: the user, or whoever said the last message of a prompt.
    pub role: Role,
    /// What is said.
    pub parts: Vec<Part>,
    /// What the model is given instead of the transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<Prompt>,
    /// The id that the client wants its answer's first message to have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_id: Option<MessageId>,
    /// By which model; the default if none is named.
    pub model: Option<String>,
    /// The client's name for the request.
    #[serde(skip)]
    pub request: Option<RequestId>,
    /// What to do if a generation is under way.
    #[serde(skip)]
    pub when_busy: WhenBusy,
    /// Who makes the answer, if not a model of the settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// Instructions for the model.
    pub system: Option<String>,
    /// Free JSON of the client.
    pub metadata: Option<Value>,
}

impl StartRequest {
    /// What a user says, with nothing else wished for.
    pub fn new(parts: Vec<Part>) -> StartRequest {
        StartRequest {
            conversation: None,
            create: false,
            role: Role::User,
            parts,
            prompt: None,
            answer_id: None,
            model: None,
            request: None,
            when_busy: WhenBusy::Reject,
            producer: None,
            system: None,
            metadata: None,
        }
    }
}

/// A generation that was begun.
#[derive(Clone, Debug)]
pub struct Started {
    /// Its id.
    pub generation: GenerationId,
    /// Its conversation.
    pub conversation: ConversationId,
    /// The user's message.
    pub message: MessageId,
    /// How far it is.
    pub status: GenerationStatus,
}

/// What became of a cancel.
#[derive(Clone, Copy, Debug)]
pub struct Cancelled {
    /// Whether it was this one that ended the generation.
    pub success: bool,
    /// How the generation ended.
    pub status: GenerationStatus,
}

impl Engine {
    /// Begins a generation. The user's message is durable when this returns.
    pub async fn start(&self, user: &UserId, request: StartRequest) -> Result<Started, CommandError> {
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
            prompt: request.prompt,
            answer_id: request.answer_id,
            producer: request.producer,
            model: match request.producer {
                Some(Producer::External) => request.model.unwrap_or_else(|| "external".to_owned()),
                None => shared.models.resolve(request.model.as_deref())?,
            },
            system: request.system,
            metadata: request.metadata,
            when_busy: request.when_busy,
            earlier: None,
        };
        let create = request.create || request.conversation.is_none();
        if !create {
            self.must_own(user, &conversation).await?;
        }
        let (generation, message) = (start.generation.clone(), start.message.clone());
        let options = CommandOptions { create, named };
        let answer = self.command(&conversation, user, Command::Start(start), options).await;
        self.started(conversation, generation, message, answer).await
    }

    /// Stops a generation. The first one wins; a later one is told how it ended.
    pub async fn cancel(&self, user: &UserId, id: &GenerationId) -> Result<Cancelled, CommandError> {
        let (conversation, _) = self.place_of(user, id).await?;
        let command = Command::Cancel { generation: id.clone() };
        match self.command(&conversation, user, command, CommandOptions::default()).await {
            Ok(_) => Ok(Cancelled { success: true, status: GenerationStatus::Cancelled }),
            Err(CommandError::Refused(Refusal::AlreadyEnded { status })) => {
                Ok(Cancelled { success: false, status })
            }
            Err(CommandError::Refused(Refusal::EndedLongAgo)) => {
                let (_, status) = self.place_of(user, id).await?;
                Ok(Cancelled { success: false, status })
            }
            Err(error) => Err(error),
        }
    }

    /// Lets an interrupted generation go on.
    pub async fn resume(&self, user: &UserId, id: &GenerationId) -> Result<GenerationStatus, CommandError> {
        let command = Command::Resume { generation: id.clone(), by: user.as_str().to_owned() };
        self.decide_about(user, id, command).await
    }

    /// Ends an interrupted generation as it stands.
    pub async fn dismiss(&self, user: &UserId, id: &GenerationId) -> Result<GenerationStatus, CommandError> {
        self.decide_about(user, id, Command::Dismiss { generation: id.clone() }).await
    }

    /// Decides about a tool that waits for a person. The first one counts; a later one is told what it was.
    pub async fn decide(
        &self,
        user: &UserId,
        id: &GenerationId,
        tool_use_id: String,
        decided: Decided,
    ) -> Result<GenerationStatus, CommandError> {
        self.decide_about(user, id, Command::Decide { generation: id.clone(), tool_use_id, decided }).await
    }

    /// Takes up a generation that failed or was cancelled, as a new one.
    pub async fn retry(
        &self,
        user: &UserId,
        id: &GenerationId,
        mode: RetryMode,
        request: Option<RequestId>,
    ) -> Result<Started, CommandError> {
        let (conversation, _) = self.place_of(user, id).await?;
        let options = CommandOptions { create: false, named: request.is_some() };
        let retry = Retry {
            of: id.clone(),
            mode,
            generation: self.shared.ids.make("gen").into(),
            request: request.unwrap_or_else(|| self.shared.ids.make("req").into()),
            digest: digest(&(id, mode)),
            earlier: None,
        };
        let generation = retry.generation.clone();
        let answer = self.command(&conversation, user, Command::Retry(retry), options).await;
        let message = match &answer {
            Ok(state) => state.generation(&generation).map(|generation| generation.message.clone()),
            Err(_) => None,
        };
        let message = message.unwrap_or_else(|| "".into());
        self.started(conversation, generation, message, answer).await
    }

    /// Makes an empty conversation.
    pub async fn create_conversation(
        &self,
        user: &UserId,
        title: Option<String>,
        metadata: Option<Value>,
        request: Option<RequestId>,
    ) -> Result<ConversationId, CommandError> {
        let id = match &request {
            Some(request) => conversation_of("create", user, request),
            None => self.shared.ids.make("conv").into(),
        };
        let options = CommandOptions { create: true, named: false };
        let made = (title.clone(), metadata.clone());
        let command = Command::Update { title, metadata, request: request.clone() };
        self.command(&id, user, command, options).await?;
        match request {
            Some(request) if self.made_by(&id, &request).await? != made => {
                Err(CommandError::MadeOtherwise { conversation: id })
            }
            _ => Ok(id),
        }
    }

    /// With which title and metadata a named request made a conversation; its first event tells.
    async fn made_by(
        &self,
        id: &ConversationId,
        request: &RequestId,
    ) -> Result<(Option<String>, Option<Value>), CommandError> {
        let first = self.shared.store.read(id, Seq::ZERO, 1).await?;
        let first = first.first().map(|record| decode(&record.bytes)).transpose();
        let first = first.map_err(|error| CommandError::Broken(error.to_string()))?;
        Ok(match first.filter(|entry| entry.request.as_ref() == Some(request)).map(|entry| entry.event) {
            Some(Event::ConversationUpdated { title, metadata }) => (title, metadata),
            _ => (None, None),
        })
    }

    /// Makes a conversation under a name that the caller chose, unless it is there already.
    pub async fn create_if_missing(&self, user: &UserId, id: &ConversationId) -> Result<(), CommandError> {
        match self.must_own(user, id).await {
            Err(CommandError::NotFound) => {}
            known => return known,
        }
        let options = CommandOptions { create: true, named: false };
        let nothing = Command::Update { title: None, metadata: None, request: None };
        self.command(id, user, nothing, options).await?;
        Ok(())
    }

    /// The conversation that a user's own name for it means. Two users with the same name never meet; a
    /// conversation of that very id is found if it is this user's.
    pub async fn thread(&self, user: &UserId, name: &str) -> Result<ConversationId, CommandError> {
        match self.must_own(user, &name.into()).await {
            Ok(()) => Ok(name.into()),
            Err(CommandError::NotFound) => Ok(thread_of(user, name)),
            Err(error) => Err(error),
        }
    }

    /// Sets title or metadata.
    pub async fn update_conversation(
        &self,
        user: &UserId,
        id: &ConversationId,
        title: Option<Option<String>>,
        metadata: Option<Value>,
    ) -> Result<(), CommandError> {
        self.must_own(user, id).await?;
        let command = Command::Update { title: title.flatten(), metadata, request: None };
        self.command(id, user, command, CommandOptions::default()).await?;
        Ok(())
    }

    /// Removes a conversation and everything in it.
    pub async fn delete_conversation(&self, user: &UserId, id: &ConversationId) -> Result<(), CommandError> {
        self.must_own(user, id).await?;
        self.ask(id, |reply| Mail::Delete { user: user.clone(), reply }).await
    }

    async fn decide_about(
        &self,
        user: &UserId,
        id: &GenerationId,
        command: Command,
    ) -> Result<GenerationStatus, CommandError> {
        let (conversation, known) = self.place_of(user, id).await?;
        match self.command(&conversation, user, command, CommandOptions::default()).await {
            Ok(state) => Ok(state.generation(id).map_or(known, |generation| generation.status())),
            Err(CommandError::Refused(Refusal::EndedLongAgo)) => {
                let (_, status) = self.place_of(user, id).await?;
                Err(CommandError::Refused(Refusal::AlreadyEnded { status }))
            }
            Err(error) => Err(error),
        }
    }

    /// The answer to a start: what it began, or what the same request began before.
    async fn started(
        &self,
        conversation: ConversationId,
        generation: GenerationId,
        message: MessageId,
        answer: Result<outlast_core::Conversation, CommandError>,
    ) -> Result<Started, CommandError> {
        match answer {
            Ok(state) => {
                let status = state.generation(&generation).map(|generation| generation.status());
                let status = status.unwrap_or(GenerationStatus::Queued);
                Ok(Started { generation, conversation, message, status })
            }
            Err(CommandError::Refused(Refusal::Repeated(earlier))) => {
                let document = self.shared.store.get(Table::Generations, earlier.generation.as_str()).await?;
                let known =
                    document.as_ref().map(to_generation).transpose()?.ok_or(CommandError::NotFound)?;
                Ok(Started {
                    generation: earlier.generation,
                    conversation,
                    message: earlier.message,
                    status: known.status,
                })
            }
            Err(error) => Err(error),
        }
    }

    /// Where a generation belongs and its last known status, if it is this user's.
    pub(crate) async fn place_of(
        &self,
        user: &UserId,
        id: &GenerationId,
    ) -> Result<(ConversationId, GenerationStatus), CommandError> {
        let document = self.shared.store.get(Table::Generations, id.as_str()).await?;
        let document = document.filter(|document| document.user == *user).ok_or(CommandError::NotFound)?;
        Ok((document.conversation.clone(), to_generation(&document)?.status))
    }

    /// Refuses another user's conversation as if it did not exist.
    pub(crate) async fn must_own(&self, user: &UserId, id: &ConversationId) -> Result<(), CommandError> {
        let document = self.shared.store.get(Table::Conversations, id.as_str()).await?;
        document.filter(|document| document.user == *user).map(|_| ()).ok_or(CommandError::NotFound)
    }
}

/// The conversation that a named request without one begins: the same for every repeat of the request,
/// and another one for a request of the same name that asks for something else.
fn conversation_of(verb: &str, user: &UserId, request: &RequestId) -> ConversationId {
    format!("conv_{}", &digest(&(verb, user, request))[..32]).into()
}

/// The user's name stands at the end, so that it can be shown again.
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
