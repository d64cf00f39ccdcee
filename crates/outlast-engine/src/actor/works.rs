//! What an owner has under way beside the call to a model: each effect is a task that reports back. The owner drops
//! what is no longer wanted, and that ends the task.

use std::future::Future;

use outlast_core::{Effect, Report};
use outlast_store::fault;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::engine::Shared;

/// Reports that may wait for the owner. A full channel makes the task wait, so that output of a tool waits in the
/// sandbox instead of here.
const REPORTS: usize = 4;

pub(super) struct Works {
    running: Vec<Work>,
    told: mpsc::Receiver<Told>,
    teller: mpsc::Sender<Told>,
}

struct Work {
    effect: Effect,
    _ends_with_this: DropGuard,
}

/// What a task has to say.
pub(super) struct Told {
    effect: Effect,
    report: Report,
    is_last: bool,
}

/// A task's way to its owner.
pub(crate) struct Teller {
    effect: Effect,
    teller: mpsc::Sender<Told>,
}

impl Teller {
    /// Waits until the owner has room. More will follow.
    pub(crate) async fn tell(&self, report: Report) {
        self.send(report, false).await;
    }

    /// The effect is done.
    pub(crate) async fn finish(self, report: Report) {
        fault::point("work.done");
        self.send(report, true).await;
    }

    async fn send(&self, report: Report, is_last: bool) {
        let told = Told { effect: self.effect.clone(), report, is_last };
        // An owner that is gone needs no report: the next one wants the same effect again.
        self.teller.send(told).await.ok();
    }
}

impl Works {
    pub(super) fn new() -> Works {
        let (teller, told) = mpsc::channel(REPORTS);
        Works { running: Vec::new(), told, teller }
    }

    /// Ends everything that is not wanted.
    pub(super) fn keep(&mut self, wanted: &[Effect]) {
        self.running.retain(|work| wanted.contains(&work.effect));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn has(&self, effect: &Effect) -> bool {
        self.running.iter().any(|work| work.effect == *effect)
    }

    pub(super) fn start<F>(&mut self, shared: &Shared, effect: Effect, task: impl FnOnce(Teller) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = CancellationToken::new();
        let task = task(Teller { effect: effect.clone(), teller: self.teller.clone() });
        let stopped = stop.clone();
        shared.spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = async { fault::point("work.begun"); task.await } => {}
            }
        });
        self.running.push(Work { effect, _ends_with_this: stop.drop_guard() });
    }

    /// The next report of something that is still wanted.
    pub(super) async fn next(&mut self) -> Report {
        loop {
            let told = self.told.recv().await.expect("this struct holds a sender");
            let Some(place) = self.running.iter().position(|work| work.effect == told.effect) else {
                continue; // dropped meanwhile
            };
            if told.is_last {
                self.running.remove(place);
            }
            return told.report;
        }
    }
}
