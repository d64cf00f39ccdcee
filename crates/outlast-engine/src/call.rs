//! A call to a model. Everything that has arrived is read at once, as a *gulp*.
//!
//! What arrives is gathered here while an append is in flight, and until the pace allows the next event. So at low
//! load every token is an event of its own. At high load events grow instead of queues, and each token needs fewer
//! writes and wake-ups. When a gulp is full nothing more is read: bytes wait in the connection, and the upstream
//! notices.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use outlast_core::{CallEnd, Effect, Failure, FailureClass, GenerationId, Piece};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::models::{Arrived, END_GRACE, ModelStream};
use crate::pace::Paced;

/// A gulp is full when it has this many bytes, even if more is waiting.
const GULP_BYTES_MAX: usize = 16 * 1024;
/// Counted for each piece in addition to its text, because it becomes an event. It limits the number of pieces
/// in a gulp, however small they are.
const PIECE_OVERHEAD_BYTES: usize = 64;

pub(crate) struct Call {
    pub(crate) generation: GenerationId,
    pub(crate) attempt: u32,
    stream: ModelStream,
    idle: Duration,
    /// When silence becomes a failure. It is extended only when something arrives, however often the owner wakes.
    deadline: Instant,
    /// Fires at the deadline or at an earlier one, because resetting it for every token would cost more than one
    /// spurious wake-up.
    alarm: Pin<Box<Sleep>>,
    paced: Paced,
    /// Fires when text may be handed out again.
    turn: Pin<Box<Sleep>>,
    pieces: Vec<Piece>,
    bytes: usize,
    end: Option<End>,
}

/// How the stream ended. `CallEnd` without its random part.
enum End {
    Finished(String),
    Failed(Failure),
}

pub(crate) struct Gulp {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) end: Option<CallEnd>,
}

impl Call {
    pub(crate) fn new(
        generation: GenerationId,
        attempt: u32,
        stream: ModelStream,
        idle: Duration,
        paced: Paced,
    ) -> Call {
        let now = Instant::now();
        Call {
            generation,
            attempt,
            stream,
            idle,
            deadline: now + idle,
            alarm: Box::pin(sleep_until(now + idle)),
            paced,
            turn: Box::pin(sleep_until(now)),
            pieces: Vec::new(),
            bytes: 0,
            end: None,
        }
    }

    /// The effect that this call carries out.
    pub(crate) fn effect(&self) -> Effect {
        Effect::CallModel { generation: self.generation.clone(), attempt: self.attempt }
    }

    /// Waits until there is something to hand out. What was taken is kept in `self`, so dropping this future loses
    /// nothing.
    pub(crate) async fn gather(&mut self) {
        poll_fn(|cx| {
            self.read(cx);
            if self.is_empty() {
                return Poll::Pending;
            }
            if self.may_wait() { self.turn.as_mut().poll(cx) } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Gathers while `work` runs.
    pub(crate) async fn gather_during<T>(mut call: Option<&mut Call>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if let Some(call) = &mut call {
                call.read(cx);
            }
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Takes what has arrived. The task is woken when more arrives, unless the gulp is full.
    fn read(&mut self, cx: &mut Context<'_>) {
        while !self.is_full() {
            let Poll::Ready(arrived) = self.stream.poll_next_unpin(cx) else { break };
            self.take(arrived);
        }
        while self.is_empty() && self.alarm.as_mut().poll(cx).is_ready() {
            if self.alarm.deadline() >= self.deadline {
                self.end = Some(End::Failed(self.timed_out()));
            } else {
                self.alarm.as_mut().reset(self.deadline);
            }
        }
    }

    /// Returns what was gathered.
    pub(crate) fn gulp(&mut self, jitter: impl FnOnce() -> u8) -> Gulp {
        self.bytes = 0;
        self.turn.as_mut().reset(Instant::now() + self.paced.spacing());
        let end = self.end.take().map(|end| match end {
            End::Finished(reason) => CallEnd::Finished { reason },
            End::Failed(failure) => CallEnd::Failed { failure, jitter: jitter() },
        });
        Gulp { pieces: std::mem::take(&mut self.pieces), end }
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.end.is_none()
    }

    fn is_full(&self) -> bool {
        self.end.is_some() || self.bytes >= GULP_BYTES_MAX
    }

    /// Text can wait for its turn. Nothing else comes often.
    fn may_wait(&self) -> bool {
        !self.is_full() && self.pieces.iter().all(|piece| matches!(piece, Piece::Text { .. }))
    }

    fn take(&mut self, arrived: Option<Result<Arrived, Failure>>) {
        self.deadline = Instant::now() + self.idle;
        match arrived {
            Some(Ok(Arrived::Piece(piece))) => self.add(piece),
            Some(Ok(Arrived::Sign)) => {}
            // The stream ends by itself before this deadline, so a complete answer does not time out here.
            Some(Ok(Arrived::Ending)) => {
                self.idle = self.idle.max(2 * END_GRACE);
                self.deadline = Instant::now() + self.idle;
            }
            Some(Ok(Arrived::Finished { reason })) => self.end = Some(End::Finished(reason)),
            Some(Err(failure)) => self.end = Some(End::Failed(failure)),
            None => self.end = Some(End::Failed(cut_short())),
        }
    }

    fn add(&mut self, piece: Piece) {
        if let (
            Piece::Text { kind, text, chunks },
            Some(Piece::Text { kind: last, text: gathered, chunks: count }),
        ) = (&piece, self.pieces.last_mut())
            && last == kind
        {
            self.bytes += text.len();
            gathered.push_str(text);
            *count += chunks;
            return;
        }
        self.bytes += PIECE_OVERHEAD_BYTES + size(&piece);
        self.pieces.push(piece);
    }

    fn timed_out(&self) -> Failure {
        let message = format!("timed out: the upstream sent nothing for {:?}", self.idle);
        Failure { class: FailureClass::Timeout, message, retry_after: None }
    }
}

fn size(piece: &Piece) -> usize {
    match piece {
        Piece::Text { text, .. } => text.len(),
        Piece::ToolCall { input, .. } => input.to_string().len(),
        Piece::Signature { signature } => signature.len(),
        _ => 0, // the rest of what models send has a fixed size
    }
}

fn cut_short() -> Failure {
    let message = "upstream response ended too early".to_owned();
    Failure { class: FailureClass::Transient, message, retry_after: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use outlast_core::TextKind;
    use tokio::sync::mpsc;

    use super::*;
    use crate::pace::Pace;

    fn text(text: &str) -> Result<Arrived, Failure> {
        Ok(Arrived::Piece(Piece::Text { kind: TextKind::Answer, text: text.to_owned(), chunks: 1 }))
    }

    fn call(pace: &Arc<Pace>) -> (mpsc::Sender<Result<Arrived, Failure>>, Call) {
        let (upstream, arriving) = mpsc::channel(8);
        let stream = futures_util::stream::unfold(arriving, |mut arriving| async {
            arriving.recv().await.map(|arrived| (arrived, arriving))
        });
        let paced = Paced::new(pace.clone());
        (upstream, Call::new("g".into(), 1, stream.boxed(), Duration::from_secs(60), paced))
    }

    /// The texts of the next gulp, and how long it took.
    async fn next(call: &mut Call) -> (Vec<String>, Duration) {
        let begun = Instant::now();
        call.gather().await;
        let texts = call.gulp(|| 0).pieces.into_iter().map(|piece| match piece {
            Piece::Text { text, .. } => text,
            other => format!("{other:?}"),
        });
        (texts.collect(), begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_among_few_hands_out_every_token_at_once() {
        let (upstream, mut call) = call(&Arc::default());
        for token in ["a", "b", "c"] {
            upstream.send(text(token)).await.unwrap();
            let (texts, after) = next(&mut call).await;
            assert_eq!(texts, [token]);
            assert!(after <= Duration::from_millis(1), "{after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_among_many_gathers_text_for_three_frames() {
        let pace = Arc::default();
        let _others: Vec<Paced> = (0..100_000).map(|_| Paced::new(Arc::clone(&pace))).collect();
        let (upstream, mut call) = call(&pace);
        upstream.send(text("a")).await.unwrap();
        let (texts, after) = next(&mut call).await;
        assert_eq!(
            (texts, after),
            (vec!["a".to_owned()], Duration::ZERO),
            "nobody waits for the first token"
        );
        upstream.send(text("b")).await.unwrap();
        upstream.send(text("c")).await.unwrap();
        let (texts, after) = next(&mut call).await;
        assert_eq!(texts, ["bc"]);
        assert!((48..=50).contains(&after.as_millis()), "{after:?}");
        drop(upstream);
        let (_, after) = next(&mut call).await;
        assert_eq!(after, Duration::ZERO, "the end waits for nobody");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_fails_a_call_when_nothing_arrived_for_too_long() {
        let (upstream, mut call) = call(&Arc::default());
        tokio::time::sleep(Duration::from_secs(50)).await;
        upstream.send(text("a")).await.unwrap();
        next(&mut call).await;
        let begun = Instant::now();
        call.gather().await;
        assert_eq!(begun.elapsed().as_secs(), 60, "counted from the last arrival, not from the start");
        assert!(matches!(call.gulp(|| 0).end, Some(CallEnd::Failed { .. })));
    }
}
