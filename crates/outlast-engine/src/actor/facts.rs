//! Looks up what `decide` cannot see in the state. Only the owner does this, because it handles two identical
//! requests one after the other.

use outlast_core::{
    Command, Conversation, ConversationId, Earlier, Facts, GenerationId, MessageId, RequestId, Seq,
};
use outlast_store::{Query, StoreError, Table};

use crate::documents::{message_key, to_generation};
use crate::engine::{CommandOptions, Shared};

pub(super) async fn look_up(
    shared: &Shared,
    state: &Conversation,
    command: &Command,
    options: CommandOptions,
) -> Result<Facts, StoreError> {
    let named = |request| options.named.then_some(request);
    Ok(match command {
        Command::Start(start) => Facts {
            earlier: earlier(shared, &state.id, named(&start.request)).await?,
            answer_id_is_taken: is_taken(shared, &state.id, start.brief.answer_id.as_ref()).await?,
            prompt_is_gone: false,
        },
        Command::Retry(retry) => Facts {
            earlier: earlier(shared, &state.id, named(&retry.request)).await?,
            answer_id_is_taken: false,
            prompt_is_gone: prompt_is_gone(shared, state, &retry.of).await?,
        },
        _ => Facts::default(),
    })
}

/// The generation that the same request started before.
async fn earlier(
    shared: &Shared,
    conversation: &ConversationId,
    request: Option<&RequestId>,
) -> Result<Option<Earlier>, StoreError> {
    let Some(request) = request else { return Ok(None) };
    let query = Query {
        table: Some(Table::Generations),
        conversation: Some(conversation.clone()),
        request: Some(request.as_str().to_owned()),
        limit: 1,
        ..Query::default()
    };
    let listed = shared.store.list(query).await?;
    let found = listed.documents.first().map(to_generation).transpose()?;
    Ok(found.map(|found| Earlier { generation: found.id, message: found.message_id, digest: found.digest }))
}

async fn is_taken(
    shared: &Shared,
    conversation: &ConversationId,
    answer_id: Option<&MessageId>,
) -> Result<bool, StoreError> {
    let Some(id) = answer_id else { return Ok(false) };
    Ok(shared.store.get(Table::Messages, &message_key(conversation, id)).await?.is_some())
}

async fn prompt_is_gone(
    shared: &Shared,
    state: &Conversation,
    failed: &GenerationId,
) -> Result<bool, StoreError> {
    let prompt_seq = state.generation(failed).and_then(|failed| failed.prompt_seq);
    let Some(seq) = prompt_seq else { return Ok(false) };
    let found = shared.store.read(&state.id, Seq(seq.0.saturating_sub(1)), 1).await?;
    Ok(found.first().is_none_or(|record| record.seq != seq))
}
