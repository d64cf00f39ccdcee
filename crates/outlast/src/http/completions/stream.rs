//! Streams a generation as OpenAI's chunks.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream;
use outlast_core::{GenerationId, decode};
use outlast_engine::{Batch, EngineError, EventStream, Frame, StreamEnd};

use super::super::caller::{Caller, Write};
use super::super::error::Problem;
use super::super::events::{KEEP_ALIVE, event_stream};
use super::super::per_user::Open;
use crate::auth::AuthError;

use super::chunks::{Chunks, Next};
use super::is_settled;

struct Streaming {
    caller: Caller<Write>,
    id: GenerationId,
    events: EventStream,
    chunks: Chunks,
    _open: Open,
}

pub(super) async fn follow(
    caller: &Caller<Write>,
    id: &GenerationId,
    include_usage: bool,
) -> Result<Response, Problem> {
    let user = caller.user();
    let document = caller.engine().generation(user, id).await?;
    // The document has everything up to its last event, so the stream starts after that.
    let events = caller.engine().stream_generation(user, id, Some(document.last_seq)).await?;
    let chunks = Chunks::new(&document, include_usage);
    let open = caller.open_stream()?;
    let streaming = Streaming { caller: caller.clone(), id: id.clone(), events, chunks, _open: open };
    let frames = stream::unfold(streaming, |mut streaming| async move {
        let frame = streaming.next().await?;
        Some((Ok::<Bytes, Infallible>(frame), streaming))
    });
    Ok(event_stream(frames))
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let ready = self.chunks.take();
            if !ready.is_empty() {
                return Some(ready.into());
            }
            if self.chunks.over() {
                return None;
            }
            let next = tokio::select! {
                biased;
                () = self.caller.principal().ended() => {
                    self.leave(AuthError::Invalid.into());
                    continue;
                }
                next = self.events.next() => next,
            };
            match next {
                Ok(Frame::Events(batch)) => self.read(&batch).await,
                Ok(Frame::KeepAlive) => return Some(KEEP_ALIVE),
                Ok(Frame::Snapshot(_)) | Err(StreamEnd::Complete) => {
                    self.settle().await;
                    if !self.chunks.over() {
                        // Text that was sent before it was saved is lost, and the answer starts over.
                        self.chunks.fail(&Problem::retracted(&self.id));
                    }
                }
                Err(StreamEnd::Stopping) => self.leave(Problem::draining()),
                Err(StreamEnd::Failed(error)) => self.leave(error.into()),
            }
        }
    }

    async fn read(&mut self, batch: &Batch) {
        for record in batch.records() {
            match decode(&record.bytes) {
                Ok(entry) => {
                    if self.chunks.event(&entry.event) == Next::Settled {
                        self.settle().await;
                    }
                }
                Err(error) => return self.leave(EngineError::Broken(error.to_string()).into()),
            }
        }
    }

    /// Ends the stream as the document says. An interrupted generation may have been resumed since.
    async fn settle(&mut self) {
        match self.caller.engine().generation(self.caller.user(), &self.id).await {
            Ok(document) if is_settled(document.status) => self.chunks.settle(&document),
            Ok(_) => {}
            Err(error) => self.leave(error.into()),
        }
    }

    fn leave(&mut self, problem: Problem) {
        self.chunks.fail(&problem.left_alone(&self.id));
    }
}
