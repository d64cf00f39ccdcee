//! Clients that read a generation: its document, its events in pages, or its stream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outlast_core::{ConversationId, GenerationId, GenerationStatus, Seq, head, plain_text};
use outlast_engine::{Engine, EngineError, FollowError};
use outlast_store::Record;

use super::Dice;
use super::people::{Ledger, user};

/// A page small enough that an answer needs several.
const PAGE: usize = 7;

/// Repeatedly reads acknowledged generations. It uses streams only where nothing that was shown can be lost.
pub(crate) async fn poll(engine: Engine, ledger: Arc<Mutex<Ledger>>, mut dice: Dice, streams: bool) {
    loop {
        tokio::time::sleep(Duration::from_millis(dice.roll(60))).await;
        let Some((conversation, generation)) = any(&ledger, &mut dice) else { continue };
        match dice.roll(if streams { 3 } else { 2 }) {
            0 => look(&engine, &ledger, &generation).await,
            1 => page(&engine, &ledger, &conversation, &generation).await,
            _ => stream(&engine, &ledger, &conversation, &generation).await,
        }
    }
}

fn any(ledger: &Mutex<Ledger>, dice: &mut Dice) -> Option<(ConversationId, GenerationId)> {
    let ledger = ledger.lock().unwrap();
    let known: Vec<_> = ledger.starts.values().filter_map(|sent| sent.acknowledged.as_ref()).collect();
    let index = usize::try_from(dice.roll(known.len().max(1) as u64)).unwrap();
    known.get(index).map(|(conversation, generation, _)| (conversation.clone(), generation.clone()))
}

/// G9: once a generation is reported as ended, its content is complete and never changes.
async fn look(engine: &Engine, ledger: &Mutex<Ledger>, generation: &GenerationId) {
    let document = match engine.generation(&user(), generation).await {
        Ok(document) => document,
        Err(EngineError::Unavailable(_)) => return,
        Err(error) => panic!("{generation} was acknowledged: {error}"),
    };
    if GenerationStatus::LIVE.contains(&document.status) {
        return;
    }
    let told = (document.status, plain_text(document.parts()));
    assert!(told.0 != GenerationStatus::Completed || !told.1.is_empty(), "{generation} is empty");
    let mut ledger = ledger.lock().unwrap();
    let known = ledger.ends.entry(generation.clone()).or_insert_with(|| told.clone());
    assert_eq!(*known, told, "{generation} ended in two ways");
}

async fn page(
    engine: &Engine,
    ledger: &Mutex<Ledger>,
    conversation: &ConversationId,
    generation: &GenerationId,
) {
    let mut after = None;
    loop {
        let page = match engine.events(&user(), generation, after, PAGE).await {
            Ok(page) => page,
            Err(EngineError::Unavailable(_)) => return,
            Err(error) => panic!("{generation} was acknowledged: {error}"),
        };
        note(ledger, conversation, &page.records);
        let last = page.records.last().is_some_and(|record| head(&record.bytes).unwrap().is_end());
        assert_eq!(page.ended, last, "the end of {generation} must be the last event of its last page");
        if page.ended || page.records.is_empty() {
            return;
        }
        assert!(Some(page.after) > after);
        after = Some(page.after);
    }
}

async fn stream(
    engine: &Engine,
    ledger: &Mutex<Ledger>,
    conversation: &ConversationId,
    generation: &GenerationId,
) {
    let mut follower = match engine.follow_generation(&user(), generation, None).await {
        Ok(follower) => follower,
        Err(EngineError::Unavailable(_)) => return,
        Err(error) => panic!("{generation} was acknowledged: {error}"),
    };
    let mut last: Option<Record> = None;
    loop {
        let batch = match follower.next().await {
            Ok(Some(batch)) => batch,
            Ok(None) => break,
            Err(FollowError::Store(_)) => return,
            Err(error) => panic!("{generation}: {error}"),
        };
        let position = last.as_ref().map_or(Seq::ZERO, |record| record.seq);
        assert!(batch.records().iter().is_sorted_by_key(|record| record.seq));
        assert!(batch.records().first().is_some_and(|first| first.seq > position), "I2: a repeat");
        note(ledger, conversation, batch.records());
        last = batch.records().last().cloned();
    }
    let end = last.is_some_and(|record| head(&record.bytes).unwrap().is_end());
    assert!(end, "G3: the stream of {generation} must end with its end");
}

fn note(ledger: &Mutex<Ledger>, conversation: &ConversationId, records: &[Record]) {
    let mut ledger = ledger.lock().unwrap();
    let seen = ledger.seen.entry(conversation.clone()).or_default();
    for record in records {
        let known = seen.entry(record.seq).or_insert_with(|| record.bytes.clone());
        assert_eq!(*known, record.bytes, "I2: two readers saw different events at {}", record.seq);
    }
}
