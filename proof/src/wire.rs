//! A connection between a server and its database that can be cut.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Passes everything on until it is cut. Ends when dropped.
pub(crate) struct Wire {
    address: SocketAddr,
    whole: watch::Sender<bool>,
    _passing: JoinSet<()>,
}

impl Wire {
    pub(crate) async fn to(target: SocketAddr) -> anyhow::Result<Wire> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let whole = watch::Sender::new(true);
        let mut passing = JoinSet::new();
        passing.spawn(pass_all(listener, target, whole.subscribe()));
        Ok(Wire { address, whole, _passing: passing })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Breaks every connection. New ones break at once until it is mended.
    pub(crate) fn cut(&self) {
        self.whole.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.whole.send_replace(true);
    }
}

async fn pass_all(listener: TcpListener, target: SocketAddr, whole: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((server, _)) = accepted {
                    connections.spawn(pass(server, target, whole.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn pass(mut server: TcpStream, target: SocketAddr, mut whole: watch::Receiver<bool>) {
    let passing = async {
        let mut database = TcpStream::connect(target).await?;
        copy_bidirectional(&mut server, &mut database).await
    };
    tokio::select! {
        biased;
        // An error means that the wire is gone.
        _ = whole.wait_for(|whole| !whole) => {}
        // Whoever hung up knows why.
        _ = passing => {}
    }
}
