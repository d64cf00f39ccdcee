//! Events are removed after a while; messages stay (G13).

use outlast_proof::sse::Cutter;
use outlast_proof::wait::{LONG, until};

use crate::{both_with, titled};

#[tokio::test(flavor = "multi_thread")]
async fn g13_old_events_go_messages_stay_and_a_reader_gets_a_snapshot() -> anyhow::Result<()> {
    let (mut server, upstream) = both_with("[retention]\ncompleted = \"1s\"\nerror = \"1h\"").await?;
    let api = server.api().clone();
    let done = api.play_in(&titled(&server).await?, &upstream.script(30)).await?;
    api.until_ended(&done.generation).await?;
    let failed = api.play(&upstream.script(9).fault("fail=400")).await?;
    api.until_ended(&failed.generation).await?;
    let before = api.view(&done.conversation).await?;
    let events = format!("/v1/generations/{}/events", done.generation);
    // Old events are looked for at every start and then every hour.
    until("removing old events", LONG, async || {
        server.crash().await?;
        let page = api.get(&format!("{events}?format=json")).await?;
        let gone = page.status != 200 || page.body["data"].as_array().is_none_or(Vec::is_empty);
        Ok(gone.then_some(()))
    })
    .await?;

    let after = api.view(&done.conversation).await?;
    assert_eq!(after, before, "the messages stay for ever");
    assert_eq!(api.generation(&done.generation).await?["status"], "completed");
    for position in ["", "?after=2", "?after=5"] {
        let request = api.request(reqwest::Method::GET, &format!("{events}{position}")).timeout(LONG);
        let body = request.send().await?.error_for_status()?.bytes().await?; // ends by itself
        let mut cutter = Cutter::default();
        cutter.push(&body);
        let frame = cutter.cut()?.ok_or_else(|| anyhow::anyhow!("no event {position:?}"))?;
        assert_eq!(frame.kind, "snapshot", "{position:?}");
        assert_eq!(frame.event()?["payload"]["messages"], before["messages"]);
        assert_eq!(cutter.cut()?, None, "and that is all");
    }
    let kept = api.get(&format!("/v1/generations/{}/events?format=json", failed.generation)).await?;
    assert!(kept.body["data"].as_array().is_some_and(|events| !events.is_empty()), "errors are kept longer");

    // The conversation goes on as if nothing had been removed.
    let next = api.play_in(&done.conversation, &upstream.script(5)).await?;
    let document = api.until_ended(&next.generation).await?;
    assert_eq!(document["firstSeq"].as_u64(), before["lastSeq"].as_u64().map(|seq| seq + 1));
    let view = api.view(&done.conversation).await?;
    assert_eq!(view["messages"].as_array().map(Vec::len), Some(4));
    Ok(())
}
