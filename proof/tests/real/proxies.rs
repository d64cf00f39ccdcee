//! Proxies from the environment.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use anyhow::Context;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::tls::{BASE_URL, Door, Speaks};

/// A host that can be reached only through the proxy.
const HOST: &str = "upstream.test";

/// A proxy that forwards everything to one address.
struct Proxy {
    url: String,
    /// The first line of each request.
    lines: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Proxy {
    async fn to(target: SocketAddr) -> anyhow::Result<Proxy> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = lines.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                open.spawn(relay(stream, target, heard.clone()));
            }
        });
        Ok(Proxy { url, lines, _serving: serving })
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no thread panics while it holds the lock").clone()
    }
}

/// Opens a tunnel for `CONNECT`, and forwards any other request with only its path.
async fn relay(
    mut stream: TcpStream,
    target: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
) -> anyhow::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    lines.lock().expect("no thread panics while it holds the lock").push(line.clone());
    let mut upstream = TcpStream::connect(target).await?;
    if line.starts_with("CONNECT ") {
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    } else {
        let address = line.split(' ').nth(1).context("a request has an address")?;
        let path = address
            .strip_prefix(&format!("http://{HOST}"))
            .context("a request to a proxy has the whole URL")?;
        upstream.write_all(head.replacen(address, path, 1).as_bytes()).await?;
    }
    copy_bidirectional(&mut stream, &mut upstream).await?;
    Ok(())
}

/// How a generation ends on a server with these variables.
async fn ends(upstream: &Upstream, options: Options) -> anyhow::Result<String> {
    let server = Server::start(options).await?;
    let started = server.api().play(&upstream.script(5)).await?;
    let document = server.api().until_ended(&started.generation).await?;
    Ok(document["status"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_is_called_through_http_proxy() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let proxy = Proxy::to(upstream.address()).await?;
    let options = Options::with(&upstream).env(BASE_URL, &format!("http://{HOST}/v1"));
    let options = options.env("HTTP_PROXY", &proxy.url).env("NO_PROXY", "example.com");
    assert_eq!(ends(&upstream, options).await?, "completed");
    assert_eq!(proxy.lines(), [format!("POST http://{HOST}/v1/chat/completions HTTP/1.1")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_behind_tls_is_called_through_https_proxy() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let door = Door::open(upstream.address(), HOST, Speaks::Http1).await?;
    let proxy = Proxy::to(door.address).await?;
    let options = door.trusted_by(Options::with(&upstream)).env(BASE_URL, &format!("https://{HOST}/v1"));
    assert_eq!(ends(&upstream, options.env("HTTPS_PROXY", &proxy.url)).await?, "completed");
    assert_eq!(proxy.lines(), [format!("CONNECT {HOST}:443 HTTP/1.1")]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_proxy_and_addresses_of_this_machine_are_called_directly() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let proxy = Proxy::to(upstream.address()).await?;
    let options = Options::with(&upstream).env("HTTP_PROXY", &proxy.url).env("NO_PROXY", "");
    assert_eq!(ends(&upstream, options).await?, "completed");
    // This address also reaches this machine, but does not count as local.
    let base = format!("http://0.0.0.0:{}/v1", upstream.address().port());
    let excepted = Options::with(&upstream).env(BASE_URL, &base).env("HTTP_PROXY", &proxy.url);
    assert_eq!(ends(&upstream, excepted.env("NO_PROXY", "0.0.0.0")).await?, "completed");
    assert_eq!(proxy.lines(), [""; 0]);
    Ok(())
}
