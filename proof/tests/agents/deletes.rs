//! A deleted conversation leaves neither files nor processes, whenever the server dies.

use std::fs;
use std::path::Path;

use outlast_proof::agent::deaths::nothing_runs;
use outlast_proof::agent::{Agent, allowed};
use outlast_proof::server::Server;
use outlast_proof::stored::Stored;
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use reqwest::Method;
use serde_json::json;

/// What is left on disk of any conversation.
fn left(data: &Path) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    for folder in ["sandboxes", "sandboxes/.killed", "sandboxes/.running", "checkpoints"] {
        for entry in fs::read_dir(data.join(folder))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_ours = name.starts_with("sbx_") || name.starts_with("conv_");
            left.extend(is_ours.then(|| format!("{folder}/{name}")));
        }
    }
    Ok(left)
}

#[tokio::test(flavor = "multi_thread")]
async fn i10_i16_a_deletion_is_finished_whenever_the_server_dies() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let points = outlast_engine::FAULT_POINTS.iter().filter(|point| point.starts_with("remove."));
    for point in points {
        let mut server = Server::start_with_fault(allowed(&upstream), &format!("{point}:1")).await?;
        let api = server.api().clone();
        let stays = json!({"command": "echo kept > file; sleep 3600", "background": true});
        let agent = Agent::new(&upstream).asks("", &[("bash", stays)]).says("It runs.");
        let started = agent.start(&api).await?;
        let document = api.until_ended(&started.generation).await?;
        assert_eq!(document["status"], "completed", "{document}");
        // The last thing that the owner does: while something is under way, part of the removal is left for later.
        until("the notification about the end", LONG, async || {
            let stored = Stored::read(&api, &started.conversation).await?;
            Ok(stored.log.iter().any(|event| event.kind == "notification.made").then_some(()))
        })
        .await?;
        assert_eq!(left(&server.data())?.len(), 3, "a sandbox in which something runs, and a checkpoint");

        let path = format!("/v1/conversations/{}", started.conversation);
        let deleted = api.send(api.request(Method::DELETE, &path)).await;
        assert!(deleted.is_err(), "{point}: it dies before it replies");
        server.ended(LONG).await?;
        server.restart().await?;
        until("the rest of the deletion", LONG, async || {
            let is_gone = api.get(&path).await?.status == 404;
            Ok((is_gone && left(&server.data())?.is_empty()).then_some(()))
        })
        .await?;
        nothing_runs(&server).await?;
    }
    Ok(())
}
