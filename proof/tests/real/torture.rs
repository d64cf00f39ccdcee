//! A short run of the torture test, so that it works when somebody needs it.

use outlast_proof::torture::{Plan, torture};

#[tokio::test(flavor = "multi_thread")]
async fn x7_five_rounds_of_torture_find_nothing() -> anyhow::Result<()> {
    let plan = Plan { rounds: 5, seed: 14, generations: 20, readers: 60, program: None, faults: false };
    let tally = torture(&plan, &mut |line| eprintln!("{line}")).await?;
    tally.findings.clean()?;
    assert_eq!(tally.rounds, 5);
    assert!(tally.deaths >= 5 && tally.findings.generations >= 100 && tally.findings.reconnects > 100);
    Ok(())
}
