//! What all upstreams that stream over HTTP have in common: events are cut out of the bytes as they come.
//! What the events mean is each vendor's dialect.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::Stream;
use outlast_core::{Failure, Piece, TextKind};
use tokio::time::{Sleep, sleep};

use super::exchange::Broken;
use super::failures::{broken, too_long, transient};
use super::sse::{Decoder, EVENT_BYTES_MAX};
use super::{Arrived, END_GRACE};

/// Text is handed on when it has this many bytes, even if more is waiting.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// After so many reads the upstream has given a sign of life, even if nothing can be handed on yet.
const READS_MAX: usize = 64;
/// So many bytes may come without a word of the answer: comments that keep a connection alive, and chunks of
/// models that think in silence. More is an upstream that keeps us busy for nothing.
const UNHEARD_BYTES_MAX: usize = 32 * 1024 * 1024;
/// An answer that is not a stream may be this large.
const WHOLE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What a vendor's events mean.
pub(super) trait Dialect: Send + Unpin + 'static {
    /// One event arrived.
    fn event(&mut self, data: &[u8], out: &mut Out);

    /// The answer came as one document, although a stream was asked for.
    fn whole(&mut self, document: &[u8], out: &mut Out);

    /// Whether the model has said why it stopped: what goes wrong after that is no loss.
    fn is_complete(&self) -> bool;

    /// Nothing more is read. `cut` is what has gone wrong unless the answer is complete.
    fn end(&mut self, cut: Failure, out: &mut Out);
}

/// What a dialect made of the events so far.
#[derive(Default)]
pub(super) struct Out {
    ready: VecDeque<Result<Arrived, Failure>>,
    /// How much is ready.
    bytes: usize,
    /// Whether anything was learnt since the last look.
    heard: bool,
    over: bool,
}

impl Out {
    /// Text of the same kind that arrived together becomes one piece.
    pub(super) fn text(&mut self, new_kind: TextKind, added: &str) {
        if added.is_empty() || self.over {
            return;
        }
        self.heard();
        self.bytes += added.len();
        if let Some(Ok(Arrived::Piece(Piece::Text { kind, text, chunks }))) = self.ready.back_mut()
            && *kind == new_kind
        {
            text.push_str(added);
            *chunks += 1;
            return;
        }
        self.piece(Piece::Text { kind: new_kind, text: added.to_owned(), chunks: 1 });
    }

    /// Something of the answer arrived, though it may not be ready to be handed on.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// A tool call is complete.
    pub(super) fn call(&mut self, call: Piece, bytes: usize) {
        self.bytes += bytes;
        self.piece(call);
    }

    pub(super) fn usage(&mut self, input_tokens: u64, output_tokens: u64) {
        self.piece(Piece::Usage { input_tokens, output_tokens });
    }

    /// The answer is complete.
    pub(super) fn finish(&mut self, reason: String) {
        if !self.over {
            self.ready.push_back(Ok(Arrived::Finished { reason }));
            self.over = true;
        }
    }

    /// The answer is broken.
    pub(super) fn fail(&mut self, failure: Failure) {
        if !self.over {
            self.ready.push_back(Err(failure));
            self.over = true;
        }
    }

    /// The next thing to hand on.
    fn next(&mut self) -> Option<Result<Arrived, Failure>> {
        let next = self.ready.pop_front();
        if self.ready.is_empty() {
            self.bytes = 0;
        }
        next
    }

    fn piece(&mut self, piece: Piece) {
        if !self.over {
            self.ready.push_back(Ok(Arrived::Piece(piece)));
        }
    }
}

/// How an answer is written.
pub(super) enum Form {
    /// As server-sent events.
    Events(Decoder),
    /// As one document.
    Whole(Vec<u8>),
}

impl Form {
    pub(super) fn events() -> Form {
        Form::Events(Decoder::default())
    }

    pub(super) fn whole() -> Form {
        Form::Whole(Vec::new())
    }
}

/// An answer being read: bytes in, pieces out.
pub(super) struct Reading<S, D> {
    bytes: S,
    form: Form,
    dialect: D,
    out: Out,
    /// Bytes since the last word.
    unheard: usize,
    /// How long what comes after a complete answer is still waited for.
    grace: Option<Pin<Box<Sleep>>>,
}

impl<S, D: Dialect> Reading<S, D> {
    pub(super) fn new(bytes: S, form: Form, dialect: D) -> Reading<S, D> {
        Reading { bytes, form, dialect, out: Out::default(), unheard: 0, grace: None }
    }

    fn read(&mut self, bytes: &[u8]) {
        let Reading { form, dialect, out, unheard, .. } = self;
        match form {
            Form::Events(decoder) => {
                if decoder.push(bytes, |data| dialect.event(data, out)).is_err() {
                    let message = format!("upstream sent an event of more than {EVENT_BYTES_MAX} bytes");
                    dialect.end(transient(&message), out);
                }
                *unheard = if std::mem::take(&mut out.heard) { 0 } else { *unheard + bytes.len() };
                if *unheard > UNHEARD_BYTES_MAX {
                    let message = format!("upstream sent {UNHEARD_BYTES_MAX} bytes without a word");
                    dialect.end(transient(&message), out);
                }
            }
            Form::Whole(document) if document.len() + bytes.len() > WHOLE_BYTES_MAX => {
                out.fail(too_long(&format!("the answer is longer than {WHOLE_BYTES_MAX} bytes")));
            }
            Form::Whole(document) => document.extend_from_slice(bytes),
        }
    }

    fn end(&mut self, cut: Option<Failure>) {
        let Reading { form, dialect, out, .. } = self;
        match (form, cut) {
            (Form::Whole(document), None) => dialect.whole(document, out),
            (_, cut) => dialect.end(cut.unwrap_or_else(|| transient("upstream ended too early")), out),
        }
    }

    /// A complete answer whose upstream does not hang up ends when its time is over.
    fn poll_grace(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arrived, Failure>>> {
        if !self.dialect.is_complete() {
            return Poll::Pending;
        }
        let Some(grace) = &mut self.grace else {
            self.grace = Some(Box::pin(sleep(END_GRACE)));
            return Poll::Ready(Some(Ok(Arrived::Ending)));
        };
        if grace.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.end(None);
        Poll::Ready(self.out.next())
    }
}

impl<S, D> Stream for Reading<S, D>
where
    S: Stream<Item = Result<Bytes, Broken>> + Unpin,
    D: Dialect,
{
    type Item = Result<Arrived, Failure>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Everything that has arrived is taken before anything is handed on: a token that waits in the
        // socket is text for the same piece, and costs a fraction of one that is handed on by itself.
        let (mut any, mut emptied) = (false, false);
        for _ in 0..READS_MAX {
            if self.out.over || self.out.bytes >= PIECE_BYTES_MAX {
                break;
            }
            match Pin::new(&mut self.bytes).poll_next(cx) {
                Poll::Ready(Some(Ok(bytes))) => self.read(&bytes),
                Poll::Ready(Some(Err(error))) => self.end(Some(broken(&error))),
                Poll::Ready(None) => self.end(None),
                Poll::Pending => {
                    emptied = true;
                    break;
                }
            }
            any = true;
        }
        match self.out.next() {
            Some(arrived) => Poll::Ready(Some(arrived)),
            None if self.out.over => Poll::Ready(None),
            // Comments must not make it wait for longer.
            None if any && self.grace.is_none() => Poll::Ready(Some(Ok(Arrived::Sign))),
            None => {
                if !emptied {
                    cx.waker().wake_by_ref(); // there may be more, and nobody will say so again
                }
                self.poll_grace(cx)
            }
        }
    }
}
