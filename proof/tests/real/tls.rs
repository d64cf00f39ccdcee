//! An upstream behind TLS, with a trusted certificate and without.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use serde_json::json;
use tempfile::NamedTempFile;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::{http2, soon};

/// The variable with the address of the model.
pub(crate) const BASE_URL: &str = "OUTLAST_MODELS__DEFAULT__BASE_URL";

/// TLS in front of an upstream.
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    /// How many connections were opened.
    pub(crate) connections: Arc<AtomicUsize>,
    /// The certificate to trust.
    certificate: NamedTempFile,
    _serving: JoinSet<()>,
}

/// The protocol inside TLS.
#[derive(Clone, Copy)]
pub(crate) enum Speaks {
    /// HTTP/1.1, like the upstream.
    Http1,
    /// HTTP/2, offered in the handshake.
    Http2,
}

impl Door {
    fn options(&self, upstream: &Upstream, trusted: &Door) -> Options {
        trusted.trusted_by(Options::with(upstream)).env(BASE_URL, &format!("https://{}/v1", self.address))
    }

    pub(crate) fn trusted_by(&self, options: Options) -> Options {
        options.env("SSL_CERT_FILE", &self.certificate.path().to_string_lossy())
    }

    /// Starts a TLS proxy for this host name.
    pub(crate) async fn open(upstream: SocketAddr, host: &str, speaks: Speaks) -> anyhow::Result<Door> {
        let made = rcgen::generate_simple_self_signed([host.to_owned()])?;
        let certificate = NamedTempFile::new()?;
        std::fs::write(certificate.path(), made.cert.pem())?;
        let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
        let mut config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)?;
        if let Speaks::Http2 = speaks {
            config.alpn_protocols = vec![b"h2".to_vec()];
        }
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                open.spawn(async move {
                    let mut stream = acceptor.accept(stream).await?;
                    match speaks {
                        Speaks::Http1 => {
                            let mut upstream = TcpStream::connect(upstream).await?;
                            copy_bidirectional(&mut stream, &mut upstream).await?;
                        }
                        Speaks::Http2 => http2::serve(stream, upstream).await?,
                    }
                    anyhow::Ok(())
                });
            }
        });
        Ok(Door { address, connections, certificate, _serving: serving })
    }
}

async fn behind_tls(upstream: SocketAddr) -> anyhow::Result<Door> {
    Door::open(upstream, &Ipv4Addr::LOCALHOST.to_string(), Speaks::Http1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_an_upstream_behind_tls_works_and_fails_like_any_other() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let door = behind_tls(upstream.address()).await?;
    let server = Server::start(door.options(&upstream, &door)).await?;
    let api = server.api();
    let as_fast_as_it_goes = upstream.script(2_000).rate(0);
    let cut_and_asked_again = upstream.script(30).rate(1_000).fault("reset_after=7 fails=1");
    let with_a_long_question = upstream.script(30).fault(&"and so on ".repeat(90_000));
    for script in [as_fast_as_it_goes, cut_and_asked_again, with_a_long_question] {
        let tokens = script.tokens();
        let started = api.play(&script).await?;
        let recording = Reader::of_generation(api, &started.generation).record(soon()).await;
        Case::completed(&started, tokens, vec![recording]).check(api).await?.clean()?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i14_an_upstream_with_an_untrusted_certificate_gets_no_request() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let (door, other) = (behind_tls(upstream.address()).await?, behind_tls(upstream.address()).await?);
    let server = Server::start(door.options(&upstream, &other)).await?;
    let script = upstream.script(30);
    let started = server.api().play(&script).await?;
    let document = server.api().until_ended(&started.generation).await?;
    assert_eq!(document["status"], json!("error"), "{document}");
    assert_eq!(upstream.calls(&script).await?.calls, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_call_to_an_upstream_opens_no_connection_and_no_tls_handshake() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let door = behind_tls(upstream.address()).await?;
    let server = Server::start(door.options(&upstream, &door)).await?;
    for _ in 0..5 {
        let script = upstream.script(30).rate(1_000);
        let started = server.api().play(&script).await?;
        server.api().until_status(&started.generation, &["completed"]).await?;
    }
    assert_eq!(door.connections.load(Ordering::Relaxed), 1, "each connection is one handshake");
    Ok(())
}
