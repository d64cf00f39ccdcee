//! Drops readers that cannot keep up. They lose nothing, because they can reconnect at their position.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use prometheus::{IntCounterVec, IntGauge};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::http::ConnectionUser;

/// A reader that reads nothing for this long is dropped. It is also the shortest time over which a rate is
/// measured, because a socket accepts data in bursts.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Slower than this counts as stalled, in bytes per second: a tenth of a poor mobile connection.
const STALL_RATE: f64 = 4.0 * 1024.0;
/// After this many bytes, a reader must be faster than the rate below. It is more than the largest single response
/// (1 MiB), so that a slow reader still gets everything, one connection at a time.
const BACKLOG_BYTES: u64 = 1280 * 1024;
/// A reader that is behind and slower than this would hold its connection for hours.
const BACKLOG_RATE: f64 = 16.0 * 1024.0;

/// A connection that fails when its reader is too slow. Only the time during which the server waits for the reader
/// counts, so a reader that keeps up with a slow generation is never dropped.
pub(super) struct Paced<S> {
    stream: S,
    /// The connection's slot, freed together with the socket.
    slot: Slot,
    /// When the server started to wait for the reader, and the timer after which it has waited too long.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
    stall: Tally,
    backlog: Tally,
}

/// The slot of a connection, counted while it is open.
pub(super) struct Slot {
    _permit: OwnedSemaphorePermit,
    _user: ConnectionUser,
    counted: Counted,
}

/// Where connections are counted.
#[derive(Clone)]
pub(super) struct Counted {
    pub(super) open: IntGauge,
    /// By reason.
    pub(super) dropped: IntCounterVec,
}

impl Slot {
    pub(super) fn new(permit: OwnedSemaphorePermit, user: ConnectionUser, counted: Counted) -> Slot {
        counted.open.inc();
        Slot { _permit: permit, _user: user, counted }
    }

    fn too_slow(&self, reason: &str, why: &'static str) -> io::Error {
        self.counted.dropped.with_label_values(&[reason]).inc();
        io::Error::new(io::ErrorKind::TimedOut, why)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.counted.open.dec();
    }
}

/// How much a reader has read, and how long the server has waited for it.
#[derive(Clone, Copy, Default)]
struct Tally {
    bytes: u64,
    waited: Duration,
}

impl Tally {
    fn is_slower_than(&self, rate: f64) -> bool {
        (self.bytes as f64) < rate * self.waited.as_secs_f64()
    }
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, slot: Slot) -> Paced<S> {
        Paced { stream, slot, waiting: None, stall: Tally::default(), backlog: Tally::default() }
    }

    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(bytes)) => {
                let waited = self.waiting.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
                self.take(bytes as u64, waited)?;
                Poll::Ready(Ok(bytes))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                let begin = || (Instant::now(), Box::pin(tokio::time::sleep(STALL_TIMEOUT)));
                let (_, too_long) = self.waiting.get_or_insert_with(begin);
                let slot = &self.slot;
                let refuse = || slot.too_slow("stalled", "the reader read nothing for too long");
                too_long.as_mut().poll(cx).map(|()| Err(refuse()))
            }
        }
    }

    /// Counts what the reader has read after the server waited this long.
    fn take(&mut self, bytes: u64, waited: Duration) -> io::Result<()> {
        for tally in [&mut self.stall, &mut self.backlog] {
            tally.bytes += bytes;
            tally.waited += waited;
        }
        if self.stall.waited >= STALL_TIMEOUT {
            if self.stall.is_slower_than(STALL_RATE) {
                return Err(self.slot.too_slow("slow", "the reader is almost stalled"));
            }
            self.stall = Tally::default();
        }
        if self.backlog.bytes >= BACKLOG_BYTES {
            if self.backlog.is_slower_than(BACKLOG_RATE) {
                return Err(self.slot.too_slow("slow", "the reader is too slow to catch up"));
            }
            self.backlog = Tally::default();
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.judge(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.judge(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::Semaphore;

    use super::*;

    /// The buffer between the server and a reader.
    const SOCKET_BYTES: usize = 64 * 1024;
    const ENDLESS: u64 = 1 << 40;

    fn paced(stream: DuplexStream) -> Paced<DuplexStream> {
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Paced::new(stream, Slot::new(permit, ConnectionUser::default(), counted()))
    }

    fn counted() -> Counted {
        let dropped = prometheus::Opts::new("dropped", "dropped");
        Counted {
            open: IntGauge::new("open", "open").unwrap(),
            dropped: IntCounterVec::new(dropped, &["reason"]).unwrap(),
        }
    }

    /// Writes until everything is read or the reader is dropped. Returns the number of bytes written and the time.
    async fn write(stream: DuplexStream, bytes: u64) -> (u64, Duration) {
        let (mut paced, begun, mut written) = (paced(stream), Instant::now(), 0);
        while written < bytes {
            let piece = usize::try_from(bytes - written).unwrap().min(8 * 1024);
            match paced.write(&[b'x'; 8 * 1024][..piece]).await {
                Ok(more) => written += more as u64,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                    break;
                }
            }
        }
        (written, begun.elapsed())
    }

    /// Reads `rate` bytes per second, one piece per `every`.
    async fn read(mut stream: DuplexStream, rate: u64, every: Duration) {
        let mut piece = vec![0; (rate as f64 * every.as_secs_f64()) as usize];
        while stream.read_exact(&mut piece).await.is_ok() {
            tokio::time::sleep(every).await;
        }
    }

    async fn both(rate: u64, every: Duration, bytes: u64) -> (u64, Duration) {
        let (ours, theirs) = duplex(SOCKET_BYTES);
        tokio::select! {
            outcome = write(ours, bytes) => outcome,
            () = async { read(theirs, rate, every).await; std::future::pending().await } => unreachable!(),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn i12_a_reader_that_reads_nothing_is_dropped_after_30_s() {
        let (ours, theirs) = duplex(SOCKET_BYTES);
        let (written, after) = write(ours, ENDLESS).await;
        assert_eq!((written, after.as_secs()), (SOCKET_BYTES as u64, 30));
        drop(theirs);
    }

    #[tokio::test(start_paused = true)]
    async fn i12_a_reader_below_4_kb_per_second_is_dropped_however_it_reads() {
        for (rate, every) in [(1, SECOND), (3_000, SECOND), (3_000, SECOND / 50), (3_000, SECOND * 20)] {
            let (_, after) = both(rate, every, ENDLESS).await;
            assert!((30..=90).contains(&after.as_secs()), "{rate} B/s every {every:?}: {after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn i12_a_reader_that_cannot_catch_up_is_dropped_but_gets_the_largest_response() {
        for rate in [6_000, 12_000] {
            let (written, _) = both(rate, SECOND, ENDLESS).await;
            assert!((1 << 20..=BACKLOG_BYTES).contains(&written), "{rate} B/s: {written}");
            let (written, _) = both(rate, SECOND, 1 << 20).await;
            assert_eq!(written, 1 << 20, "{rate} B/s must get all of it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_is_fast_enough_gets_everything() {
        let (written, _) = both(20_000, SECOND, 20 << 20).await;
        assert_eq!(written, 20 << 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_keeps_up_with_a_slow_generation_is_never_dropped() {
        let (ours, theirs) = duplex(SOCKET_BYTES);
        let generation = async {
            let mut paced = paced(ours);
            for _ in 0..7_200 {
                paced.write_all(&[b'x'; 500]).await.unwrap();
                tokio::time::sleep(SECOND).await;
            }
        };
        tokio::join!(generation, read(theirs, 500, SECOND));
    }
}
