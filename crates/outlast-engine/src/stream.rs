//! The one loop behind every stream of events. It decides where a stream starts, when a snapshot replaces events,
//! when to send a keep-alive and when the stream ends. Protocols only encode the frames it yields.

use std::sync::Arc;
use std::time::Duration;

use outlast_core::{
    ConversationId, ConversationView, GenerationDocument, GenerationId, GenerationStatus, LastEnd, RequestId,
    Seq, Timestamp, UserId,
};
use serde::Serialize;
use tokio::time::{Instant, Interval, interval_at};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::feed::Batch;
use crate::follower::{FollowError, Follower};

/// How often a silent stream sends a keep-alive. Clients and proxies drop connections that look dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The maximum number of messages in a snapshot, which is also limited in bytes.
const SNAPSHOT_MESSAGES: usize = 200;

/// What a stream sends next.
pub enum Frame {
    /// Replaces everything up to its seq, at the start of a stream or where events were removed.
    Snapshot(Box<Snapshot>),
    Events(Arc<Batch>),
    /// Nothing has happened for a while.
    KeepAlive,
}

/// A view in the shape of an event. It is not in the log.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    pub seq: Seq,
    ts: Timestamp,
    generation_id: Option<GenerationId>,
    request_id: Option<RequestId>,
    #[serde(rename = "type")]
    kind: &'static str,
    payload: ConversationView,
}

#[derive(Debug)]
pub enum StreamEnd {
    /// The generation has ended, and its last event was sent.
    Complete,
    /// The server is stopping. The client should reconnect with its position.
    Stopping,
    Failed(EngineError),
}

/// A stream of one generation until its end, or of a conversation for as long as it is read.
pub struct EventStream {
    source: Source,
    next: Next,
    keep_alive: Interval,
    stopping: CancellationToken,
}

struct Source {
    engine: Engine,
    user: UserId,
    of: Of,
}

enum Of {
    Conversation(ConversationId),
    Generation(GenerationId),
}

enum Next {
    /// Send a snapshot that was already taken, then continue from there.
    Send(Box<Snapshot>, Option<Follower>),
    /// Take a snapshot, send it and continue from there.
    Snapshot,
    Read(Follower),
    Over,
}

impl Engine {
    /// The events of a generation from the first one, or after a position. The stream ends with the generation.
    pub async fn stream_generation(
        &self,
        user: &UserId,
        id: &GenerationId,
        after: Option<Seq>,
    ) -> Result<EventStream, EngineError> {
        let next = Next::checked(self.follow_generation(user, id, after).await?).await?;
        let source = Source { engine: self.clone(), user: user.clone(), of: Of::Generation(id.clone()) };
        Ok(EventStream::new(source, next))
    }

    /// The events of a conversation after a position, or after a snapshot, across generations.
    pub async fn stream_conversation(
        &self,
        user: &UserId,
        id: &ConversationId,
        after: Option<Seq>,
    ) -> Result<EventStream, EngineError> {
        let source = Source { engine: self.clone(), user: user.clone(), of: Of::Conversation(id.clone()) };
        let next = match after {
            Some(after) => Next::checked(self.follow_conversation(user, id, after).await?).await?,
            None => {
                let (snapshot, follower) = source.snapshot().await?;
                Next::Send(snapshot, follower)
            }
        };
        Ok(EventStream::new(source, next))
    }
}

impl EventStream {
    fn new(source: Source, next: Next) -> EventStream {
        let stopping = source.engine.stopping();
        let keep_alive = interval_at(Instant::now() + KEEP_ALIVE, KEEP_ALIVE);
        EventStream { source, next, keep_alive, stopping }
    }

    /// The next frame, as soon as there is one. Dropping this future loses nothing.
    pub async fn next(&mut self) -> Result<Frame, StreamEnd> {
        let EventStream { source, next, keep_alive, stopping } = self;
        tokio::select! {
            biased;
            frame = next.frame(source) => frame,
            _ = keep_alive.tick() => Ok(Frame::KeepAlive),
            () = stopping.cancelled() => Err(StreamEnd::Stopping),
        }
    }
}

impl Next {
    /// Reads from the follower's position, unless the log ends before it.
    async fn checked(follower: Follower) -> Result<Next, EngineError> {
        match follower.check().await {
            // The first read finds the same gap and sends a snapshot.
            Ok(()) | Err(FollowError::Trimmed { .. }) => Ok(Next::Read(follower)),
            Err(FollowError::Ahead { tail }) => Err(EngineError::CursorAhead { tail }),
            Err(FollowError::Store(error)) => Err(error.into()),
        }
    }

    async fn frame(&mut self, source: &Source) -> Result<Frame, StreamEnd> {
        loop {
            match self {
                Next::Read(follower) => match follower.next().await {
                    Ok(Some(batch)) => return Ok(Frame::Events(batch)),
                    Ok(None) => *self = Next::Over,
                    // The position is no longer valid, because of retention or a crash.
                    Err(FollowError::Trimmed { .. } | FollowError::Ahead { .. }) => *self = Next::Snapshot,
                    Err(FollowError::Store(error)) => {
                        tracing::warn!(%error, "ending a stream: the log cannot be read");
                        return Err(StreamEnd::Failed(error.into()));
                    }
                },
                Next::Snapshot => {
                    let (snapshot, follower) = source.snapshot().await.map_err(StreamEnd::Failed)?;
                    *self = Next::Send(snapshot, follower);
                }
                Next::Send(..) => {
                    let Next::Send(snapshot, follower) = std::mem::replace(self, Next::Over) else {
                        continue;
                    };
                    *self = follower.map_or(Next::Over, Next::Read);
                    return Ok(Frame::Snapshot(snapshot));
                }
                Next::Over => return Err(StreamEnd::Complete),
            }
        }
    }
}

impl Source {
    /// A snapshot, and a follower that continues from it unless nothing can follow.
    async fn snapshot(&self) -> Result<(Box<Snapshot>, Option<Follower>), EngineError> {
        match &self.of {
            Of::Conversation(id) => {
                let view = self.engine.view(&self.user, id, SNAPSHOT_MESSAGES).await?;
                let follower = self.engine.follow_conversation(&self.user, id, view.last_seq).await?;
                Ok((self.event(view, None), Some(follower)))
            }
            Of::Generation(id) => {
                let document = self.engine.generation_document(&self.user, id).await?;
                if GenerationStatus::LIVE.contains(&document.status) {
                    return self.snapshot_of_live(&document).await;
                }
                let view = self.engine.view_of_ended(&self.user, &document).await?;
                Ok((self.event(view, Some(document)), None))
            }
        }
    }

    /// For a live generation whose text was shown but not saved, and is lost.
    async fn snapshot_of_live(
        &self,
        document: &GenerationDocument,
    ) -> Result<(Box<Snapshot>, Option<Follower>), EngineError> {
        let mut view = self.engine.view(&self.user, &document.conversation_id, SNAPSHOT_MESSAGES).await?;
        view.messages.retain(|message| message.generation_id.as_ref() == Some(&document.id));
        let after = Some(view.last_seq);
        let follower = self.engine.follow_generation(&self.user, &document.id, after).await?;
        Ok((self.event(view, Some(document.clone())), Some(follower)))
    }

    fn event(&self, view: ConversationView, of: Option<GenerationDocument>) -> Box<Snapshot> {
        let (generation_id, request_id) = of.map(|document| (document.id, document.request_id)).unzip();
        Box::new(Snapshot {
            seq: view.last_seq,
            ts: self.engine.now(),
            generation_id,
            request_id,
            kind: "snapshot",
            payload: view,
        })
    }
}

impl Engine {
    /// For a generation whose events were removed: a view with only its messages and how it ended.
    async fn view_of_ended(
        &self,
        user: &UserId,
        document: &GenerationDocument,
    ) -> Result<ConversationView, EngineError> {
        let whole = self.view(user, &document.conversation_id, 0).await?;
        let (messages, has_more) = self.messages_of(document, SNAPSHOT_MESSAGES).await?;
        Ok(ConversationView {
            conversation: whole.conversation,
            messages,
            has_more,
            active_run: None,
            last_end: Some(LastEnd {
                generation_id: document.id.clone(),
                status: document.status,
                reason: document.end_reason.clone(),
                error_message: document.error_message.clone(),
            }),
            queue: Vec::new(),
            overlays: Default::default(),
            overlay_parts: Default::default(),
            last_seq: document.last_seq,
        })
    }
}
