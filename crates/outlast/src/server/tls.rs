//! TLS with certificate files, which are read again when they change. Open connections keep the certificate they
//! began with.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;

/// How often the files are looked at. A certificate is replaced days before it expires.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The files of `[tls]`.
#[derive(Clone, Debug)]
pub(crate) struct TlsFiles {
    /// The certificate and those that lead to its issuer, in PEM.
    pub(crate) certificate: PathBuf,
    /// Its private key, in PEM.
    pub(crate) key: PathBuf,
}

/// What the files hold, to notice a change.
#[derive(PartialEq)]
struct Read {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl TlsFiles {
    fn read(&self) -> anyhow::Result<Read> {
        let read = |name: &str, path: &PathBuf| {
            std::fs::read(path)
                .with_context(|| format!("the setting tls.{name}: cannot read {}", path.display()))
        };
        Ok(Read { certificate: read("certificate", &self.certificate)?, key: read("key", &self.key)? })
    }
}

impl Read {
    fn parse(&self) -> anyhow::Result<CertifiedKey> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.certificate).collect();
        let chain = chain.context("the setting tls.certificate: not a certificate in PEM")?;
        if chain.is_empty() {
            bail!("the setting tls.certificate: the file has no certificate in PEM");
        }
        // Without the error, which might repeat what is in the file.
        let Ok(key) = PrivateKeyDer::from_pem_slice(&self.key) else {
            bail!("the setting tls.key: not a private key in PEM");
        };
        CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .context("the settings tls.certificate and tls.key do not belong together")
    }
}

pub(super) struct Tls {
    pub(super) acceptor: TlsAcceptor,
    files: TlsFiles,
    current: Arc<Current>,
}

/// The certificate for new connections.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Tls {
    pub(super) fn open(files: &TlsFiles) -> anyhow::Result<Tls> {
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read()?.parse()?))));
        let builder = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().context("TLS is not available")?;
        let mut config = builder.with_no_client_auth().with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), files: files.clone(), current })
    }

    /// Replaces the certificate when its files change. Runs until it is dropped.
    pub(super) async fn watch(&self) {
        let mut known = self.files.read().ok();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let files = self.files.clone();
            let Ok(Ok(read)) = tokio::task::spawn_blocking(move || files.read()).await else {
                continue; // the files are being replaced; the old certificate still works
            };
            if known.as_ref() == Some(&read) {
                continue;
            }
            match read.parse() {
                Ok(certified) => {
                    *self.current.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(certified);
                    tracing::info!("the certificate has changed; new connections use the new one");
                }
                Err(error) => {
                    tracing::warn!("keeping the old certificate: {error:#}");
                }
            }
            known = Some(read);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};

    use super::*;

    fn write(files: &TlsFiles) -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(&files.certificate, made.cert.pem()).unwrap();
        std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
        made.cert.der().clone()
    }

    /// Whether a client that trusts only this certificate can connect.
    async fn connects(tls: &Tls, trusted: &CertificateDer<'static>) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(aws_lc_rs::default_provider().into());
        let config = builder.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let (ours, theirs) = duplex(64 * 1024);
        let connector = TlsConnector::from(Arc::new(config));
        let name = "localhost".try_into().unwrap();
        let (served, connected) = tokio::join!(tls.acceptor.accept(ours), connector.connect(name, theirs));
        served.is_ok() && connected.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_certificate_that_changes_is_used_for_new_connections() {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles { certificate: folder.path().join("cert"), key: folder.path().join("key") };
        let first = write(&files);
        let tls = Tls::open(&files).unwrap();
        assert!(connects(&tls, &first).await);
        let watching = async {
            tokio::time::sleep(LOOK_EVERY / 2).await;
            let second = write(&files);
            while !connects(&tls, &second).await {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            assert!(!connects(&tls, &first).await);
            std::fs::write(&files.key, "broken").unwrap();
            tokio::time::sleep(LOOK_EVERY * 3).await;
            assert!(connects(&tls, &second).await, "files that cannot be used change nothing");
        };
        tokio::select! {
            () = tls.watch() => unreachable!(),
            () = watching => {}
        }
    }

    #[tokio::test]
    async fn b7_files_that_are_missing_wrong_or_do_not_fit_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let files = |name: &str| TlsFiles {
            certificate: folder.path().join(format!("{name}.cert")),
            key: folder.path().join(format!("{name}.key")),
        };
        let (a, b) = (files("a"), files("b"));
        write(&a);
        write(&b);
        let empty = folder.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        for (certificate, key, named) in [
            (&files("none").certificate, &a.key, "tls.certificate"),
            (&a.certificate, &files("none").key, "tls.key"),
            (&empty, &a.key, "tls.certificate"),
            (&a.certificate, &empty, "tls.key"),
            (&a.certificate, &b.key, "do not belong together"),
        ] {
            let files = TlsFiles { certificate: certificate.clone(), key: key.clone() };
            let error = format!("{:#}", Tls::open(&files).err().unwrap());
            assert!(error.contains(named), "{error}");
        }
    }
}
