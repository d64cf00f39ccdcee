//! API keys never leak (I14). Every other test checks this too when its server has stopped.

use outlast_proof::canary;

use crate::both;

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_key_that_the_upstream_repeats_is_in_no_response_file_or_log_line() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(5).fault("fail=400");
    let started = api.play(&script).await?;
    let document = api.until_status(&started.generation, &["error"]).await?;
    let told = document["errorMessage"].as_str().unwrap_or_default();
    // The key was sent, the upstream repeated it, and it was removed.
    assert_eq!(told, "upstream responded with 400: scripted failure for Bearer [key]");
    assert!(!document.to_string().contains(canary::KEY));
    Ok(())
}
