//! Connections to one upstream, kept between calls. An agent calls the same upstream many times, and each new
//! connection would cost a TCP and a TLS handshake.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, redirect, retry};

/// How long a connection may take to open, TLS and proxies included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// One client puts all its HTTP/2 calls on one connection, and calls beyond the server's limit on streams would
/// wait silently until another one ends. Servers should allow at least 100 (RFC 9113, 6.5.2).
const CALLS_PER_CLIENT: usize = 100;
/// How much unread data one HTTP/2 stream may have.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// All streams of a connection fit into its window, so one that is not read cannot block the others.
const CONNECTION_WINDOW_BYTES: u32 = STREAM_WINDOW_BYTES * CALLS_PER_CLIENT as u32;
/// The maximum number of idle connections that a client keeps, for 90 seconds each.
const IDLE_CONNECTIONS_MAX: usize = 16;

/// Clients for one upstream. A new one is added when all others are full.
pub(super) struct Pool {
    proxies: Proxies,
    clients: Mutex<Vec<Slots>>,
}

/// Whether to use the proxies in `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, as set when the server
/// starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxies {
    Environment,
    None,
}

struct Slots {
    client: Client,
    /// One clone for each running call.
    taken: Arc<()>,
}

/// A slot for one call, freed when it is dropped.
pub(super) struct Slot {
    pub(super) client: Client,
    _taken: Arc<()>,
}

impl Pool {
    /// Builds the first client, so that invalid TLS or proxy settings stop the start of the server.
    pub(super) fn new(proxies: Proxies) -> Result<Pool, String> {
        let client = client(proxies).map_err(|_| "cannot set up TLS; are CA certificates installed?")?;
        Ok(Pool { proxies, clients: Mutex::new(vec![Slots { client, taken: Arc::default() }]) })
    }

    pub(super) fn slot(&self) -> Result<Slot, reqwest::Error> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Use the first one with room, so that calls share few connections and the others become idle and close.
        let free = clients.iter().find(|slots| Arc::strong_count(&slots.taken) <= CALLS_PER_CLIENT);
        let slots = match free {
            Some(slots) => slots,
            None => {
                clients.push(Slots { client: client(self.proxies)?, taken: Arc::default() });
                clients.last().expect("one was just added")
            }
        };
        Ok(Slot { client: slots.client.clone(), _taken: slots.taken.clone() })
    }
}

fn client(proxies: Proxies) -> Result<Client, reqwest::Error> {
    let builder = match proxies {
        Proxies::Environment => Client::builder(), // reads the variables by itself
        Proxies::None => Client::builder().no_proxy(),
    };
    builder
        // The engine counts and records attempts. A retry here would be an invisible call.
        .retry(retry::never())
        // A redirect would take the key to another host.
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
        .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .tcp_nodelay(true)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_client_is_added_when_the_first_is_full_and_the_first_is_reused_when_it_has_room() {
        let pool = Pool::new(Proxies::None).unwrap();
        let clients = || pool.clients.lock().unwrap().len();
        let mut slots: Vec<Slot> = (0..CALLS_PER_CLIENT).map(|_| pool.slot().unwrap()).collect();
        assert_eq!(clients(), 1);
        slots.push(pool.slot().unwrap());
        assert_eq!(clients(), 2);
        slots.remove(0);
        slots.push(pool.slot().unwrap());
        assert_eq!(Arc::strong_count(&pool.clients.lock().unwrap()[0].taken), CALLS_PER_CLIENT + 1);
        assert_eq!(clients(), 2);
    }
}
