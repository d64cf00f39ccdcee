//! What deleted conversations leave behind, and what retention removes, without anybody waiting for it.

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use outlast_store::Items;

use super::*;
use crate::documents::to_state;
use crate::removals::Removal;
use crate::{EngineError, NewConversation};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// A conversation with a sandbox and a checkpoint.
async fn made(machine: &Machine) -> (Engine, ConversationId) {
    let calls = [json!({"command": "true"})];
    let engine = machine.server(Ok(machine.workshop.clone()), Rules::default(), &calls);
    let started = begin(&engine).await;
    until_status(&engine, &started.generation, GenerationStatus::Completed).await;
    assert!(machine.checkpoints(&started.conversation).exists());
    (engine, started.conversation)
}

impl Machine {
    fn checkpoints(&self, conversation: &ConversationId) -> std::path::PathBuf {
        self._folder.path().join("checkpoints").join(conversation.as_str())
    }

    async fn is_clear(&self, conversation: &ConversationId) -> bool {
        let owed = self.store.get_item("removal", conversation.as_str()).await.unwrap();
        self.sandboxes.inner.ids().is_empty() && !self.checkpoints(conversation).exists() && owed.is_none()
    }

    fn next_server(&self) -> Engine {
        self.server(Ok(self.workshop.clone()), Rules::default(), &[json!({"command": "true"})])
    }
}

#[tokio::test(start_paused = true)]
async fn x5_i16_a_deleted_conversation_leaves_nothing() {
    let machine = Machine::new();
    let (engine, conversation) = made(&machine).await;
    engine.delete_conversation(&user(), &conversation).await.unwrap();
    assert!(machine.is_clear(&conversation).await);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i16_what_was_under_way_when_a_conversation_was_deleted_is_looked_for_once_more() {
    let machine = Machine::new();
    let engine =
        machine.server(Ok(machine.workshop.clone()), Rules::default(), &[json!({"command": "hang"})]);
    engine.take_up().await.unwrap();
    let started = begin(&engine).await;
    until(|| async { machine.sandboxes.inner.runs() == 1 }).await;
    engine.delete_conversation(&user(), &started.conversation).await.unwrap();
    assert!(machine.sandboxes.inner.ids().is_empty());
    let late = machine.checkpoints(&started.conversation).join("blobs");
    std::fs::create_dir_all(&late).unwrap();
    std::fs::write(late.join("late"), "written by a thread that nobody waited for").unwrap();
    until(|| machine.is_clear(&started.conversation)).await;
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_sandbox_that_cannot_be_killed_is_owed_and_the_next_server_removes_it() {
    let machine = Machine::new();
    let (engine, conversation) = made(&machine).await;
    machine.sandboxes.kills_fail.store(true, Ordering::SeqCst);
    engine.delete_conversation(&user(), &conversation).await.unwrap();
    let view = engine.view(&user(), &conversation, 10).await;
    assert!(matches!(view, Err(EngineError::NotFound)), "the person sees nothing of it any more");
    assert!(!machine.is_clear(&conversation).await);
    engine.stop().await;

    let without = machine.server(Err("no bubblewrap here".to_owned()), Rules::default(), &[]);
    without.take_up().await.unwrap();
    tokio::time::sleep(HOUR).await;
    assert!(!machine.is_clear(&conversation).await, "it stays owed");
    without.stop().await;

    let next = machine.next_server();
    next.take_up().await.unwrap();
    tokio::time::sleep(HOUR).await;
    assert!(!machine.is_clear(&conversation).await, "it still cannot be killed");
    machine.sandboxes.kills_fail.store(false, Ordering::SeqCst);
    until(|| machine.is_clear(&conversation)).await;
    assert_eq!(next.owners(), 0);
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_server_without_sandboxes_owes_those_of_a_conversation_that_is_deleted_there() {
    let machine = Machine::new();
    let (engine, conversation) = made(&machine).await;
    engine.stop().await;
    let without = machine.server(Err("no bubblewrap here".to_owned()), Rules::default(), &[]);
    without.delete_conversation(&user(), &conversation).await.unwrap();
    without.stop().await;
    assert!(!machine.is_clear(&conversation).await);
    let next = machine.next_server();
    next.take_up().await.unwrap();
    until(|| machine.is_clear(&conversation)).await;
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i10_a_deletion_that_a_crash_interrupted_is_finished_by_the_next_server() {
    let machine = Machine::new();
    let (engine, conversation) = made(&machine).await;
    let loaded = machine.store.load(&conversation, outlast_store::Newest::NONE).await.unwrap().unwrap();
    let removal = Removal::of(&to_state(&loaded).unwrap());
    engine.shared.owe_removal(&conversation, &user(), removal).await.unwrap();
    engine.stop().await;
    let next = machine.next_server();
    next.take_up().await.unwrap();
    until(|| machine.is_clear(&conversation)).await;
    assert!(matches!(next.view(&user(), &conversation, 10).await, Err(EngineError::NotFound)));
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i16_sandboxes_that_no_conversation_knows_are_found_and_those_of_other_stores_are_left_alone() {
    let machine = Machine::new();
    let (engine, conversation) = made(&machine).await;
    let mut known = machine.sandboxes.inner.ids();
    let label = engine.shared.label(&conversation).await.unwrap();
    let store = label.strip_suffix(conversation.as_str()).unwrap();
    engine.stop().await;
    for (id, label) in [
        ("sbx_gone", format!("{store}conv_gone")),
        ("sbx_former", label.clone()),
        ("sbx_other", "store_other/conv_gone".to_owned()),
        ("sbx_unknown", String::new()),
    ] {
        machine.sandboxes.create(&id.into(), &label).await.unwrap();
    }
    known.extend(["sbx_other".into(), "sbx_unknown".into()]);
    known.sort();
    let next = machine.next_server();
    next.take_up().await.unwrap();
    until(|| async { machine.sandboxes.inner.ids() == known }).await;
    tokio::time::sleep(HOUR).await;
    assert!(machine.sandboxes.inner.ids().contains(&"sbx_other".into()));
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn i13_a_conversation_with_a_used_id_gets_a_sandbox_only_when_nothing_of_the_former_is_left() {
    let machine = Machine::new();
    let engine = machine.next_server();
    let new = NewConversation { key: Some("screen".to_owned()), ..NewConversation::default() };
    let conversation = engine.create_conversation(&user(), new.clone()).await.unwrap();
    let go = || StartRequest {
        conversation: Some(conversation.clone()),
        ..StartRequest::new(vec![Part::Text { text: "go".into() }])
    };
    let first = engine.start(&user(), go()).await.unwrap();
    until_status(&engine, &first.generation, GenerationStatus::Completed).await;
    let former = machine.sandboxes.inner.ids();
    machine.sandboxes.kills_fail.store(true, Ordering::SeqCst);
    engine.delete_conversation(&user(), &conversation).await.unwrap();
    engine.stop().await;

    let engine = machine.next_server();
    engine.take_up().await.unwrap();
    assert_eq!(engine.create_conversation(&user(), new).await.unwrap(), conversation);
    let second = engine.start(&user(), go()).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(machine.sandboxes.inner.ids(), former);
    machine.sandboxes.kills_fail.store(false, Ordering::SeqCst);
    until_status(&engine, &second.generation, GenerationStatus::Completed).await;
    tokio::time::sleep(HOUR).await;
    assert!(machine.store.get_item("removal", conversation.as_str()).await.unwrap().is_none());
    let now = machine.sandboxes.inner.ids();
    assert!(now.len() == 1 && now != former, "{now:?}");
    assert!(machine.checkpoints(&conversation).exists(), "that of the new one");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn g13_nobody_waits_while_old_checkpoints_are_removed() {
    let machine = Machine::new();
    let slow = ThrottleConfig { wait_list_per_call: 3 * MINUTE, ..ThrottleConfig::default() };
    let checkpoints = Checkpoints::in_store(Arc::new(ThrottledStore::new(InMemory::new(), slow)));
    let workshop = Workshop { checkpoints, ..machine.workshop.clone() };
    let calls = [json!({"command": "true"})];
    let rules = Rules { sandbox_idle_pause: 1_000 * HOUR, ..Rules::default() };
    let before = machine.server(Ok(workshop.clone()), rules.clone(), &calls);
    let first = begin(&before).await;
    until_status(&before, &first.generation, GenerationStatus::Completed).await;
    before.stop().await;
    tokio::time::sleep(8 * 24 * HOUR).await;

    let engine = machine.server(Ok(workshop), rules, &calls);
    let trimming = async { (engine.trim().await.unwrap(), tokio::time::Instant::now()) };
    let asking = async {
        tokio::time::sleep(4 * MINUTE).await;
        assert!(
            !machine.has(&first.conversation, "chat.done").await,
            "its events are gone, so this has begun"
        );
        let asked = tokio::time::Instant::now();
        let (user, id) = (user(), &first.conversation);
        engine.update_conversation(&user, id, Some(Some("new".into())), None).await.unwrap();
        let go = StartRequest::new(vec![Part::Text { text: "go".into() }]);
        let go = StartRequest { conversation: Some(id.clone()), ..go };
        let second = engine.start(&user, go).await.unwrap();
        until_status(&engine, &second.generation, GenerationStatus::Completed).await;
        assert!(asked.elapsed() < MINUTE, "with a tool and a checkpoint: {:?}", asked.elapsed());
        tokio::time::Instant::now()
    };
    let ((trimmed, trimmed_at), answered_at) = tokio::join!(trimming, asking);
    assert!(trimmed == 1 && answered_at < trimmed_at, "it was slow");
    // It gave way to the checkpoint, so it is still due, and removes the rest another time.
    assert_eq!(engine.trim().await.unwrap(), 0);
    let document = machine.store.get(outlast_store::Table::Generations, first.generation.as_str()).await;
    assert_eq!(document.unwrap().unwrap().due, None);
    until(|| async { engine.owners() == 0 }).await;
    engine.stop().await;
}
