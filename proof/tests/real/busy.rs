//! A second message while a generation is running (G14).

use outlast_proof::api::{Answer, Api};
use outlast_proof::check::{Case, Expected};
use outlast_proof::script::Script;
use outlast_proof::stored::Stored;
use serde_json::{Value, json};

use crate::both;

async fn send(api: &Api, conversation: &str, script: &Script, when_busy: Value) -> anyhow::Result<Answer> {
    let body = json!({"content": script.to_string(), "conversationId": conversation, "whenBusy": when_busy});
    api.post("/v1/generations", &body).await
}

fn expected(started: &outlast_proof::api::Started, tokens: u64, end: &'static str) -> Expected {
    let (generation, message) = (started.generation.clone(), started.message.clone());
    Expected { generation, message, tokens, ends: vec![end] }
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_reject_is_the_default_and_changes_nothing() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let first = api.play(&upstream.script(60).rate(100)).await?;
    let (conversation, second) = (first.conversation.clone(), upstream.script(5));
    let body = json!({"content": second.to_string(), "conversationId": conversation});
    let refused = api.post("/v1/generations", &body).await?.problem(409, "conversation_busy")?;
    assert_eq!(refused.body["generationId"], first.generation.as_str());
    send(api, &conversation, &second, json!("reject")).await?.problem(409, "conversation_busy")?;
    api.until_ended(&first.generation).await?;
    Case::completed(&first, 60, Vec::new()).check(api).await?.clean()?;
    assert_eq!(upstream.calls(&second).await?.calls, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_queue_answers_in_order_one_at_a_time_even_across_a_kill() -> anyhow::Result<()> {
    let (mut server, upstream) = both().await?;
    let first = server.api().play(&upstream.script(40).rate(100)).await?;
    let mut case = Case {
        conversation: first.conversation.clone(),
        expected: vec![expected(&first, 40, "completed")],
        recordings: Vec::new(),
    };
    for tokens in [5, 6, 7] {
        let script = upstream.script(tokens).rate(100);
        let queued = send(server.api(), &first.conversation, &script, json!("queue")).await?;
        assert_eq!(queued.body["status"], "queued");
        case.expected.push(expected(&queued.started()?, tokens, "completed"));
    }
    server.api().until_chunks(&first.generation, 10).await?;
    server.crash().await?;
    for expected in &case.expected {
        server.api().until_ended(&expected.generation).await?;
    }
    let stored = Stored::read(server.api(), &first.conversation).await?;
    let ends: Vec<_> =
        stored.log.iter().filter(|frame| frame.is_end()).filter_map(|f| f.generation.clone()).collect();
    let order: Vec<_> = case.expected.iter().map(|expected| expected.generation.clone()).collect();
    assert_eq!(ends, order);
    case.check(server.api()).await?.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn g14_interrupt_cancels_the_running_generation_and_answers_the_new_message() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let long = upstream.script(10_000).rate(100);
    let first = api.play(&long).await?;
    api.until_chunks(&first.generation, 10).await?;
    let waiting = send(api, &first.conversation, &upstream.script(5), json!("queue")).await?.started()?;
    let script = upstream.script(12);
    let second = send(api, &first.conversation, &script, json!("interrupt")).await?.started()?;
    api.until_ended(&second.generation).await?;
    assert_eq!(api.generation(&first.generation).await?["endReason"], "superseded");
    let calls = upstream.calls(&long).await?;
    assert_eq!((calls.live, calls.closed_early), (0, 1));
    let case = Case {
        conversation: first.conversation.clone(),
        expected: vec![
            expected(&first, 10_000, "cancelled"),
            expected(&waiting, 5, "cancelled"),
            expected(&second, 12, "completed"),
        ],
        recordings: Vec::new(),
    };
    case.check(api).await?.clean()
}
