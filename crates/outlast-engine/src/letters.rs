//! Requests between instances. A request for a conversation that another instance owns is sent to it as mail, and
//! the owner replies in the transaction that carries it out. So it is carried out exactly once, whoever dies.

use std::time::Duration;

use bytes::Bytes;
use outlast_core::ConversationId;
use outlast_store::{Mail as Letter, MailId};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

use crate::actor::{Mail, Receipt, Request};
use crate::engine::{Engine, Shared};
use crate::error::EngineError;

/// A sender waits for as long as a takeover of a dead owner may take, and for this much longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a sender tries to become the owner itself while there is no reply.
const KNOCK_EVERY: Duration = Duration::from_millis(500);
/// The wait after the store failed.
const STORE_WAIT: Duration = Duration::from_millis(500);

pub(crate) fn to_letter(request: &Request) -> Bytes {
    serde_json::to_vec(request).expect("a request has string keys").into()
}

/// Fails for a request of another version of Outlast, if this one does not know it.
pub(crate) fn to_request(letter: &Letter) -> Result<Request, serde_json::Error> {
    serde_json::from_slice(&letter.body)
}

pub(crate) fn to_reply(replied: &Result<Receipt, EngineError>) -> Bytes {
    serde_json::to_vec(replied).expect("a reply has string keys").into()
}

fn from_reply(bytes: &[u8]) -> Result<Receipt, EngineError> {
    serde_json::from_slice(bytes).unwrap_or_else(|error| {
        // The request was carried out, by a version that says more than this one understands.
        Err(EngineError::Lost(format!("the reply of another instance cannot be read: {error}")))
    })
}

impl Engine {
    /// Has the owner at another instance carry out a request.
    pub(crate) async fn ask_by_mail(
        &self,
        conversation: &ConversationId,
        request: &Request,
    ) -> Result<Receipt, EngineError> {
        let (done, answered) = oneshot::channel();
        let (shared, conversation) = (self.shared.clone(), conversation.clone());
        let id = format!("{}/{}", shared.store.instance().0, shared.ids.make("mail"));
        let letter = Letter { id: MailId(id), conversation, body: to_letter(request) };
        // A task of its own, because a client that goes away must leave no mail behind.
        self.shared.spawn(async move {
            let replied = shared.exchange(&letter).await;
            if let Err(error) = shared.store.forget(&letter.id).await {
                tracing::warn!(%error, "mail that was answered is still in the store");
            }
            done.send(replied).ok();
        });
        answered.await.unwrap_or_else(|_| Err(EngineError::Lost("the server is stopping".to_owned())))
    }

    /// Tells owners about mail that arrives for them, until the engine stops.
    pub(crate) async fn deliver_letters(self) {
        let mut arrived = self.shared.store.watch_mail();
        loop {
            arrived.borrow_and_update();
            let pause = match self.shared.store.mail_waiting().await {
                Ok(waiting) => {
                    for conversation in waiting {
                        self.shared.nudge(&conversation, Mail::Letters);
                    }
                    None
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot look for mail; will retry");
                    Some(STORE_WAIT)
                }
            };
            tokio::select! {
                () = self.shared.stop.cancelled() => return,
                changed = arrived.changed(), if pause.is_none() => if changed.is_err() { return },
                () = sleep(pause.unwrap_or_default()), if pause.is_some() => {}
            }
        }
    }
}

impl Shared {
    /// Sends a letter and waits for the reply.
    async fn exchange(self: &std::sync::Arc<Self>, letter: &Letter) -> Result<Receipt, EngineError> {
        let mut arrived = self.store.watch_mail();
        let until = Instant::now() + self.settings.lease + PATIENCE;
        let mut sent = false;
        let mut knock = Instant::now();
        loop {
            arrived.borrow_and_update();
            if !sent {
                // After a failure it may have arrived. Sending it again changes nothing.
                sent = self.store.send(letter.clone()).await.is_ok();
            }
            if sent && knock <= Instant::now() {
                // If nobody is the owner any more, the owner will be here, and finds the letter.
                self.nudge(&letter.conversation, Mail::Letters);
                knock = Instant::now() + KNOCK_EVERY;
            }
            if let Ok(Some(reply)) = self.store.reply(&letter.id).await {
                return from_reply(&reply);
            }
            let pause = if sent { knock } else { Instant::now() + STORE_WAIT };
            tokio::select! {
                () = self.stop.cancelled() => {
                    return Err(EngineError::Lost("the server is stopping".to_owned()));
                }
                () = sleep_until(until) => {
                    return Err(EngineError::Lost("the owner at another instance did not reply".to_owned()));
                }
                () = sleep_until(pause) => {}
                changed = arrived.changed() => if changed.is_err() {
                    return Err(EngineError::Lost("the store is closed".to_owned()));
                },
            }
        }
    }
}
