//! Keys as tests use them, and what becomes of streams whose key is revoked.

pub(crate) mod tokens;

use outlast_store::{Item, ListedItems, MemoryStore, PutError};

use super::keys::{self, KeySpec};
use super::*;

/// A key of this user with these scopes.
pub(crate) async fn key_of(items: &dyn Items, user: &str, scopes: &str) -> String {
    let spec = KeySpec { user: user.to_owned(), scopes: Scopes::parse(scopes).unwrap(), expires_at: None };
    keys::create(items, spec, Clock::System.now()).await.unwrap()
}

/// A key with any set of scopes, even one that the command refuses to make.
pub(crate) async fn key_with(
    items: &dyn Items,
    user: &str,
    scopes: &[&str],
    expires_at: Option<i64>,
) -> String {
    let scopes: Vec<String> = scopes.iter().map(|name| (*name).to_owned()).collect();
    let scopes = Scopes::try_from(scopes).unwrap();
    let spec = KeySpec { user: user.to_owned(), scopes, expires_at: expires_at.map(Timestamp) };
    keys::create(items, spec, Clock::System.now()).await.unwrap()
}

pub(crate) async fn revoke(items: &dyn Items, key: &str) {
    let id = PresentedKey::parse(key).unwrap().id();
    keys::revoke(items, id, Clock::System.now()).await.unwrap();
}

async fn auth() -> (Arc<MemoryStore>, Auth) {
    let items = Arc::new(MemoryStore::new());
    let clock = Clock::simulated(Clock::System.now());
    (items.clone(), Auth::open(items, clock, None).await.unwrap())
}

fn is_invalid(result: &Result<Principal, AuthError>) -> bool {
    matches!(result, Err(AuthError::Invalid))
}

#[tokio::test]
async fn b5_a_key_names_its_user_and_what_it_allows() {
    let (items, auth) = auth().await;
    let key = key_of(&*items, "ada", "read,write").await;
    let ada = auth.by_key(&key).await.unwrap();
    assert_eq!(ada.user().as_str(), "ada");
    assert!(ada.may(Scope::Read) && ada.may(Scope::Write) && !ada.may(Scope::Approve));
}

#[tokio::test]
async fn i14_the_store_has_no_secret_of_a_key() {
    let (items, _) = auth().await;
    let key = key_of(&*items, "ada", "read").await;
    let (_, secret) = key.strip_prefix("ol_").unwrap().split_once('_').unwrap();
    assert_eq!(secret.len(), 64, "256 bits");
    let stored = items.list_items(ItemQuery::newest(KEY, 10)).await.unwrap();
    assert!(!format!("{stored:?}").contains(secret));
    assert!(!format!("{:?}", PresentedKey::parse(&key).unwrap()).contains(secret));
}

#[tokio::test]
async fn b5_what_is_not_exactly_a_valid_key_is_refused() {
    let (items, auth) = auth().await;
    let key = key_of(&*items, "ada", "read").await;
    let other = key_of(&*items, "bob", "read").await;
    let (id, secret) = key.strip_prefix("ol_").unwrap().split_once('_').unwrap();
    let (_, foreign) = other.strip_prefix("ol_").unwrap().split_once('_').unwrap();
    for wrong in [
        String::new(),
        "ol_".to_owned(),
        format!("ol_{id}"),
        format!("ol_{id}_"),
        format!("ol_{id}_{foreign}"),
        format!("ol_{id}_{}", &secret[..63]),
        format!("ol_{id}_{secret}0"),
        format!("OL_{id}_{secret}"),
        format!("ol_{}_{secret}", "0".repeat(16)),
        format!("ol_{id}_{}", "g".repeat(64)),
        secret.to_owned(),
    ] {
        assert!(is_invalid(&auth.by_key(&wrong).await), "{wrong}");
    }
    assert!(auth.by_key(&key).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn b5_an_expired_key_is_refused_and_its_streams_end() {
    let (items, auth) = auth().await;
    let expires = auth.clock.now().after(Duration::from_secs(60));
    let spec = KeySpec { user: "ada".to_owned(), scopes: Scopes::ALL, expires_at: Some(expires) };
    let key = keys::create(&*items, spec, auth.clock.now()).await.unwrap();
    let held = auth.by_key(&key).await.unwrap();
    tokio::select! {
        () = auth.watch() => {}
        () = held.ended() => {}
    }
    assert!(auth.clock.now() >= expires);
    assert!(is_invalid(&auth.by_key(&key).await));
}

#[tokio::test(start_paused = true)]
async fn b5_revoking_a_key_ends_what_it_holds_within_5_seconds_and_nothing_else() {
    let (items, auth) = auth().await;
    let (key, other) = (key_of(&*items, "ada", "read").await, key_of(&*items, "ada", "read").await);
    let (held, kept) = (auth.by_key(&key).await.unwrap(), auth.by_key(&other).await.unwrap());
    // Another instance, with a stream that a session of the key opened.
    let beside = Auth::open(items.clone(), auth.clock, None).await.unwrap();
    let session = auth.log_in(&held).await.unwrap();
    let held_beside = beside.by_session(&session.secret).await.unwrap();
    let began = tokio::time::Instant::now();
    revoke(&*items, &key).await;
    tokio::select! {
        () = auth.watch() => {}
        () = beside.watch() => {}
        () = async { tokio::join!(held.ended(), held_beside.ended()); } => {}
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(!kept.has_ended());
    assert!(is_invalid(&auth.by_key(&key).await) && auth.by_key(&other).await.is_ok());
    revoke(&*items, &key).await;
}

#[tokio::test(start_paused = true)]
async fn b5_the_first_key_ends_the_time_without_keys_for_good() {
    let (items, auth) = auth().await;
    let local = auth.local().await.unwrap().unwrap();
    assert_eq!(local.user().as_str(), "local");
    let key = key_of(&*items, "ada", "read").await;
    tokio::select! {
        () = auth.watch() => {}
        () = local.ended() => {}
    }
    assert!(auth.is_required().await.unwrap());
    revoke(&*items, &key).await;
    assert!(auth.is_required().await.unwrap(), "a revoked key still counts");
    let again = Auth::open(items, Clock::System, None).await.unwrap();
    assert!(again.is_required().await.unwrap(), "after a restart too");
}

#[tokio::test]
async fn b4_a_lease_fits_one_generation_and_one_epoch_at_every_instance_of_a_store() {
    let (items, auth) = auth().await;
    let beside = Auth::open(items, Clock::System, None).await.unwrap();
    let lease = auth.leases().of(&"gen_1".into(), 2);
    assert_eq!(lease.len(), 64, "256 bits");
    assert!(beside.leases().fits(&lease, &"gen_1".into(), 2));
    for (generation, epoch) in [("gen_1", 1), ("gen_2", 2), ("gen_1", 22)] {
        assert!(!auth.leases().fits(&lease, &generation.into(), epoch), "{generation} {epoch}");
    }
    let elsewhere = Auth::open(Arc::new(MemoryStore::new()), Clock::System, None).await.unwrap();
    assert!(!elsewhere.leases().fits(&lease, &"gen_1".into(), 2));
}

#[tokio::test(start_paused = true)]
async fn b4_a_user_who_logs_in_again_and_again_has_a_limited_number_of_sessions() {
    let (items, auth) = auth().await;
    let ada = auth.by_key(&key_of(&*items, "ada", "read").await).await.unwrap();
    let bob = auth.by_key(&key_of(&*items, "bob", "read").await).await.unwrap();
    let of_bob = auth.log_in(&bob).await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..150 {
        sessions.push(auth.log_in(&ada).await.unwrap());
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let stored = items.list_items(ItemQuery::newest("session", 1_000)).await.unwrap().items;
    assert_eq!(stored.len(), 101);
    assert!(is_invalid(&auth.by_session(&sessions[49].secret).await));
    for kept in [&sessions[50], &sessions[149], &of_bob] {
        assert!(auth.by_session(&kept.secret).await.is_ok());
    }
}

/// A store with a limited speed, like a database elsewhere.
struct Slow(MemoryStore);

impl Slow {
    async fn wait() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[async_trait::async_trait]
impl Items for Slow {
    async fn put_item(&self, item: Item) -> Result<u64, PutError> {
        self.0.put_item(item).await
    }

    async fn get_item(&self, kind: &str, id: &str) -> Result<Option<Item>, StoreError> {
        Slow::wait().await;
        self.0.get_item(kind, id).await
    }

    async fn list_items(&self, query: ItemQuery) -> Result<ListedItems, StoreError> {
        Slow::wait().await;
        self.0.list_items(query).await
    }

    async fn item_kinds(&self) -> Result<Vec<String>, StoreError> {
        self.0.item_kinds().await
    }

    async fn remove_item(&self, kind: &str, id: &str) -> Result<bool, StoreError> {
        Slow::wait().await;
        self.0.remove_item(kind, id).await
    }
}

#[tokio::test(start_paused = true)]
async fn b5_i18_revoking_a_key_ends_its_streams_in_time_beside_3_000_others_and_20_000_expired_tickets() {
    let items = Arc::new(Slow(MemoryStore::new()));
    let clock = Clock::simulated(Clock::System.now());
    let auth = Auth::open(items.clone(), clock, None).await.unwrap();
    let mut streams = Vec::new();
    for n in 0..3_000 {
        let key = key_of(&items.0, &format!("user {n}"), "read").await;
        streams.push((auth.by_key(&key).await.unwrap(), key));
    }
    let (held, key) = streams.pop().unwrap();
    for _ in 0..20_000 {
        auth.ticket(&held, "/v1/x".to_owned()).await.unwrap();
    }
    // The moment at which the tickets are swept.
    let mut revoked_at = None;
    tokio::select! {
        () = auth.watch() => {}
        () = async {
            tokio::time::sleep(SWEEP_EVERY + Duration::from_secs(1)).await;
            revoked_at = Some(tokio::time::Instant::now());
            revoke(&items.0, &key).await;
            held.ended().await;
        } => {}
    }
    let took = revoked_at.unwrap().elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(streams.iter().all(|(kept, _)| !kept.has_ended()));
    // One by one, they would take 100 s.
    tokio::time::timeout(Duration::from_secs(80), auth.watch()).await.unwrap_err();
    let left = items.0.list_items(ItemQuery::newest(TICKET, 1)).await.unwrap().items;
    assert!(left.is_empty(), "all are gone after the next sweep");
}

#[tokio::test]
async fn b4_limits_per_key_count_the_sessions_and_tickets_of_the_key_too() {
    let (items, auth) = auth().await;
    let key = key_of(&*items, "ada", "read").await;
    let direct = auth.by_key(&key).await.unwrap();
    let session = auth.log_in(&direct).await.unwrap();
    let in_session = auth.by_session(&session.secret).await.unwrap();
    let ticket = auth.ticket(&in_session, "/v1/x".to_owned()).await.unwrap();
    let with_ticket = auth.by_ticket(&ticket.secret, "/v1/x").await.unwrap();
    for principal in [&in_session, &with_ticket] {
        assert_ne!(principal.source(), direct.source(), "logging out ends it");
        assert_eq!(principal.credential(), direct.source());
    }
}
