//! Carries out the requests of other instances. Each reply goes into the append that carries the request out; one
//! that changes nothing gets an append of its own.

use bytes::Bytes;
use outlast_core::Conversation;
use outlast_store::{Mail as Letter, MailId};

use super::serve::receipt;
use super::{Actor, Answering, STORE_WAIT};
use crate::error::EngineError;
use crate::journal::{RecordError, Write};
use crate::letters::{to_reply, to_request};

impl Actor {
    /// Serves what waits. If the store cannot be read or written now, the letters stay where they are.
    pub(super) async fn read_letters(&mut self) -> Result<(), RecordError> {
        let letters = match self.shared.store.mail(&self.id).await {
            Ok(letters) => letters,
            Err(error) => {
                tracing::warn!(conversation = ?self.id, %error, "cannot read mail; will retry");
                self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                return Ok(());
            }
        };
        self.letters_wait = !letters.is_empty();
        for letter in letters {
            match self.serve_letter(&letter).await {
                Err(RecordError::Unavailable(reason)) => {
                    tracing::error!(conversation = ?self.id, reason, "the store cannot write; will retry");
                    self.store_again = Some(self.shared.clock.now().after(STORE_WAIT));
                    return Ok(());
                }
                served => served?,
            }
        }
        Ok(())
    }

    async fn serve_letter(&mut self, letter: &Letter) -> Result<(), RecordError> {
        let replied = match to_request(letter) {
            Ok(request) => {
                self.answering = Some(Answering { letter: letter.id.clone(), generation: None });
                let replied = self.carry_out(request).await;
                if self.answering.take().is_none() {
                    return Ok(()); // the reply was appended with the events
                }
                replied
            }
            Err(error) => {
                tracing::warn!(conversation = ?self.id, %error, "a request of another version was not understood");
                let reason = "the owner is an instance of another version; try again".to_owned();
                return self.reply(letter, Err(EngineError::Unavailable(reason))).await;
            }
        };
        match replied {
            Err(EngineError::Unavailable(reason)) => Err(RecordError::Unavailable(reason)),
            Err(EngineError::Lost(reason)) if self.fenced => Err(RecordError::Fenced(reason)),
            Err(EngineError::Lost(reason)) => Err(RecordError::Lost(reason)),
            replied => self.reply(letter, replied).await,
        }
    }

    async fn reply(
        &mut self,
        letter: &Letter,
        replied: Result<super::Receipt, EngineError>,
    ) -> Result<(), RecordError> {
        let replies = vec![(letter.id.clone(), to_reply(&replied))];
        self.append(Write { replies, ..Write::default() }).await
    }

    /// The reply to the letter that is being carried out, once the state is as given.
    pub(super) fn reply_from(&self, after: &Conversation) -> Option<(MailId, Bytes)> {
        let answering = self.answering.as_ref()?;
        let receipt = receipt(Some(after), answering.generation.as_ref());
        Some((answering.letter.clone(), to_reply(&Ok(receipt))))
    }
}
