//! Clients that retry until they get a reply, and readers that remember what they saw.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use outlast_core::{ConversationId, GenerationId, GenerationStatus, MessageId, Part, Seq, UserId, WhenBusy};
use outlast_engine::{Engine, EngineError, FollowError, StartRequest};

use super::Dice;
use super::pollers::poll;

/// What the clients and readers know. It survives every crash.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Requests that were sent, and what was acknowledged for them.
    pub(crate) starts: BTreeMap<String, Sent>,
    /// Generations whose cancel was acknowledged as a success.
    pub(crate) cancelled: Vec<GenerationId>,
    /// Generations that were reported as ended, and their text.
    pub(crate) ends: BTreeMap<GenerationId, (GenerationStatus, String)>,
    /// What any reader saw, by conversation and position.
    pub(crate) seen: HashMap<ConversationId, BTreeMap<Seq, Bytes>>,
    /// Whether the same request may be on its way twice. Then it may be refused, and be accepted later, in any order.
    pub(crate) several: bool,
    /// The position of each reader.
    pub(crate) readers: Vec<(ConversationId, Seq)>,
}

pub(crate) struct Sent {
    pub(crate) conversation: usize,
    pub(crate) when_busy: WhenBusy,
    pub(crate) acknowledged: Option<(ConversationId, GenerationId, MessageId)>,
    /// Refused permanently, because the conversation was busy.
    pub(crate) refused: bool,
}

pub(crate) fn user() -> UserId {
    "ann".into()
}

/// Each run adds clients and readers; the earlier ones retry what got no reply. There are followers only in the
/// mode in which everything shown is saved.
pub(crate) fn arrive(
    engine: &Engine,
    ledger: &Arc<Mutex<Ledger>>,
    dice: &mut Dice,
    conversations: usize,
    life: u64,
    faithful: bool,
) {
    for number in 0..2 + dice.roll(3) {
        let conversation = usize::try_from(dice.roll(conversations as u64)).unwrap();
        let when_busy = match dice.roll(4) {
            0 => WhenBusy::Reject,
            1 => WhenBusy::Interrupt,
            _ => WhenBusy::Queue,
        };
        let sent = Sent { conversation, when_busy, acknowledged: None, refused: false };
        ledger.lock().unwrap().starts.insert(format!("life {life} request {number}"), sent);
    }
    let requests: Vec<String> = ledger.lock().unwrap().starts.keys().cloned().collect();
    for request in requests {
        tokio::spawn(client(engine.clone(), ledger.clone(), dice.fork(), request));
    }
    for _ in 0..3 {
        tokio::spawn(poll(engine.clone(), ledger.clone(), dice.fork(), faithful));
    }
    if !faithful {
        return;
    }
    for _ in 0..dice.roll(3) {
        ledger
            .lock()
            .unwrap()
            .readers
            .push((conversation_id(usize::try_from(dice.roll(conversations as u64)).unwrap()), Seq::ZERO));
    }
    for number in 0..conversations {
        tokio::spawn(visit(engine.clone(), conversation_id(number), dice.fork()));
    }
    let readers = ledger.lock().unwrap().readers.len();
    for reader in 0..readers {
        tokio::spawn(read(engine.clone(), ledger.clone(), reader));
    }
}

fn conversation_id(number: usize) -> ConversationId {
    format!("conv_{number}").into()
}

async fn client(engine: Engine, ledger: Arc<Mutex<Ledger>>, mut dice: Dice, request: String) {
    tokio::time::sleep(Duration::from_millis(dice.roll(500))).await;
    let Some(generation) = ask(&engine, &ledger, &request).await else { return };
    if dice.roll(4) == 0 {
        tokio::time::sleep(Duration::from_millis(dice.roll(400))).await;
        cancel(&engine, &ledger, &generation).await;
    }
}

/// Sends a request until there is a reply. All replies must be the same.
async fn ask(engine: &Engine, ledger: &Arc<Mutex<Ledger>>, request: &str) -> Option<GenerationId> {
    let (conversation, when_busy) = {
        let ledger = ledger.lock().unwrap();
        let sent = &ledger.starts[request];
        if sent.refused {
            return None;
        }
        (conversation_id(sent.conversation), sent.when_busy)
    };
    loop {
        let start = StartRequest {
            conversation: Some(conversation.clone()),
            request: Some(request.into()),
            when_busy,
            ..StartRequest::new(vec![Part::Text { text: request.to_owned() }])
        };
        let answer = match engine.create_if_missing(&user(), &conversation).await {
            Ok(()) => engine.start(&user(), start).await,
            Err(error) => Err(error),
        };
        match answer {
            Ok(started) => {
                let got = (started.conversation, started.generation.clone(), started.message);
                let mut ledger = ledger.lock().unwrap();
                let sent = ledger.starts.get_mut(request).unwrap();
                let known = sent.acknowledged.get_or_insert_with(|| got.clone());
                assert_eq!(*known, got, "I4: the same request got two different replies");
                return Some(started.generation);
            }
            Err(EngineError::Unavailable(_) | EngineError::Lost(_)) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(EngineError::Refused(_)) => {
                let mut ledger = ledger.lock().unwrap();
                let several = ledger.several;
                let sent = ledger.starts.get_mut(request).unwrap();
                let accepted = sent.acknowledged.is_some();
                assert!(several || !accepted, "an accepted request was refused later");
                sent.refused |= !accepted;
                return None;
            }
            Err(error) => panic!("a start failed: {error}"),
        }
    }
}

async fn cancel(engine: &Engine, ledger: &Arc<Mutex<Ledger>>, generation: &GenerationId) {
    loop {
        match engine.cancel(&user(), generation).await {
            Ok(answer) => {
                if answer.success {
                    assert_eq!(answer.status, GenerationStatus::Cancelled);
                    ledger.lock().unwrap().cancelled.push(generation.clone());
                }
                return;
            }
            Err(EngineError::Unavailable(_) | EngineError::Lost(_)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("a cancel failed: {error}"),
        }
    }
}

pub(crate) async fn ask_until_answered(engine: &Engine, ledger: &Arc<Mutex<Ledger>>) {
    let requests: Vec<String> = ledger.lock().unwrap().starts.keys().cloned().collect();
    for request in requests {
        ask(engine, ledger, &request).await;
    }
}

/// Follows a conversation from the reader's position until the process crashes.
async fn read(engine: Engine, ledger: Arc<Mutex<Ledger>>, reader: usize) {
    loop {
        follow(&engine, &ledger, reader, None).await;
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
}

/// Repeatedly reads a conversation's view and follows it from there: the server must accept a position that it
/// returned.
async fn visit(engine: Engine, conversation: ConversationId, mut dice: Dice) {
    loop {
        tokio::time::sleep(Duration::from_millis(dice.roll(30))).await;
        let Ok(view) = engine.view(&user(), &conversation, 0).await else { continue };
        let follower = engine.follow_conversation(&user(), &conversation, view.last_seq).await;
        let Ok(mut follower) = follower else { continue };
        for next in [follower.check().await.err(), follower.next().await.err()] {
            assert!(matches!(next, None | Some(FollowError::Store(_))), "a view's own position: {next:?}");
        }
    }
}

/// Every reader reads up to the tail.
pub(crate) async fn read_to_the_end(engine: &Engine, ledger: &Arc<Mutex<Ledger>>) {
    let readers = ledger.lock().unwrap().readers.clone();
    for (reader, (conversation, _)) in readers.iter().enumerate() {
        if let Ok(view) = engine.view(&user(), conversation, 0).await {
            follow(engine, ledger, reader, Some(view.last_seq)).await;
        }
    }
}

async fn follow(engine: &Engine, ledger: &Arc<Mutex<Ledger>>, reader: usize, until: Option<Seq>) {
    let (conversation, mut position) = ledger.lock().unwrap().readers[reader].clone();
    let Ok(mut follower) = engine.follow_conversation(&user(), &conversation, position).await else { return };
    while until.is_none_or(|until| position < until) {
        let batch = match follower.next().await {
            Ok(batch) => batch.expect("a conversation does not end"),
            Err(FollowError::Store(_)) => return,
            Err(error) => panic!("reader at {position}: {error}"),
        };
        let mut ledger = ledger.lock().unwrap();
        for record in batch.records() {
            assert_eq!(record.seq, position.next(), "I2: a reader got a gap or a duplicate");
            position = record.seq;
            let seen = ledger.seen.entry(conversation.clone()).or_default();
            let known = seen.entry(record.seq).or_insert_with(|| record.bytes.clone());
            assert_eq!(*known, record.bytes, "I2: two readers saw different events at {position}");
        }
        ledger.readers[reader].1 = position;
    }
}
