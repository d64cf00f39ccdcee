//! A short version of the table that `make torture` prints in full: the server dies at each point of a run with tools.

use outlast_proof::agent::deaths::{Executioner, Table, Visits, points};
use outlast_proof::upstream::Upstream;

/// Servers at a time.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn i7_i15_s8_x8_a_server_that_dies_anywhere_repeats_no_tool_and_loses_no_output() -> anyhow::Result<()>
{
    let upstream = Upstream::start().await?;
    let executioner = Executioner::new(&upstream, None).await?;
    let mut table = Table::default();
    for point in points() {
        let row = executioner.at(point, Visits::Only(&[1, 3]), AT_ONCE).await?;
        assert!(row.deaths > 0, "{point} was not reached; is the server built with fault points?");
        table.rows.push(row);
    }
    table.rows.push(executioner.at("record.durable", Visits::Only(&[20, 30, 38, 44]), AT_ONCE).await?);
    eprintln!("{table}");
    table.clean()
}

#[tokio::test(flavor = "multi_thread")]
async fn i7_i15_a_server_that_dies_again_while_it_recovers_repeats_no_tool() -> anyhow::Result<()> {
    let upstream = Upstream::start().await?;
    let executioner = Executioner::new(&upstream, None).await?;
    let mut table = Table { rows: executioner.recovering(Visits::Only(&[1]), AT_ONCE).await? };
    table.rows.push(executioner.again_and_again().await?);
    eprintln!("{table}");
    table.clean()
}
