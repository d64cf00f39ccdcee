//! An upstream behind TLS, with a certificate that the machine is told to trust, and without.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

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

use crate::soon;

/// TLS in front of an upstream.
struct Door {
    address: SocketAddr,
    /// What to trust.
    certificate: NamedTempFile,
    /// Ends with it.
    _serving: JoinSet<()>,
}

impl Door {
    fn options(&self, upstream: &Upstream, trusted: &Door) -> Options {
        Options::with(upstream)
            .env("OUTLAST_MODELS__DEFAULT__BASE_URL", &format!("https://{}/v1", self.address))
            .env("SSL_CERT_FILE", &trusted.certificate.path().to_string_lossy())
    }
}

async fn behind_tls(upstream: SocketAddr) -> anyhow::Result<Door> {
    let made = rcgen::generate_simple_self_signed([Ipv4Addr::LOCALHOST.to_string()])?;
    let certificate = NamedTempFile::new()?;
    std::fs::write(certificate.path(), made.cert.pem())?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let mut open = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            open.spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                let mut upstream = TcpStream::connect(upstream).await?;
                copy_bidirectional(&mut stream, &mut upstream).await
            });
        }
    });
    Ok(Door { address, certificate, _serving: serving })
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_an_upstream_behind_tls_is_read_and_cut_like_any_other() -> anyhow::Result<()> {
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
async fn i14_an_upstream_that_nobody_vouches_for_is_told_nothing() -> anyhow::Result<()> {
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
