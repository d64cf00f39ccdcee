use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use outlast_core::{NotificationKind, Part, UserId};
use outlast_store::{Items, MemoryStore};

use super::*;
use crate::{Clock, DemoModel, Ids, Models, Parts, Settings, StartRequest};

fn engine(store: &Arc<MemoryStore>, settings: NotificationSettings) -> Engine {
    let model: Arc<dyn crate::Model> = Arc::new(DemoModel::with_pace(Duration::ZERO));
    Engine::new(Parts {
        store: store.clone(),
        models: Models::new(BTreeMap::from([("default".to_owned(), model)])),
        workshop: Err("no tools here".to_owned()),
        settings: Settings { notifications: settings, ..Settings::default() },
        clock: Clock::simulated(Timestamp(1_767_225_600_000)),
        ids: Ids::Random,
    })
}

async fn say(engine: &Engine, user: &UserId, text: &str) -> crate::Started {
    let said = vec![Part::Text { text: text.to_owned() }];
    engine.start(user, StartRequest::new(said)).await.unwrap()
}

/// Waits until the list has as many entries.
async fn told(engine: &Engine, user: &UserId, count: usize) -> Inbox {
    let mut bell = engine.bell(user).unwrap();
    loop {
        let inbox = engine.notifications(user).await.unwrap();
        if inbox.notifications.len() == count {
            return inbox;
        }
        bell.rung().await;
    }
}

#[tokio::test(start_paused = true)]
async fn b6_an_unwatched_end_is_in_the_list_once_and_can_be_read() {
    let store = Arc::new(MemoryStore::new());
    let engine = engine(&store, NotificationSettings::default());
    let ada = UserId::from("ada");
    let started = say(&engine, &ada, "Hello").await;
    let inbox = told(&engine, &ada, 1).await;
    let one = &inbox.notifications[0];
    assert_eq!((inbox.unread, one.kind), (1, NotificationKind::Completed));
    assert_eq!((&one.conversation_id, &one.generation_id), (&started.conversation, &started.generation));
    let first = engine.mark_read(&ada, &one.id).await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(engine.mark_read(&ada, &one.id).await.unwrap(), first, "the first time counts");
    assert_eq!(engine.notifications(&ada).await.unwrap().unread, 0);
    let bob = UserId::from("bob");
    assert!(engine.notifications(&bob).await.unwrap().notifications.is_empty());
    assert!(matches!(engine.mark_read(&bob, &one.id).await, Err(EngineError::NotFound)));
    engine.stop().await;
    assert_eq!(engine.owners(), 0, "nothing is left behind");
}

#[tokio::test(start_paused = true)]
async fn b6_a_restart_makes_no_second_notification() {
    let store = Arc::new(MemoryStore::new());
    let ada = UserId::from("ada");
    let first = engine(&store, NotificationSettings::default());
    say(&first, &ada, "Hello").await;
    told(&first, &ada, 1).await;
    first.stop().await;
    let second = engine(&store, NotificationSettings::default());
    second.take_up().await.unwrap();
    say(&second, &ada, "Again").await;
    assert_eq!(told(&second, &ada, 2).await.unread, 2);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn b6_a_user_has_a_limited_number_and_old_ones_go() {
    let store = Arc::new(MemoryStore::new());
    let settings = NotificationSettings { per_user: 3, ..NotificationSettings::default() };
    let engine = engine(&store, settings);
    let ada = UserId::from("ada");
    let mut last = None;
    for n in 0..6 {
        let started = say(&engine, &ada, &n.to_string()).await;
        last = Some(started.conversation.clone());
        // Until it is the newest in the list.
        let mut bell = engine.bell(&ada).unwrap();
        while engine.notifications(&ada).await.unwrap().notifications.first().map(|one| &one.conversation_id)
            != Some(&started.conversation)
        {
            bell.rung().await;
        }
        tokio::time::advance(Duration::from_millis(5)).await;
    }
    assert_eq!(told(&engine, &ada, 3).await.notifications[0].conversation_id, last.clone().unwrap());
    let all = ItemQuery::newest(NOTIFICATION, 100);
    assert_eq!(store.list_items(all.clone()).await.unwrap().items.len(), 3);
    engine.delete_conversation(&ada, &last.unwrap()).await.unwrap();
    assert_eq!(
        engine.notifications(&ada).await.unwrap().notifications.len(),
        2,
        "deleted with its conversation"
    );
    tokio::time::advance(Duration::from_secs(31 * 24 * 60 * 60)).await;
    engine.trim().await.unwrap();
    assert!(store.list_items(all).await.unwrap().items.is_empty());
    engine.stop().await;
}
