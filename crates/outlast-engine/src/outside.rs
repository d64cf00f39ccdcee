//! HTTP to places that users name: webhooks, push services, HTTP tools, MCP servers. Such a URL must not lead into the
//! network of the server, so every call goes through here.
//!
//! A host name is looked up once for each call, all its addresses are checked, and the connection goes to one of these
//! addresses. So a name that changes its address between the check and the call gains nothing. Connections are not
//! kept, redirects are not followed, and proxies are not used, because a proxy would look up the name again.

mod addresses;

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Request, RequestBuilder, Response, StatusCode, Url, redirect, retry};

use addresses::{Reach, reach};

/// How long a connection may take to open, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of addresses of one name: nobody needs more, and each is checked.
const ADDRESSES_MAX: usize = 64;
/// The maximum length of a URL.
const URL_BYTES_MAX: usize = 2048;

/// What may be called.
#[derive(Clone, Debug, Default)]
pub struct Walls {
    /// Also private and loopback addresses, and plain http. Link-local addresses, which have the credentials of
    /// cloud machines, stay out of reach.
    pub allow_private: bool,
    /// The ports of this server, out of reach at every address of this machine.
    pub own_ports: Vec<u16>,
}

/// Looks up host names. The system's resolver, unless a test brings another one.
#[async_trait]
pub trait Names: Send + Sync + 'static {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Calls URLs that users name. Cheap to clone.
#[derive(Clone)]
pub struct Outside {
    walls: Arc<Walls>,
    names: Arc<dyn Names>,
    /// For every port but ours.
    client: Client,
    /// For our own ports: refuses this machine even where private addresses are allowed.
    client_for_own_ports: Client,
}

/// A response, as much of it as the caller wanted.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body was longer than the caller wanted.
    pub is_cut: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum OutsideError {
    /// The URL leads where it must not. Calling it again may be refused or not: names change.
    #[error("{0}")]
    Refused(String),
    /// It could not be reached, so it got nothing.
    #[error("{0}")]
    Unreachable(String),
    /// The connection broke, and it may have got the request. Without the URL, which may contain a secret.
    #[error("{0}")]
    Failed(String),
    #[error("timed out")]
    TimedOut,
}

impl Outside {
    pub fn new(walls: Walls) -> Result<Outside, String> {
        Outside::with_names(walls, Arc::new(SystemNames))
    }

    pub fn with_names(walls: Walls, names: Arc<dyn Names>) -> Result<Outside, String> {
        let client = |own_port| {
            let guard = Guard { allow_private: walls.allow_private, own_port, names: names.clone() };
            client(guard).map_err(|_| "cannot set up TLS; are CA certificates installed?".to_owned())
        };
        let (client, client_for_own_ports) = (client(false)?, client(true)?);
        Ok(Outside { walls: Arc::new(walls), names, client, client_for_own_ports })
    }

    /// Reads a URL and checks where it leads now, to tell a person early. It is checked again in every call.
    pub async fn check(&self, url: &str) -> Result<Url, OutsideError> {
        let url = self.read(url)?;
        if let Some(host) = url.host_str().filter(|_| literal(&url).is_none()) {
            let guard = self.guard(&url);
            guard.addresses(host).await.map_err(|error| OutsideError::Refused(error.to_string()))?;
        }
        Ok(url)
    }

    /// Begins a request. Send it with [`Outside::send`], or by itself to stream the response.
    pub fn request(&self, method: Method, url: &str) -> Result<RequestBuilder, OutsideError> {
        let url = self.read(url)?;
        let client = if self.is_own_port(&url) { &self.client_for_own_ports } else { &self.client };
        Ok(client.request(method, url))
    }

    /// Sends a request and reads at most `body_bytes` of the response, all within `time`.
    pub async fn send(
        &self,
        request: RequestBuilder,
        time: Duration,
        body_bytes: usize,
    ) -> Result<Reply, OutsideError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| failed(&error))?;
        let sent = tokio::time::timeout(time, receive(client, request, body_bytes)).await;
        sent.map_err(|_| OutsideError::TimedOut)?.map_err(|error| failed(&error))
    }

    /// Sends a request, for a caller that reads the response itself and limits its size.
    pub(crate) async fn stream(&self, request: RequestBuilder) -> Result<Response, OutsideError> {
        let (client, request) = request.build_split();
        let request = request.map_err(|error| failed(&error))?;
        client.execute(request).await.map_err(|error| failed(&error))
    }

    fn read(&self, url: &str) -> Result<Url, OutsideError> {
        let refused = |why: &str| Err(OutsideError::Refused(why.to_owned()));
        if url.len() > URL_BYTES_MAX {
            return refused("the URL is too long");
        }
        let Ok(url) = Url::parse(url) else { return refused("this is not a URL") };
        match url.scheme() {
            "https" => {}
            "http" if self.walls.allow_private => {}
            _ => return refused("the URL must begin with https://"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refused("the URL must not contain a user name or password");
        }
        // The client connects to a literal address without looking it up.
        if let Some(address) = literal(&url) {
            let allowed = self.guard(&url).allow(address);
            allowed.map_err(|error| OutsideError::Refused(error.to_string()))?;
        }
        Ok(url)
    }

    fn is_own_port(&self, url: &Url) -> bool {
        url.port_or_known_default().is_some_and(|port| self.walls.own_ports.contains(&port))
    }

    fn guard(&self, url: &Url) -> Guard {
        let (allow_private, own_port) = (self.walls.allow_private, self.is_own_port(url));
        Guard { allow_private, own_port, names: self.names.clone() }
    }
}

fn client(guard: Guard) -> Result<Client, reqwest::Error> {
    Client::builder()
        .dns_resolver(Arc::new(guard))
        .no_proxy()
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .build()
}

async fn receive(client: Client, request: Request, body_bytes: usize) -> Result<Reply, reqwest::Error> {
    let mut response = client.execute(request).await?;
    let (status, headers) = (response.status(), response.headers().clone());
    let mut body = BytesMut::new();
    let mut is_cut = false;
    while let Some(piece) = response.chunk().await? {
        let room = body_bytes - body.len();
        body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() > room {
            is_cut = true;
            break;
        }
    }
    Ok(Reply { status, headers, body: body.freeze(), is_cut })
}

fn failed(error: &reqwest::Error) -> OutsideError {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if let Some(Refusal(why)) = error.downcast_ref() {
            return OutsideError::Refused(why.clone());
        }
        cause = error.source();
    }
    let why = match error {
        error if error.is_connect() => return OutsideError::Unreachable("cannot connect".to_owned()),
        error if error.is_timeout() => return OutsideError::TimedOut,
        error if error.is_builder() => "the request is invalid",
        _ => "the connection broke",
    };
    OutsideError::Failed(why.to_owned())
}

/// The address, if the URL has one instead of a name.
fn literal(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Hands out only addresses that may be called.
struct Guard {
    allow_private: bool,
    /// Whether the URL has one of our ports.
    own_port: bool,
    names: Arc<dyn Names>,
}

/// Why an address is not handed out. It names no address: a person must not learn the server's network from it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

impl Guard {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Refusal> {
        let found = self.names.addresses(host).await;
        let found = found.map_err(|_| Refusal("the host name was not found".to_owned()))?;
        if found.is_empty() || found.len() > ADDRESSES_MAX {
            return Err(Refusal("the host name has no address, or too many".to_owned()));
        }
        found.iter().try_for_each(|address| self.allow(*address))?;
        Ok(found)
    }

    fn allow(&self, address: IpAddr) -> Result<(), Refusal> {
        let allowed = match reach(address) {
            Reach::Public => true,
            Reach::Private => self.allow_private,
            Reach::Never => false,
        };
        // Public addresses of this machine are as good as loopback.
        let is_ours = || UdpSocket::bind((address, 0)).is_ok();
        if !allowed || ((!self.allow_private || self.own_port) && is_ours()) {
            return Err(Refusal("the URL leads to an address that is not allowed".to_owned()));
        }
        Ok(())
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = Guard { names: self.names.clone(), ..*self };
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str()).await?;
            // The port is the URL's.
            let addresses: Addrs = Box::new(addresses.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

struct SystemNames;

#[async_trait]
impl Names for SystemNames {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

#[cfg(test)]
mod tests;
