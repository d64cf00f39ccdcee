//! Turns the body of a response into pieces of an answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::Stream;
use outlast_core::{Failure, Piece, TextKind};
use sse_stream::SseByteStream;
use tokio::time::{Sleep, sleep};

use super::super::{Arrived, END_GRACE};
use super::body::{Broken, Chunks};
use super::failures::{broken, too_long, transient};

/// Text is passed on at this size, even if more is waiting.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Counted for each piece in addition to its text, so that thinking and text that alternate byte by byte fill a
/// batch sooner.
const PIECE_OVERHEAD_BYTES: usize = 64;
/// How many events are read before other tasks can run.
const EVENTS_MAX: usize = 1024;
/// How many bytes may arrive without completing an event. This is also the maximum size of an event. An upstream
/// that sends more is broken or hostile.
const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// How many bytes may arrive without adding to the answer. Models that do not show their thinking send empty chunks.
const SILENT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The maximum size of an answer that comes as one document instead of a stream.
const DOCUMENT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long a complete answer waits for the end of its body, so that the next call can use the connection.
const CLOSE_GRACE: Duration = Duration::from_millis(100);

/// Interprets a vendor's events.
pub(in super::super) trait Dialect: Send + Unpin + 'static {
    fn event(&mut self, data: &str, out: &mut Out);

    /// The answer came as one document, although a stream was requested.
    fn document(&mut self, document: &[u8], out: &mut Out);

    /// Whether the finish reason has arrived. Errors after that do not matter.
    fn is_complete(&self) -> bool;

    /// Called when nothing more is read. `cut` is the failure, unless the answer is complete.
    fn end(&mut self, cut: Failure, out: &mut Out);
}

/// What a dialect has produced from the events so far.
#[derive(Default)]
pub(in super::super) struct Out {
    ready: VecDeque<Piece>,
    /// The size of what is ready.
    bytes: usize,
    /// Whether an event has added to the answer since this was last reset.
    heard: bool,
    end: Option<Result<String, Failure>>,
}

impl Out {
    /// Adds text, to the last piece if that is of the same kind.
    pub(in super::super) fn text(&mut self, new_kind: TextKind, added: &str) {
        if added.is_empty() || self.is_over() {
            return;
        }
        self.heard();
        if let Some(Piece::Text { kind, text, chunks }) = self.ready.back_mut()
            && *kind == new_kind
        {
            text.push_str(added);
            *chunks += 1;
            self.bytes += added.len();
            return;
        }
        self.piece(Piece::Text { kind: new_kind, text: added.to_owned(), chunks: 1 }, added.len());
    }

    /// Part of the answer arrived, although it may not be ready to be passed on.
    pub(in super::super) fn heard(&mut self) {
        self.heard = true;
    }

    /// Adds what the vendor needs to take the thinking before it back.
    pub(in super::super) fn signature(&mut self, signature: String) {
        if !signature.is_empty() && !self.is_over() {
            let bytes = signature.len();
            self.piece(Piece::Signature { signature }, bytes);
        }
    }

    /// Adds a complete tool call.
    pub(super) fn call(&mut self, call: Piece, bytes: usize) {
        self.piece(call, bytes);
    }

    pub(in super::super) fn usage(&mut self, input_tokens: u64, output_tokens: u64) {
        self.piece(Piece::Usage { input_tokens, output_tokens }, 0);
    }

    /// The answer is complete. `reason` is why the model stopped.
    pub(in super::super) fn finish(&mut self, reason: String) {
        self.end.get_or_insert(Ok(reason));
    }

    /// The attempt has failed.
    pub(in super::super) fn fail(&mut self, failure: Failure) {
        self.end.get_or_insert(Err(failure));
    }

    fn is_over(&self) -> bool {
        self.end.is_some()
    }

    fn piece(&mut self, piece: Piece, bytes: usize) {
        if !self.is_over() {
            self.bytes += bytes + PIECE_OVERHEAD_BYTES;
            self.ready.push_back(piece);
        }
    }

    fn next(&mut self) -> Option<Piece> {
        let next = self.ready.pop_front();
        if self.ready.is_empty() {
            self.bytes = 0;
        }
        next
    }
}

/// How an answer is encoded.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum Form {
    /// Server-sent events.
    Events,
    /// One JSON document.
    Document,
}

/// An answer being read.
pub(in super::super) struct Reading<D> {
    source: Source,
    dialect: D,
    out: Out,
    counts: Arc<Counts>,
    /// Nothing more will come from the source.
    ended: bool,
    /// The end was passed on.
    told: bool,
    /// How long an answer with a finish reason waits for the rest.
    end_grace: Option<Pin<Box<Sleep>>>,
    close_grace: Option<Pin<Box<Sleep>>>,
}

enum Source {
    Events(SseByteStream<Counted>),
    Document(Chunks, Vec<u8>),
}

impl<D: Dialect> Reading<D> {
    pub(in super::super) fn new(bytes: Chunks, form: Form, dialect: D) -> Reading<D> {
        let counts = Arc::<Counts>::default();
        let source = match form {
            Form::Events => Source::Events(SseByteStream::new(Counted { bytes, counts: counts.clone() })),
            Form::Document => Source::Document(bytes, Vec::new()),
        };
        Reading {
            source,
            dialect,
            out: Out::default(),
            counts,
            ended: false,
            told: false,
            end_grace: None,
            close_grace: None,
        }
    }

    /// How many pieces are waiting to be passed on.
    #[cfg(test)]
    pub(in super::super) fn ready(&self) -> usize {
        self.out.ready.len()
    }

    /// Reads one event or one part of a document. Pending when nothing has arrived.
    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.source {
            Source::Events(events) => match ready!(Pin::new(events).poll_next(cx)) {
                Some(Ok(event)) => self.event(event.data.as_deref()),
                Some(Err(sse_stream::Error::Body(error))) => {
                    self.end(broken(error.downcast_ref().unwrap_or(&Broken::Connection)));
                }
                Some(Err(_)) => self.end(transient("upstream sent an event that is not UTF-8")),
                None => self.end(ended_early()),
            },
            Source::Document(bytes, document) => match ready!(bytes.as_mut().poll_next(cx)) {
                Some(Ok(bytes)) if document.len() + bytes.len() > DOCUMENT_BYTES_MAX => {
                    let message = format!("the answer is longer than {DOCUMENT_BYTES_MAX} bytes");
                    self.out.fail(too_long(&message));
                }
                Some(Ok(bytes)) => document.extend_from_slice(&bytes),
                Some(Err(error)) => self.end(broken(&error)),
                None => {
                    self.dialect.document(document, &mut self.out);
                    self.end(ended_early());
                }
            },
        }
        Poll::Ready(())
    }

    fn event(&mut self, data: Option<&str>) {
        let Reading { dialect, out, counts, .. } = self;
        counts.unfinished.store(0, Ordering::Relaxed);
        if let Some(data) = data {
            dialect.event(data, out);
        }
        if std::mem::take(&mut out.heard) {
            counts.silent.store(0, Ordering::Relaxed);
        } else if counts.silent.load(Ordering::Relaxed) > SILENT_BYTES_MAX {
            let message = format!("upstream sent {SILENT_BYTES_MAX} bytes without adding to the answer");
            dialect.end(transient(&message), out);
        }
    }

    fn end(&mut self, cut: Failure) {
        self.ended = true;
        self.dialect.end(cut, &mut self.out);
    }

    /// After a complete answer, waits a moment for the end of the body and ignores what is still in it.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Option<Arrived>> {
        for _ in 0..EVENTS_MAX {
            if self.ended {
                return Poll::Ready(None);
            }
            if self.poll_source(cx).is_pending() {
                break;
            }
        }
        let Some(grace) = &mut self.close_grace else {
            self.close_grace = Some(Box::pin(sleep(CLOSE_GRACE)));
            return Poll::Ready(Some(Arrived::Ending));
        };
        grace.as_mut().poll(cx).map(|()| None)
    }

    /// Ends an answer that has its finish reason but whose upstream neither sends more nor closes the stream.
    fn poll_grace(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arrived, Failure>>> {
        if !self.dialect.is_complete() {
            return Poll::Pending;
        }
        let Some(grace) = &mut self.end_grace else {
            self.end_grace = Some(Box::pin(sleep(END_GRACE)));
            return Poll::Ready(Some(Ok(Arrived::Ending)));
        };
        ready!(grace.as_mut().poll(cx));
        self.end(ended_early());
        self.poll_out(cx)
    }

    /// Passes on what is ready, and the end when nothing else is left.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arrived, Failure>>> {
        if let Some(piece) = self.out.next() {
            return Poll::Ready(Some(Ok(Arrived::Piece(piece))));
        }
        if self.told {
            return Poll::Ready(None);
        }
        if let Some(Ok(_)) = self.out.end
            && let Some(ending) = ready!(self.poll_close(cx))
        {
            return Poll::Ready(Some(Ok(ending)));
        }
        self.told = true;
        let end = self.out.end.clone();
        Poll::Ready(end.map(|end| end.map(|reason| Arrived::Finished { reason })))
    }
}

fn ended_early() -> Failure {
    transient("upstream response ended too early")
}

impl<D: Dialect> Stream for Reading<D> {
    type Item = Result<Arrived, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Read everything that has arrived before passing anything on: a token that is added to a piece costs a
        // fraction of one that is passed on separately.
        let chunks = self.counts.chunks.load(Ordering::Relaxed);
        let (mut read, mut emptied) = (0, false);
        while !self.out.is_over() && self.out.bytes < PIECE_BYTES_MAX && read < EVENTS_MAX && !emptied {
            emptied = self.poll_source(cx).is_pending();
            read += 1;
        }
        if self.out.is_over() || !self.out.ready.is_empty() {
            return self.poll_out(cx);
        }
        let alive = read > usize::from(emptied) || self.counts.chunks.load(Ordering::Relaxed) != chunks;
        if alive && self.end_grace.is_none() {
            return Poll::Ready(Some(Ok(Arrived::Sign)));
        }
        if !emptied {
            cx.waker().wake_by_ref(); // there may be more, and nothing else will wake this task
        }
        self.poll_grace(cx)
    }
}

/// Bytes that the SSE parser has read. It hides its source, so they are counted before they reach it.
#[derive(Default)]
struct Counts {
    chunks: AtomicUsize,
    /// Since the last complete event.
    unfinished: AtomicUsize,
    /// Since the answer last grew.
    silent: AtomicUsize,
}

struct Counted {
    bytes: Chunks,
    counts: Arc<Counts>,
}

impl Stream for Counted {
    type Item = Result<Bytes, Broken>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let arrived = ready!(self.bytes.as_mut().poll_next(cx));
        let Some(Ok(bytes)) = arrived else { return Poll::Ready(arrived) };
        self.counts.chunks.fetch_add(1, Ordering::Relaxed);
        self.counts.silent.fetch_add(bytes.len(), Ordering::Relaxed);
        let unfinished = self.counts.unfinished.fetch_add(bytes.len(), Ordering::Relaxed) + bytes.len();
        if unfinished > EVENT_BYTES_MAX {
            return Poll::Ready(Some(Err(Broken::EventTooLarge { most: EVENT_BYTES_MAX })));
        }
        Poll::Ready(Some(Ok(bytes)))
    }
}
