//! Questions that wait for a person cost a row, no task and hardly any memory.

use outlast_proof::agent::parked::{Parked, measure};
use outlast_proof::server::Options;
use outlast_proof::upstream::Upstream;

/// `outlast-costs` does it with 100,000.
const QUESTIONS: usize = 5_000;
/// Of 50 MB for 100,000 questions, and what one start of a server differs from another.
const BYTES_EACH: u64 = 500;
const SLACK: u64 = 8 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn g6_i18_thousands_of_parked_questions_cost_no_memory_and_one_can_be_approved() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let parked = measure(&upstream, &Options::with(&upstream), QUESTIONS).await?;
    eprintln!("{parked:?}");
    let Parked { bytes, bytes_without, owners, .. } = parked;
    assert_eq!(owners, 0, "nobody works for a question that waits");
    let limit = bytes_without + BYTES_EACH * QUESTIONS as u64 + SLACK;
    assert!(bytes < limit, "{bytes} bytes with, {bytes_without} bytes without");
    Ok(())
}
