//! A store that fails, delays and loses replies, determined by a seed. The simulation runs the engine on it.
//!
//! Every fault is one that a real store behind a network can have. The store never breaks its contract.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use outlast_core::{ConversationId, Seq};
use tokio::sync::watch;

use crate::contract::{
    Append, AppendError, ClaimError, Document, Fence, InstanceId, Listed, Loaded, Mail, MailId, Newest,
    Query, Record, Store, StoreError, Table,
};

mod dice;
mod items;

use dice::{Dice, Failure, Fate, SplitMix64};

/// How often each fault happens, in calls out of 1,000. The default is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// The append is refused as unavailable; nothing is written.
    pub append_refused: u32,
    /// The append is written, but reported as unconfirmed.
    pub append_unanswered: u32,
    /// The append is not written, and reported as unconfirmed.
    pub append_lost: u32,
    /// The append is reported as unconfirmed, and reaches the store during a later call.
    pub append_late: u32,
    /// A read, load, get, list, mail, reply, trim, delete or release fails; nothing is changed.
    pub call_refused: u32,
    /// A claim fails, before or after it has taken effect.
    pub claim_failed: u32,
    /// Sending mail, renewing the lease or leaving fails, before or after it has taken effect.
    pub send_failed: u32,
    /// The call takes up to `delay_at_most` longer, before or after it has taken effect.
    pub delayed: u32,
    /// The longest delay, by tokio's clock.
    pub delay_at_most: Duration,
}

/// How often each fault has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    pub append_refused: u64,
    pub append_unanswered: u64,
    pub append_lost: u64,
    pub append_late: u64,
    /// Late appends that were written after all.
    pub late_written: u64,
    pub call_refused: u64,
    pub claim_failed: u64,
    pub send_failed: u64,
    pub delayed: u64,
}

/// Wraps a store. The same seed and the same calls give the same faults.
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    dice: Mutex<Dice>,
}

/// A call that is being delayed.
struct Delayed<'a>(&'a FaultyStore);

impl Drop for Delayed<'_> {
    fn drop(&mut self) {
        self.0.lock().delaying -= 1;
    }
}

impl FaultyStore {
    /// Starts without faults; see [`set_rates`](Self::set_rates).
    pub fn new(inner: Arc<dyn Store>, seed: u64) -> Self {
        let dice = Dice {
            random: SplitMix64(seed),
            rates: Rates::default(),
            faults: Faults::default(),
            late: VecDeque::new(),
            delaying: 0,
            most: 0,
        };
        Self { inner, dice: Mutex::new(dice) }
    }

    pub fn set_rates(&self, rates: Rates) {
        self.lock().rates = rates;
    }

    /// Stops injecting faults. Appends that are already late still arrive.
    pub fn calm(&self) {
        self.set_rates(Rates::default());
    }

    pub fn faults(&self) -> Faults {
        self.lock().faults
    }

    /// The most calls that were delayed at a time.
    pub fn most_at_once(&self) -> usize {
        self.lock().most
    }

    fn lock(&self) -> MutexGuard<'_, Dice> {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn delay(&self) {
        let delay = self.lock().delay();
        if let Some(delay) = delay {
            let _delayed = self.delayed();
            tokio::time::sleep(delay).await;
        }
    }

    fn delayed(&self) -> Delayed<'_> {
        let mut dice = self.lock();
        dice.delaying += 1;
        dice.most = dice.most.max(dice.delaying);
        Delayed(self)
    }

    /// Sometimes lets late appends arrive. This runs before and after every call, so that late appends arrive
    /// both before and after a claim. After a claim, a correct store refuses them.
    async fn arrivals(&self) {
        let arriving = self.lock().arriving();
        for append in arriving {
            if self.inner.append(append).await.is_ok() {
                self.lock().faults.late_written += 1;
            }
        }
    }

    /// Makes a call that may fail before or after it has taken effect.
    async fn either_side(
        &self,
        call: impl Future<Output = Result<(), StoreError>>,
    ) -> Result<(), StoreError> {
        self.delay().await;
        self.arrivals().await;
        let failure = self.lock().fail_send();
        if let Some(Failure::Before) = failure {
            return Err(StoreError::Unavailable("fault: request lost".into()));
        }
        call.await?;
        self.delay().await;
        match failure {
            Some(_) => Err(StoreError::Unavailable("fault: done, reply lost".into())),
            None => Ok(()),
        }
    }

    async fn before_call(&self) -> Result<(), StoreError> {
        self.delay().await;
        self.arrivals().await;
        self.lock().refuse_call()
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn append(&self, append: Append) -> Result<(), AppendError> {
        self.delay().await;
        self.arrivals().await;
        let fate = self.lock().fate();
        match fate {
            Fate::Healthy => {
                let answer = self.inner.append(append).await;
                self.delay().await;
                answer
            }
            Fate::Refused => Err(AppendError::Unavailable("fault: refused".into())),
            Fate::Unanswered => match self.inner.append(append).await {
                Ok(()) => Err(AppendError::Unconfirmed("fault: written, reply lost".into())),
                Err(refusal) => Err(refusal),
            },
            Fate::Lost => Err(AppendError::Unconfirmed("fault: request lost".into())),
            Fate::Late => {
                self.lock().postpone(append);
                Err(AppendError::Unconfirmed("fault: request late".into()))
            }
        }
    }

    async fn read(
        &self,
        conversation: &ConversationId,
        after: Seq,
        max_bytes: usize,
    ) -> Result<Vec<Record>, StoreError> {
        self.before_call().await?;
        self.inner.read(conversation, after, max_bytes).await
    }

    async fn load(
        &self,
        conversation: &ConversationId,
        newest: Newest,
    ) -> Result<Option<Loaded>, StoreError> {
        self.before_call().await?;
        self.inner.load(conversation, newest).await
    }

    async fn get(&self, table: Table, id: &str) -> Result<Option<Document>, StoreError> {
        self.before_call().await?;
        self.inner.get(table, id).await
    }

    async fn list(&self, query: Query) -> Result<Listed, StoreError> {
        self.before_call().await?;
        self.inner.list(query).await
    }

    fn instance(&self) -> &InstanceId {
        self.inner.instance()
    }

    async fn renew(&self, lease: Duration) -> Result<(), StoreError> {
        self.either_side(self.inner.renew(lease)).await
    }

    async fn leave(&self) -> Result<(), StoreError> {
        self.either_side(self.inner.leave()).await
    }

    async fn others(&self) -> Result<Vec<InstanceId>, StoreError> {
        self.before_call().await?;
        self.inner.others().await
    }

    async fn raise_fences(&self, fence: Fence) -> Result<Fence, StoreError> {
        self.before_call().await?;
        self.inner.raise_fences(fence).await
    }

    async fn claim(&self, conversation: &ConversationId) -> Result<Fence, ClaimError> {
        self.delay().await;
        self.arrivals().await;
        let failure = self.lock().fail_claim();
        if let Some(Failure::Before) = failure {
            return Err(StoreError::Unavailable("fault: claim refused".into()).into());
        }
        let fence = self.inner.claim(conversation).await?;
        self.delay().await;
        self.arrivals().await;
        match failure {
            Some(_) => Err(StoreError::Unavailable("fault: claimed, reply lost".into()).into()),
            None => Ok(fence),
        }
    }

    async fn release(&self, conversation: &ConversationId, fence: Fence) -> Result<bool, StoreError> {
        self.before_call().await?;
        self.inner.release(conversation, fence).await
    }

    async fn send(&self, mail: Mail) -> Result<(), StoreError> {
        self.either_side(self.inner.send(mail)).await
    }

    async fn mail_waiting(&self) -> Result<Vec<ConversationId>, StoreError> {
        self.before_call().await?;
        self.inner.mail_waiting().await
    }

    async fn mail(&self, conversation: &ConversationId) -> Result<Vec<Mail>, StoreError> {
        self.before_call().await?;
        self.inner.mail(conversation).await
    }

    async fn reply(&self, mail: &MailId) -> Result<Option<Bytes>, StoreError> {
        self.before_call().await?;
        self.inner.reply(mail).await
    }

    async fn forget(&self, mail: &MailId) -> Result<(), StoreError> {
        self.before_call().await?;
        self.inner.forget(mail).await
    }

    fn watch_mail(&self) -> watch::Receiver<()> {
        self.inner.watch_mail()
    }

    fn watch(&self, conversation: &ConversationId) -> watch::Receiver<Seq> {
        self.inner.watch(conversation)
    }

    async fn trim(&self, conversation: &ConversationId, first: Seq, last: Seq) -> Result<(), StoreError> {
        self.before_call().await?;
        self.inner.trim(conversation, first, last).await
    }

    async fn delete(&self, conversation: &ConversationId) -> Result<(), StoreError> {
        self.before_call().await?;
        self.inner.delete(conversation).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use crate::suite::{append, conversation};

    fn faulty(seed: u64, rates: Rates) -> FaultyStore {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()), seed);
        store.set_rates(rates);
        store
    }

    #[tokio::test]
    async fn an_append_without_a_reply_is_written_and_a_lost_one_is_not() {
        let c = conversation("c");
        let store = faulty(1, Rates { append_unanswered: 1000, ..Rates::default() });
        let fence = store.claim(&c).await.unwrap();
        let answer = store.append(append(&c, fence, 0, &["a"])).await;
        assert!(matches!(answer, Err(AppendError::Unconfirmed(_))));
        store.set_rates(Rates { append_lost: 1000, ..Rates::default() });
        let answer = store.append(append(&c, fence, 1, &["b"])).await;
        assert!(matches!(answer, Err(AppendError::Unconfirmed(_))));
        store.calm();
        assert_eq!(store.read(&c, Seq::ZERO, 100).await.unwrap().len(), 1);
        let faults = Faults { append_unanswered: 1, append_lost: 1, ..Faults::default() };
        assert_eq!(store.faults(), faults);
    }

    #[tokio::test]
    async fn a_late_append_never_arrives_after_a_claim() {
        let mut written = 0;
        for seed in 0..100 {
            let c = conversation("c");
            let store = faulty(seed, Rates { append_late: 1000, ..Rates::default() });
            let old = store.claim(&c).await.unwrap();
            store.append(append(&c, old, 0, &["late"])).await.unwrap_err();
            store.calm();
            let new = store.claim(&c).await.unwrap();
            let seen = store.read(&c, Seq::ZERO, 100).await.unwrap().len() as u64;
            for _ in 0..10 {
                assert_eq!(store.read(&c, Seq::ZERO, 100).await.unwrap().len() as u64, seen);
            }
            store.append(append(&c, new, seen, &["next"])).await.unwrap();
            written += store.faults().late_written;
        }
        assert!(written > 0 && written < 100, "only one order happened: {written} of 100 were written");
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_seed_gives_the_same_faults() {
        let rates = Rates {
            append_refused: 200,
            append_unanswered: 200,
            append_lost: 200,
            append_late: 200,
            call_refused: 300,
            claim_failed: 300,
            send_failed: 300,
            delayed: 300,
            delay_at_most: Duration::from_secs(5),
        };
        let mut runs = Vec::new();
        for _ in 0..2 {
            let store = faulty(7, rates);
            let c = conversation("c");
            for n in 0..200 {
                let fence = store.claim(&c).await.unwrap_or(Fence(n));
                drop(store.append(append(&c, fence, 0, &["x"])).await);
                drop(store.read(&c, Seq::ZERO, 100).await);
            }
            runs.push(store.faults());
        }
        assert_eq!(runs[0], runs[1]);
        assert!(runs[0].delayed > 0 && runs[0].claim_failed > 0 && runs[0].call_refused > 0);
    }
}
