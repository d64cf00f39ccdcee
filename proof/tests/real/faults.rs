//! Every fault point: the process dies there under load, is restarted, and nothing acknowledged is lost.

use outlast_proof::faults::{Reach, die_at, die_recovering, points};
use outlast_proof::server::Options;
use outlast_proof::upstream::Upstream;

/// Lets the server die at every point of one family, on the first visit and on a later one.
async fn family(prefix: &str) -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let mut random = fastrand::Rng::with_seed(13);
    let family: Vec<_> = points().into_iter().filter(|(point, _)| point.starts_with(prefix)).collect();
    assert!(!family.is_empty(), "no point starts with {prefix}");
    for (point, reach) in family {
        for hit in reach.hits() {
            let fault = format!("{point}:{hit}");
            let outcome = die_at(&fault, reach, &upstream, Options::with(&upstream), &mut random).await?;
            let outcome = outcome.ok_or_else(|| {
                anyhow::anyhow!("{fault} was not reached; is the server built with fault points?")
            })?;
            outcome.findings.clean().map_err(|error| error.context(fault))?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_opening() -> anyhow::Result<()> {
    family("open.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_appending() -> anyhow::Result<()> {
    family("append.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_settling() -> anyhow::Result<()> {
    family("settle.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_truncating() -> anyhow::Result<()> {
    family("truncate.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_recovering() -> anyhow::Result<()> {
    family("recover.").await
}

#[tokio::test(flavor = "multi_thread")]
async fn i1_i10_x7_dies_at_every_point_of_recording() -> anyhow::Result<()> {
    family("record.").await
}

#[test]
fn every_fault_point_belongs_to_a_family_that_is_tested() {
    let families = ["open.", "append.", "settle.", "truncate.", "recover.", "record."];
    for (point, reach) in points() {
        let tested = families.iter().any(|family| point.starts_with(family));
        assert!(tested || matches!(reach, Reach::Never(_)), "no test covers {point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i15_a_recovery_interrupted_up_to_five_times_has_the_same_result() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let mut random = fastrand::Rng::with_seed(15);
    for times in [1, 5] {
        let outcome = die_recovering(times, &upstream, Options::with(&upstream), &mut random).await?;
        assert_eq!(outcome.deaths, 1 + times as u64);
        outcome.findings.clean()?;
    }
    Ok(())
}
