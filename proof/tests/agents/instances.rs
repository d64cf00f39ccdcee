//! Runs with tools on several instances.

use outlast_proof::agent::deaths::{Executioner, Table};
use outlast_proof::cluster::Database;
use outlast_proof::upstream::Upstream;

/// Around the start of a program, while one writes, at a checkpoint, and around a decision that came by mail.
const FAULTS: [&str; 6] = [
    "record.durable:20",
    "record.durable:30",
    "record.durable:38",
    "sandbox.spawned:3",
    "work.done:4",
    "take.stored:2",
];
/// Runs at a time, each with two servers.
const AT_ONCE: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn i7_i19_x2_x8_an_instance_that_takes_over_repeats_no_tool_and_loses_no_output() -> anyhow::Result<()>
{
    let (upstream, database) = tokio::try_join!(Upstream::start(), Database::start())?;
    let executioner = Executioner::new(&upstream, None).await?;
    let table = Table { rows: vec![executioner.taken_over(&database, &FAULTS, AT_ONCE).await?] };
    eprintln!("{table}");
    assert!(table.sum().deaths > 0, "no server died; is it built with fault points?");
    table.clean()
}

/// Around the start of each sub-agent, while they work, around their questions, and when their results come back.
const FAMILY_FAULTS: [&str; 6] = [
    "record.durable:8",
    "record.durable:14",
    "record.durable:22",
    "record.durable:30",
    "sandbox.spawned:1",
    "record.visible:36",
];

#[tokio::test(flavor = "multi_thread")]
async fn p4_i7_i19_x2_an_instance_that_takes_over_sub_agents_and_their_parent_repeats_nothing()
-> anyhow::Result<()> {
    let (upstream, database) = tokio::try_join!(Upstream::start(), Database::start())?;
    let executioner = Executioner::of_family(&upstream, None).await?;
    let table = Table { rows: vec![executioner.taken_over(&database, &FAMILY_FAULTS, AT_ONCE).await?] };
    eprintln!("{table}");
    assert!(table.sum().deaths > 0, "no server died; is it built with fault points?");
    table.clean()
}
