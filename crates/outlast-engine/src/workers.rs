//! What workers elsewhere may ask of the engine: they make an answer, and it is kept, shown and cancelled
//! like one that is made here.

use outlast_core::{
    Approval, Command, GenerationId, GenerationStatus, Piece, Refusal, Seq, UserId, WorkerAppend, WorkerEnd,
};

use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;

/// A batch of a worker: all of it or nothing.
#[derive(Clone, Debug)]
pub struct WorkerBatch {
    /// The epoch that the worker was given.
    pub epoch: u32,
    /// The last event that the worker knows to be its own. A mere sign of life names none.
    pub expected: Option<Seq>,
    /// What it made, in order.
    pub pieces: Vec<Piece>,
    /// How it ended, if it did.
    pub end: Option<WorkerEnd>,
}

/// Where a worker stands.
#[derive(Clone, Debug)]
pub struct WorkerPosition {
    /// The epoch in which it may append.
    pub epoch: u32,
    /// Its last event: what the next batch must expect.
    pub last: Seq,
    /// How far the generation is.
    pub status: GenerationStatus,
    /// What a person was asked, and what they decided.
    pub approvals: Vec<Approval>,
}

impl Engine {
    /// Makes the caller the producer. Whoever was it before can append nothing any more.
    pub async fn claim(
        &self,
        user: &UserId,
        id: &GenerationId,
        keep: bool,
    ) -> Result<WorkerPosition, EngineError> {
        self.producing(user, id, Command::Claim { generation: id.clone(), keep }).await
    }

    /// Appends what a worker made. It is durable when this returns.
    pub async fn produce(
        &self,
        user: &UserId,
        id: &GenerationId,
        batch: WorkerBatch,
    ) -> Result<WorkerPosition, EngineError> {
        let WorkerBatch { epoch, expected, pieces, end } = batch;
        let new_message = self.shared.ids.make("msg").into();
        let produce = WorkerAppend { generation: id.clone(), epoch, expected, pieces, end, new_message };
        self.producing(user, id, Command::Append(produce)).await
    }

    async fn producing(
        &self,
        user: &UserId,
        id: &GenerationId,
        command: Command,
    ) -> Result<WorkerPosition, EngineError> {
        let (conversation, _) = self.place_of(user, id).await?;
        match self.command(&conversation, user, command, CommandOptions::default()).await {
            Ok(receipt) => Ok(WorkerPosition {
                epoch: receipt.attempt,
                last: receipt.produced,
                status: receipt.status,
                approvals: receipt.approvals,
            }),
            Err(EngineError::Refused(Refusal::EndedLongAgo)) => {
                let (_, status) = self.place_of(user, id).await?;
                Err(EngineError::Refused(Refusal::AlreadyEnded { status }))
            }
            Err(error) => Err(error),
        }
    }
}
