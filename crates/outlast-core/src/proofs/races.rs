//! Races between a person's commands and the model's reports, in every order.

use crate::testing::*;
use crate::{Command, FailureClass, Refusal, Report};

#[derive(Clone, Debug)]
enum Racer {
    Asks(Box<Command>),
    Reports(Report),
}

/// Every order in which `racers` can happen.
fn orders(racers: &[Racer]) -> Vec<Vec<Racer>> {
    if racers.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for first in 0..racers.len() {
        let mut rest = racers.to_vec();
        let racer = rest.remove(first);
        all.extend(orders(&rest).into_iter().map(|order| [vec![racer.clone()], order].concat()));
    }
    all
}

fn run(mut world: World, order: Vec<Racer>) -> (World, Vec<Refusal>) {
    let mut refusals = Vec::new();
    for racer in order {
        match racer {
            Racer::Asks(command) => refusals.extend(world.command(*command).err()),
            Racer::Reports(report) => {
                world.report(report);
            }
        }
    }
    (world, refusals)
}

fn ends(world: &World) -> usize {
    world.log.iter().filter(|entry| entry.event.is_end()).count()
}

#[test]
fn i3_cancel_and_completion_racing_in_every_order_end_it_once() {
    let racers = [
        Racer::Asks(Box::new(cancel(G1))),
        Racer::Asks(Box::new(cancel(G1))),
        Racer::Reports(says(G1, 1, "Hello")),
        Racer::Reports(finishes(G1, 1)),
        Racer::Reports(breaks(G1, 1, FailureClass::Invalid)),
    ];
    let orders = orders(&racers);
    for race in 0..1_000 {
        let order = orders[race % orders.len()].clone();
        let (world, refusals) = run(given([running(G1)]), order.clone());
        assert_eq!(ends(&world), 1, "{order:?}");
        let cancelled = matches!(world.generation(G1).progress.phase, crate::Phase::Cancelled { .. });
        assert_eq!(refusals.len(), if cancelled { 1 } else { 2 }, "the loser of a race is refused");
        assert!(world.log.last().unwrap().event.is_end(), "nothing follows the end");
    }
}

#[test]
fn g5_cancel_racing_recovery_and_retries_ends_it_once() {
    let racers = [
        Racer::Asks(Box::new(cancel(G1))),
        Racer::Reports(call_lost(G1)),
        Racer::Reports(breaks(G1, 1, FailureClass::Transient)),
        Racer::Reports(retry_due(G1)),
        Racer::Reports(abandoned(G1)),
    ];
    for order in orders(&racers) {
        let (world, _) = run(given([answering(G1, "Hel")]), order.clone());
        assert_eq!(ends(&world), 1, "{order:?}");
        assert_eq!(world.transcript.state.active(), None);
    }
}

#[test]
fn p5_resume_dismiss_and_cancel_racing_have_one_winner() {
    let racers = [
        Racer::Asks(Box::new(resume(G1))),
        Racer::Asks(Box::new(resume(G1))),
        Racer::Asks(Box::new(dismiss(G1))),
    ];
    for order in orders(&racers) {
        let (world, refusals) = run(given([answering(G1, "Hel"), interrupted(G1)]), order);
        assert_eq!(refusals.len(), 2, "one wins");
        assert!(ends(&world) <= 1);
    }
    let racers = [
        Racer::Asks(Box::new(resume(G1))),
        Racer::Asks(Box::new(dismiss(G1))),
        Racer::Asks(Box::new(cancel(G1))),
    ];
    for order in orders(&racers) {
        let (world, _) = run(given([answering(G1, "Hel"), interrupted(G1)]), order);
        assert_eq!(ends(&world), 1, "a cancel ends it in every order");
    }
}

#[test]
fn i4_two_racing_starts_start_one_generation() {
    for order in orders(&[Racer::Asks(Box::new(start(G1))), Racer::Asks(Box::new(start(G2)))]) {
        let (world, refusals) = run(given([]), order);
        let current = world.transcript.state.active().unwrap().id.clone();
        assert_eq!(refusals, [Refusal::Busy { current }]);
    }
}
