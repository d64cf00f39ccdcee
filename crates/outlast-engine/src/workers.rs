//! The commands of workers. A worker's answer is stored, shown and cancelled like one produced by this server.

use outlast_core::{
    Approval, Command, GenerationId, GenerationStatus, Piece, Refusal, Seq, UserId, WorkerAppend, WorkerEnd,
};

use crate::engine::{CommandOptions, Engine};
use crate::error::EngineError;

/// A batch from a worker, which is recorded as a whole or not at all.
#[derive(Clone, Debug)]
pub struct WorkerBatch {
    pub epoch: u32,
    /// The last event of the worker, as far as it knows. `None` for a heartbeat.
    pub expected: Option<Seq>,
    pub pieces: Vec<Piece>,
    pub end: Option<WorkerEnd>,
}

#[derive(Clone, Debug)]
pub struct WorkerPosition {
    pub epoch: u32,
    /// Its last event, which is the `expected` of the next batch.
    pub last: Seq,
    pub status: GenerationStatus,
    /// The questions to a person, and the decisions.
    pub approvals: Vec<Approval>,
}

impl Engine {
    /// Makes the caller the worker. The previous worker can no longer append.
    pub async fn claim(
        &self,
        user: &UserId,
        id: &GenerationId,
        keep: bool,
    ) -> Result<WorkerPosition, EngineError> {
        self.producing(user, id, Command::Claim { generation: id.clone(), keep }).await
    }

    /// Appends a worker's batch. It is durable when this returns.
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
