use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// Answers with the next list of addresses each time it is asked, and then with the last one.
struct Changing(Mutex<VecDeque<Vec<IpAddr>>>);

impl Changing {
    fn to(answers: &[&str]) -> Arc<Changing> {
        Arc::new(Changing(Mutex::new(answers.iter().map(|answer| addresses(answer)).collect())))
    }
}

fn addresses(list: &str) -> Vec<IpAddr> {
    list.split(' ').map(|address| address.parse().unwrap()).collect()
}

#[async_trait]
impl Names for Changing {
    async fn addresses(&self, _host: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().unwrap();
        Ok(if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }.unwrap_or_default())
    }
}

fn outside(allow_private: bool, names: Arc<dyn Names>) -> Outside {
    Outside::with_names(Walls { allow_private, own_ports: vec![8787] }, names).unwrap()
}

/// A server that answers every request like this, and counts connections.
async fn server(answer: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let heard = connection.read(&mut [0; 4096]).await.unwrap_or(0);
            assert!(heard > 0, "a request came");
            connection.write_all(answer.as_bytes()).await.ok();
        }
    });
    (port, count)
}

async fn get(outside: &Outside, url: &str) -> Result<Reply, OutsideError> {
    outside.send(outside.request(Method::GET, url)?, Duration::from_secs(10), 16).await
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

#[tokio::test]
async fn b6_urls_of_users_are_https_without_passwords() {
    let outside = outside(false, Changing::to(&["93.184.216.34"]));
    for url in
        ["http://example.com/", "ftp://example.com/", "file:///etc/passwd", "https://a:b@example.com/", "x"]
    {
        assert!(matches!(outside.check(url).await, Err(OutsideError::Refused(_))), "{url}");
    }
    assert!(outside.check(&format!("https://example.com/{}", "a".repeat(URL_BYTES_MAX))).await.is_err());
    assert!(outside.check("https://example.com/hook").await.is_ok());
}

#[tokio::test]
async fn b6_every_address_of_a_name_is_checked() {
    for answer in
        ["10.0.0.1", "93.184.216.34 127.0.0.1", "169.254.169.254", "64:ff9b::a00:1", "::ffff:127.0.0.1"]
    {
        let outside = outside(false, Changing::to(&[answer]));
        assert!(
            matches!(outside.check("https://example.com/").await, Err(OutsideError::Refused(_))),
            "{answer}"
        );
    }
}

#[tokio::test]
async fn b6_a_literal_address_is_checked_however_it_is_written() {
    let outside = outside(false, Changing::to(&["93.184.216.34"]));
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:10.0.0.1]", "169.254.169.254"] {
        let url = format!("https://{host}/");
        assert!(matches!(outside.request(Method::GET, &url), Err(OutsideError::Refused(_))), "{host}");
    }
}

#[tokio::test]
async fn b6_a_name_that_changes_its_address_after_the_check_is_refused() {
    let (port, count) = server(OK).await;
    let outside = outside(false, Changing::to(&["93.184.216.34", "127.0.0.1"]));
    let url = format!("https://example.com:{port}/");
    assert!(outside.check(&url).await.is_ok());
    assert!(matches!(get(&outside, &url).await, Err(OutsideError::Refused(_))));
    assert_eq!(count.load(Ordering::SeqCst), 0, "no connection was made");
}

#[tokio::test]
async fn b6_every_call_looks_up_the_name_again() {
    let (port, count) = server(OK).await;
    let outside = outside(true, Changing::to(&["127.0.0.1", "169.254.169.254"]));
    let url = format!("http://hook.test:{port}/");
    assert_eq!(get(&outside, &url).await.unwrap().body, "ok");
    assert!(matches!(get(&outside, &url).await, Err(OutsideError::Refused(_))));
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn b6_metadata_and_our_own_port_stay_out_of_reach_where_private_addresses_are_allowed() {
    let outside = outside(true, Changing::to(&["127.0.0.1"]));
    for url in ["http://169.254.169.254/latest", "http://127.0.0.1:8787/", "http://localhost:8787/v1"] {
        assert!(matches!(get(&outside, url).await, Err(OutsideError::Refused(_))), "{url}");
    }
}

#[tokio::test]
async fn b6_redirects_are_not_followed_and_long_responses_are_cut() {
    let moved = "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let long = "HTTP/1.1 200 OK\r\ncontent-length: 26\r\nconnection: close\r\n\r\nabcdefghijklmnopqrstuvwxyz";
    let outside = outside(true, Changing::to(&["127.0.0.1"]));
    let reply = get(&outside, &format!("http://a.test:{}/", server(moved).await.0)).await.unwrap();
    assert_eq!(reply.status, StatusCode::FOUND);
    let reply = get(&outside, &format!("http://a.test:{}/", server(long).await.0)).await.unwrap();
    assert_eq!((&*reply.body, reply.is_cut), (&b"abcdefghijklmnop"[..], true));
}

#[tokio::test(start_paused = true)]
async fn b6_a_receiver_that_never_answers_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let outside = outside(true, Changing::to(&["127.0.0.1"]));
    assert!(matches!(get(&outside, &format!("http://a.test:{port}/")).await, Err(OutsideError::TimedOut)));
}
