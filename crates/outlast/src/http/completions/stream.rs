//! A generation as a stream of OpenAI's chunks.

use std::convert::Infallible;

use axum::body::Bytes;
use axum::response::Response;
use futures_util::stream;
use outlast_core::{GenerationId, decode};
use outlast_engine::{Batch, CommandError, Follower};
use tokio::time::Interval;
use tokio_util::sync::CancellationToken;

use super::super::App;
use super::super::error::Problem;
use super::super::events::{KEEP_ALIVE, event_stream};
use super::chunks::{Chunks, Next};

struct Streaming {
    app: App,
    id: GenerationId,
    follower: Follower,
    chunks: Chunks,
    keep_alive: Interval,
    stopping: CancellationToken,
}

pub(super) async fn follow(app: &App, id: &GenerationId, include_usage: bool) -> Result<Response, Problem> {
    let user = app.user();
    let document = app.engine().generation(&user, id).await?;
    // What the document tells is not followed again: its last event is where following begins.
    let follower = app.engine().follow_generation(&user, id, Some(document.last_seq)).await?;
    let streaming = Streaming {
        app: app.clone(),
        id: id.clone(),
        follower,
        chunks: Chunks::new(&document, include_usage),
        keep_alive: tokio::time::interval_at(tokio::time::Instant::now() + KEEP_ALIVE, KEEP_ALIVE),
        stopping: app.engine().stopping(),
    };
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
                next = self.follower.next() => next,
                _ = self.keep_alive.tick() => return Some(Bytes::from_static(b": keep-alive\n\n")),
                () = self.stopping.cancelled() => {
                    self.leave(Problem::draining());
                    continue;
                }
            };
            match next {
                Ok(Some(batch)) => self.read(&batch).await,
                Ok(None) => self.settle().await, // its end lies where following began
                Err(error) => self.leave(error.into()),
            }
        }
    }

    async fn read(&mut self, batch: &Batch) {
        for record in batch.records() {
            match decode(&record.bytes) {
                Ok(entry) => {
                    if self.chunks.event(&entry.event) == Next::Settled {
                        return self.settle().await;
                    }
                }
                Err(error) => return self.leave(CommandError::Broken(error.to_string()).into()),
            }
        }
    }

    /// Ends the stream as the document says.
    async fn settle(&mut self) {
        let user = self.app.user();
        match self.app.engine().generation(&user, &self.id).await {
            Ok(document) => self.chunks.settle(&document),
            Err(error) => self.leave(error.into()),
        }
    }

    fn leave(&mut self, problem: Problem) {
        self.chunks.fail(&problem.left_alone(&self.id));
    }
}
