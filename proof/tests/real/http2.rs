//! An upstream that offers HTTP/2.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;

use futures_util::TryStreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;

use crate::cancels::upstream_is_closed;
use crate::soon;
use crate::tls::{BASE_URL, Door, Speaks};

/// Serves one connection: each request is forwarded to the upstream, and the response is streamed back.
pub(crate) async fn serve(stream: TlsStream<TcpStream>, upstream: SocketAddr) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let service = service_fn(move |request: Request<Incoming>| {
        let client = client.clone();
        async move {
            assert_eq!(request.version(), Version::HTTP_2);
            let url = format!("http://{upstream}{}", request.uri().path());
            let body = request.into_body().collect().await.expect("a whole request").to_bytes();
            let answer = client.post(url).body(body).send().await.expect("the upstream is running");
            let (status, headers) = (answer.status(), answer.headers().clone());
            let mut response = Response::new(StreamBody::new(answer.bytes_stream().map_ok(Frame::data)));
            *response.status_mut() = status;
            if let Some(kind) = headers.get(CONTENT_TYPE) {
                response.headers_mut().insert(CONTENT_TYPE, kind.clone());
            }
            Ok::<_, Infallible>(response)
        }
    });
    hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}

async fn door(upstream: &Upstream) -> anyhow::Result<(Door, Server)> {
    let door = Door::open(upstream.address(), &Ipv4Addr::LOCALHOST.to_string(), Speaks::Http2).await?;
    let options = door.trusted_by(Options::with(upstream));
    let server = Server::start(options.env(BASE_URL, &format!("https://{}/v1", door.address))).await?;
    Ok((door, server))
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_over_http2_share_one_connection() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let (door, server) = door(&upstream).await?;
    for together in [1, 10] {
        let mut visits = JoinSet::new();
        for _ in 0..together {
            let (api, script) = (server.api().clone(), upstream.script(50).rate(500));
            visits.spawn(async move {
                let started = api.play(&script).await?;
                let recording = Reader::of_generation(&api, &started.generation).record(soon()).await;
                Case::completed(&started, 50, vec![recording]).check(&api).await?.clean()
            });
        }
        for visit in visits.join_all().await {
            visit?;
        }
    }
    assert_eq!(door.connections.load(Ordering::Relaxed), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_a_cancel_ends_the_http2_stream_within_a_second_and_keeps_the_connection() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let (door, server) = door(&upstream).await?;
    let api = server.api();
    let endless = upstream.script(10_000).rate(100);
    let started = api.play(&endless).await?;
    api.until_chunks(&started.generation, 5).await?;
    assert!(api.cancel(&started.generation).await?);
    upstream_is_closed(&upstream, &endless).await?;
    let started = api.play(&upstream.script(5)).await?;
    api.until_status(&started.generation, &["completed"]).await?;
    assert_eq!(door.connections.load(Ordering::Relaxed), 1);
    Ok(())
}
