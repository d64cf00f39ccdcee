use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Mutex;

use async_trait::async_trait;
use outlast_core::{NotificationKind, Part, UserId};
use outlast_store::{Items as _, MemoryStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::*;
use crate::outside::{Names, Walls};
use crate::{Clock, DemoModel, Ids, Models, Paging, Parts, Settings, StartRequest};

const TEN: Paging = Paging { cursor: None, limit: 10 };

#[test]
fn b6_delays_grow_up_to_a_limit_and_are_spread() {
    let first = Duration::from_secs(5);
    let delay = |attempts, jitter| backoff(first, attempts, jitter).as_secs();
    assert_eq!((delay(1, 0), delay(2, 0), delay(3, 0)), (5, 20, 80));
    assert_eq!((delay(1, 255), delay(2, 255)), (7, 29));
    assert_eq!(delay(u32::MAX, 0), BACKOFF_MAX.as_secs());
}

/// Answers with these statuses, then with 204. A status of zero is no answer at all.
struct Receiver {
    port: u16,
    got: watch::Receiver<Vec<String>>,
}

impl Receiver {
    async fn new(statuses: &[u16]) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (told, got) = watch::channel(Vec::new());
        let mut statuses: VecDeque<u16> = statuses.iter().copied().collect();
        #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
        tokio::spawn(async move {
            let mut unanswered = Vec::new();
            while let Ok((mut connection, _)) = listener.accept().await {
                let Some(request) = whole(&mut connection).await else { continue };
                told.send_modify(|got: &mut Vec<String>| got.push(request));
                match statuses.pop_front().unwrap_or(204) {
                    0 => unanswered.push(connection),
                    status => {
                        let answer =
                            format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                        connection.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            }
        });
        Receiver { port, got }
    }

    async fn until(&mut self, count: usize) -> Vec<String> {
        self.got.wait_for(|got| got.len() >= count).await.unwrap().clone()
    }
}

/// `None` if the sender was stopped in the middle.
async fn whole(connection: &mut tokio::net::TcpStream) -> Option<String> {
    let mut request = String::new();
    let mut piece = [0; 4096];
    loop {
        let length = connection.read(&mut piece).await.ok().filter(|length| *length > 0)?;
        request.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let wanted = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= wanted.unwrap().parse().unwrap() {
            return Some(request);
        }
    }
}

fn header<'a>(request: &'a str, name: &str) -> &'a str {
    request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap()
}

/// The first answer when a webhook is added, the second when it is called.
struct Turncoat(Mutex<VecDeque<IpAddr>>);

#[async_trait]
impl Names for Turncoat {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let mut answers = self.0.lock().unwrap();
        Ok(vec![if answers.len() > 1 { answers.pop_front().unwrap() } else { answers[0] }])
    }
}

fn private() -> Outside {
    Outside::new(Walls { allow_private: true, own_ports: Vec::new() }).unwrap()
}

async fn engine(store: &Arc<MemoryStore>, attempts: u32, outside: Outside) -> Engine {
    let model: Arc<dyn crate::Model> = Arc::new(DemoModel::with_pace(Duration::ZERO));
    let backoff = Duration::from_millis(1);
    let notifications = NotificationSettings { attempts, backoff, ..NotificationSettings::default() };
    let engine = Engine::new(Parts {
        store: store.clone(),
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        workshop: Err("no tools here".to_owned()),
        settings: Settings { notifications, ..Settings::default() },
        clock: Clock::System,
        ids: Ids::Random,
    });
    engine.deliver(outside).await.unwrap();
    engine
}

async fn add(engine: &Engine, user: &UserId, url: String) -> String {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
    engine.add_webhook(user, url, NotificationKind::ALL.to_vec(), secret).await.unwrap().id
}

async fn say(engine: &Engine, user: &UserId) {
    let said = vec![Part::Text { text: "Hello".to_owned() }];
    engine.start(user, StartRequest::new(said)).await.unwrap();
}

/// Waits until the only delivery of a webhook is in this state.
async fn settled(engine: &Engine, user: &UserId, webhook: &str, state: DeliveryState) -> Delivery {
    loop {
        let deliveries = engine.deliveries(user, webhook, None, TEN).await.unwrap().data;
        if let Some(one) = deliveries.into_iter().find(|one| one.state == state) {
            return one;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn b6_a_receiver_that_fails_three_times_gets_the_event_once() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, 8, private()).await;
    let ada = UserId::from("ada");
    let mut receiver = Receiver::new(&[500, 503, 302]).await;
    let webhook = add(&engine, &ada, format!("http://127.0.0.1:{}/hook", receiver.port)).await;
    say(&engine, &ada).await;
    let one = settled(&engine, &ada, &webhook, DeliveryState::Delivered).await;
    let got = receiver.until(4).await;
    assert_eq!((one.attempts, got.len()), (4, 4));
    assert!(got.iter().all(|request| header(request, "webhook-id") == one.id));
    assert!(got[3].contains("\"type\":\"generation.completed\""), "{}", got[3]);
    engine.stop().await;
}

#[tokio::test]
async fn b6_what_is_never_accepted_is_given_up_and_listed() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, 2, private()).await;
    let ada = UserId::from("ada");
    let receiver = Receiver::new(&[500, 500, 500]).await;
    let webhook = add(&engine, &ada, format!("http://127.0.0.1:{}/", receiver.port)).await;
    say(&engine, &ada).await;
    let dead = settled(&engine, &ada, &webhook, DeliveryState::Dead).await;
    assert_eq!((dead.attempts, dead.error.as_deref()), (2, Some("the receiver answered 500")));
    assert_eq!(receiver.got.borrow().len(), 2);
    // However many were delivered since.
    let newer = Delivery { state: DeliveryState::Delivered, ..dead.clone() };
    for n in 1..=2_500 {
        let created_at = dead.created_at.after(Duration::from_secs(n));
        enqueue(&store, &webhook, Delivery { id: n.to_string(), created_at, ..newer.clone() }).await;
    }
    let (mut found, mut pages, mut cursor) = (Vec::new(), 0, None);
    loop {
        let paging = Paging { cursor, limit: 10 };
        let page = engine.deliveries(&ada, &webhook, Some(DeliveryState::Dead), paging).await.unwrap();
        (pages, cursor) = (pages + 1, page.next_cursor);
        found.extend(page.data.into_iter().map(|one| one.id));
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!((found, pages), (vec![dead.id], 3));
    let (mut all, mut cursor) = (0, None);
    loop {
        let page = engine.deliveries(&ada, &webhook, None, Paging { cursor, limit: 500 }).await.unwrap();
        (all, cursor) = (all + page.data.len(), page.next_cursor);
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(all, 2_501);
    engine.stop().await;
}

async fn enqueue(store: &MemoryStore, webhook: &str, delivery: Delivery) {
    let due = (delivery.state == DeliveryState::Pending).then_some(0);
    let (order, id) = (delivery.created_at.0, delivery.id.clone());
    let (kind, user, body) = (queue(webhook), UserId::from("ada"), body(&delivery));
    store.put_item(Item { kind, id, user, order, due, version: 0, body }).await.unwrap();
}

#[tokio::test]
async fn i18_what_waits_too_long_behind_others_is_given_up_without_a_call() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, 8, private()).await;
    let ada = UserId::from("ada");
    let receiver = Receiver::new(&[]).await;
    let webhook = add(&engine, &ada, format!("http://127.0.0.1:{}/", receiver.port)).await;
    let now = Clock::System.now();
    let old = Delivery {
        id: "old".to_owned(),
        kind: NotificationKind::Completed,
        state: DeliveryState::Pending,
        attempts: 0,
        created_at: Timestamp(now.0 - 2 * 24 * 60 * 60 * 1000),
        error: None,
        next_attempt_at: Some(now),
        payload: "{}".to_owned(),
    };
    enqueue(&store, &webhook, old).await;
    say(&engine, &ada).await; // makes the endpoint due
    settled(&engine, &ada, &webhook, DeliveryState::Delivered).await;
    let dead = settled(&engine, &ada, &webhook, DeliveryState::Dead).await;
    assert_eq!((dead.id.as_str(), dead.attempts), ("old", 0));
    assert_eq!(receiver.got.borrow().len(), 1, "it was not sent");
    engine.stop().await;
}

#[tokio::test]
async fn b6_a_receiver_that_does_not_answer_delays_nobody_else() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, 8, private()).await;
    let ada = UserId::from("ada");
    let (mut slow, mut fast) = (Receiver::new(&[0, 0, 0]).await, Receiver::new(&[]).await);
    add(&engine, &ada, format!("http://127.0.0.1:{}/", slow.port)).await;
    add(&engine, &ada, format!("http://127.0.0.1:{}/", fast.port)).await;
    say(&engine, &ada).await;
    slow.until(1).await;
    say(&engine, &ada).await;
    fast.until(2).await;
    assert_eq!(slow.got.borrow().len(), 1, "one attempt at a time");
    engine.stop().await;
}

#[tokio::test]
async fn b6_another_server_delivers_what_the_first_could_not() {
    let store = Arc::new(MemoryStore::new());
    let walled = Outside::new(Walls::default()).unwrap();
    let first = engine(&store, 8, walled).await;
    let ada = UserId::from("ada");
    let mut receiver = Receiver::new(&[]).await;
    let webhook = add(&first, &ada, format!("http://127.0.0.1:{}/", receiver.port)).await;
    say(&first, &ada).await;
    let refused = settled(&first, &ada, &webhook, DeliveryState::Pending).await;
    first.stop().await;
    let second = engine(&store, 8, private()).await;
    let one = settled(&second, &ada, &webhook, DeliveryState::Delivered).await;
    assert_eq!(one.id, refused.id);
    let got = receiver.until(1).await;
    assert!(got.iter().all(|request| header(request, "webhook-id") == one.id));
    second.stop().await;
}

#[tokio::test]
async fn b6_a_name_that_turned_private_is_refused_at_every_attempt() {
    let store = Arc::new(MemoryStore::new());
    let names = Turncoat(Mutex::new(["93.184.216.34", "127.0.0.1"].map(|ip| ip.parse().unwrap()).into()));
    let outside = Outside::with_names(Walls::default(), Arc::new(names)).unwrap();
    let engine = engine(&store, 3, outside.clone()).await;
    let ada = UserId::from("ada");
    let receiver = Receiver::new(&[]).await;
    let url = outside.check(&format!("https://hook.example:{}/", receiver.port)).await.unwrap();
    let webhook = add(&engine, &ada, url.into()).await;
    say(&engine, &ada).await;
    let dead = settled(&engine, &ada, &webhook, DeliveryState::Dead).await;
    assert_eq!(dead.error.as_deref(), Some("the URL leads to an address that is not allowed"));
    assert!(receiver.got.borrow().is_empty(), "no connection was made");
    engine.stop().await;
}

#[tokio::test]
async fn b6_a_removed_webhook_leaves_nothing_behind() {
    use outlast_store::Items;
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, 8, private()).await;
    let ada = UserId::from("ada");
    let mut receiver = Receiver::new(&[]).await;
    let webhook = add(&engine, &ada, format!("http://127.0.0.1:{}/", receiver.port)).await;
    say(&engine, &ada).await;
    receiver.until(1).await;
    settled(&engine, &ada, &webhook, DeliveryState::Delivered).await;
    engine.remove_webhook(&ada, &webhook).await.unwrap();
    let bob = UserId::from("bob");
    assert!(engine.remove_webhook(&bob, &webhook).await.is_err());
    for kind in [queue(&webhook), WEBHOOK.to_owned()] {
        while !store.list_items(ItemQuery::newest(kind.clone(), 1)).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    engine.stop().await;
}
