use serde_json::json;

use crate::testing::*;
use crate::{Command, Decision, Effect, FailureClass, Next, NotificationKind, Piece, Report, due};

fn unwatched() -> World {
    let mut world = World::new();
    (world.unwatched_since, world.notifies) = (Some(world.now), true);
    world
}

fn started() -> World {
    let mut world = unwatched();
    world.command(start(G1)).unwrap();
    world
}

fn owed(world: &World) -> Vec<NotificationKind> {
    world.transcript.state.owed_notifications.iter().map(|owed| owed.kind).collect()
}

fn kinds(world: &World) -> Vec<String> {
    world.log.iter().map(kind).filter(|kind| kind.starts_with("notification.")).collect()
}

#[test]
fn b6_an_end_that_nobody_watches_is_owed_until_it_is_made() {
    let mut world = started();
    world.model(vec![words("Hello.")], Some(finished()));
    assert_eq!(owed(&world), [NotificationKind::Completed]);
    assert_eq!(due(&world.transcript.state, &world.rules), Some(Default::default()));
    world.settle();
    assert_eq!(kinds(&world), ["notification.owed", "notification.made"]);
    assert!(world.next().is_nothing());
}

#[test]
fn b6_an_end_that_somebody_watches_is_not_owed() {
    let mut world = started();
    world.unwatched_since = None;
    world.model(vec![words("Hello.")], Some(finished()));
    world.settle();
    assert!(kinds(&world).is_empty());
}

#[test]
fn b6_a_crash_between_the_end_and_the_notification_loses_and_repeats_nothing() {
    let mut world = started();
    world.model(vec![words("Hello.")], Some(finished()));
    let Next { effects, .. } = world.next();
    world.crash();
    assert_eq!(world.next().effects, effects, "the next owner wants the same");
    let [Effect::Notify { notification }] = &effects[..] else { panic!("{effects:?}") };
    world.report(Report::Notified { notification: notification.clone() });
    world.crash();
    assert_eq!(world.report(Report::Notified { notification: notification.clone() }), 0);
    world.settle();
    assert_eq!(kinds(&world), ["notification.owed", "notification.made"]);
}

#[test]
fn b6_failures_cancels_and_interruptions_are_owed_too() {
    let mut world = started();
    world.model(vec![], Some(broke(FailureClass::Invalid)));
    assert_eq!(owed(&world), [NotificationKind::Error]);
    let mut world = started();
    world.command(cancel(G1)).unwrap();
    assert_eq!(owed(&world), [NotificationKind::Cancelled]);
    let mut world = unwatched();
    world.rules.recovery = crate::Recovery::Ask;
    world.command(start(G1)).unwrap();
    world.settle();
    world.crash();
    world.unwatched_since = Some(world.now);
    world.step();
    assert_eq!(owed(&world), [NotificationKind::Interrupted]);
}

#[test]
fn b6_several_questions_at_once_are_one_notification() {
    let mut world = unwatched();
    world.command(Command::Start(for_a_worker(G1))).unwrap();
    (world.worker, world.worker_heard) = (Some(1), world.now);
    let asks = |id: &str| Piece::Approval { id: id.into(), name: "read".into(), input: json!({"path": id}) };
    world.produce(vec![asks("call_1"), asks("call_2")], None);
    assert_eq!(owed(&world), [NotificationKind::Approval]);
    let first = world.transcript.state.owed_notifications[0].clone();
    assert_eq!(first.tool_use_id.as_deref(), Some("call_1"));
    assert_eq!(first.hash.map(|hash| hash.len()), Some(64));
    world.settle();
    assert!(world.next().is_nothing(), "a parked approval costs nothing once it is notified");
    world.command(decide_about("call_1", Decision::Approve)).unwrap();
    assert_eq!(kinds(&world), ["notification.owed", "notification.made"], "the second question still waits");
}
