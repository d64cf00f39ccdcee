//! Readers that do not read.

use std::net::SocketAddr;
use std::time::Duration;

use outlast_proof::check::{Case, first_difference};
use outlast_proof::reader::Reader;
use outlast_proof::server::Server;
use outlast_proof::sse::{Cutter, Frame};
use outlast_proof::stored::Stored;
use outlast_proof::wait::{LONG, bounded};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, interval};

use crate::{both, soon};

/// An answer of about 1.6 MB, or 60 MB as events: far more than fits into the buffers of a stalled reader.
const TOKENS: u64 = 270_000;
/// What 20 stalled readers may use in addition to the answer itself. Their socket buffers belong to the kernel, and
/// each holds at most one page of the log.
const MEMORY_MAX: u64 = 400 << 20;

/// Requests a stream and reads nothing of it. It uses HTTP/1.0, so that the body is plain bytes until the close.
async fn stall(address: SocketAddr, generation: &str) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(address).await?;
    let request = format!("GET /v1/generations/{generation}/events HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

/// Reads the rest until the server closes. Returns whether it ended without an error, and the frames.
async fn drain(mut stream: TcpStream) -> anyhow::Result<(bool, Vec<Frame>)> {
    let mut bytes = Vec::new();
    let read = bounded("draining a stalled reader", LONG, stream.read_to_end(&mut bytes)).await?;
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
    let mut cutter = Cutter::default();
    cutter.push(&bytes[head..]);
    let frames = cutter.cut_all()?;
    Ok((read.is_ok(), frames))
}

/// Whether the server still holds its end of a connection. After a close the kernel may still send buffered data, but
/// no process owns the socket, and its inode is 0.
fn server_holds(server: u16, client: u16) -> anyhow::Result<bool> {
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    let (from, to) = (format!(":{server:04X}"), format!(":{client:04X}"));
    Ok(table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).any(|fields| {
        fields.len() > 9 && fields[1].ends_with(&from) && fields[2].ends_with(&to) && fields[9] != "0"
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_i12_stalled_readers_delay_no_one_use_little_memory_and_resume_exactly() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    // How long it takes without stalled readers.
    let begun = Instant::now();
    let alone = api.play(&upstream.script(TOKENS)).await?;
    Reader::of_generation(api, &alone.generation).record(soon()).await;
    let undisturbed = begun.elapsed();

    let begun = Instant::now();
    let started = api.play(&upstream.script(TOKENS)).await?;
    let mut stalled = Vec::new();
    for _ in 0..20 {
        stalled.push(stall(server.address(), &started.generation).await?);
    }
    let recording = Reader::of_generation(api, &started.generation).record(soon()).await;
    let disturbed = begun.elapsed();
    let most = undisturbed * 3 + Duration::from_secs(3); // a busy machine, not a stalled reader
    assert!(disturbed < most, "{disturbed:?} with stalled readers, {undisturbed:?} without");
    let resident = server.resident_bytes()?;
    eprintln!("20 stalled readers: {disturbed:?}, alone: {undisturbed:?}, {} MiB resident", resident >> 20);
    assert!(resident < MEMORY_MAX, "{} MiB with 20 stalled readers", resident >> 20);

    // A reader that starts to read again gets the rest, in order.
    let log = Stored::read(api, &started.conversation).await?;
    let (well, frames) = drain(stalled.remove(0)).await?;
    assert!(well && frames.last().is_some_and(Frame::is_end), "{} frames", frames.len());
    assert_eq!(first_difference(&frames, &log.events_of(&started.generation)), None);
    Case::completed(&started, TOKENS, vec![recording]).check(api).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_i12_a_reader_that_stalls_too_long_is_dropped_and_can_resume() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let started = api.play(&upstream.script(TOKENS)).await?;
    api.until_ended(&started.generation).await?;
    let stalled = stall(server.address(), &started.generation).await?;
    let client = stalled.local_addr()?.port();
    outlast_proof::wait::until("taking the connection", LONG, async || {
        Ok(server_holds(server.address().port(), client)?.then_some(()))
    })
    .await?;
    // The server drops a reader after 30 s without progress.
    outlast_proof::wait::until("dropping the stalled reader", Duration::from_secs(50), async || {
        Ok((!server_holds(server.address().port(), client)?).then_some(()))
    })
    .await?;
    let (_, frames) = drain(stalled).await?;
    assert!(!frames.iter().any(Frame::is_end), "it was dropped before the end");
    let stored = Stored::read(api, &started.conversation).await?;
    let log = stored.events_of(&started.generation);
    assert_eq!(first_difference(&frames, &log), None, "what it received before is exact");

    let after = frames.last().map_or(0, |frame| frame.seq);
    let path = format!("/v1/generations/{}/events?after={after}", started.generation);
    let rest = api.request(reqwest::Method::GET, &path).timeout(LONG).send().await?.bytes().await?;
    let mut cutter = Cutter::default();
    cutter.push(&rest);
    let mut whole = frames;
    whole.extend(cutter.cut_all()?);
    assert_eq!(first_difference(&whole, &log), None, "i2: it resumes exactly where it was");
    assert_eq!(whole.len(), log.len());
    Ok(())
}

/// How long the server keeps a reader that reads this many bytes every tenth of a second.
async fn kept_reading(
    server: &Server,
    generation: &str,
    bytes: usize,
    most: Duration,
) -> anyhow::Result<Duration> {
    let mut reader = stall(server.address(), generation).await?;
    let (client, begun) = (reader.local_addr()?.port(), Instant::now());
    let (mut ticks, mut piece) = (interval(Duration::from_millis(100)), vec![0; bytes]);
    let reading = async {
        loop {
            ticks.tick().await;
            let read = reader.read(&mut piece).await;
            let dropped =
                begun.elapsed() > Duration::from_secs(1) && !server_holds(server.address().port(), client)?;
            if dropped || read.is_err() {
                return Ok(begun.elapsed());
            }
        }
    };
    bounded("dropping a reader that is too slow", most, reading).await?
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_i12_a_reader_that_is_too_slow_to_finish_is_dropped() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let started = api.play(&upstream.script(TOKENS)).await?;
    api.until_ended(&started.generation).await?;
    let (stalled, slow) = tokio::try_join!(
        kept_reading(&server, &started.generation, 200, Duration::from_secs(120)),
        kept_reading(&server, &started.generation, 1_200, Duration::from_secs(240)),
    )?;
    eprintln!("2 kB/s: dropped after {stalled:?}; 12 kB/s: after {slow:?}");
    assert!(stalled > Duration::from_secs(25) && slow > Duration::from_secs(60), "{stalled:?}, {slow:?}");
    Ok(())
}
