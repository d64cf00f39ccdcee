//! A short run of the torture test, so that it works when somebody needs it.

use outlast_proof::instances;
use outlast_proof::torture::{Plan, torture};

#[tokio::test(flavor = "multi_thread")]
async fn x7_five_rounds_of_torture_find_nothing() -> anyhow::Result<()> {
    let plan = Plan {
        rounds: 5,
        seed: 14,
        generations: 20,
        readers: 60,
        program: None,
        faults: false,
        agents: false,
    };
    let tally = torture(&plan, &mut |line| eprintln!("{line}")).await?;
    tally.findings.clean()?;
    assert_eq!(tally.rounds, 5);
    assert!(tally.deaths >= 5 && tally.findings.generations >= 100 && tally.findings.reconnects > 100);
    Ok(())
}

/// Everything that can happen to an instance or to its database, once.
#[tokio::test(flavor = "multi_thread")]
async fn x7_x2_three_instances_survive_one_of_each_blow() -> anyhow::Result<()> {
    let plan = instances::Plan { generations: 8, readers: 16, ..instances::Plan::mixed(1, 15) };
    let tally = instances::torture(&plan, &mut |line| eprintln!("{line}")).await?;
    eprintln!("{}\n{tally}", instances::HEADS);
    tally.clean()?;
    assert_eq!(tally.sum().rounds, instances::Blow::ALL.len() as u64);
    Ok(())
}
