//! Keys stay where they belong (I14). Every other test looks for them too, when its server is gone.

use outlast_proof::canary;

use crate::both;

#[tokio::test(flavor = "multi_thread")]
async fn i14_a_key_that_the_upstream_says_back_is_in_no_answer_file_or_line() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let script = upstream.script(5).fault("fail=400");
    let started = api.play(&script).await?;
    let document = api.until_status(&started.generation, &["error"]).await?;
    let told = document["errorMessage"].as_str().unwrap_or_default();
    // It was sent, it came back, and it was taken out.
    assert_eq!(told, "upstream responded with 400: scripted failure for Bearer [key]");
    assert!(!document.to_string().contains(canary::KEY));
    Ok(())
}
