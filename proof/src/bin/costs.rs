//! `outlast-costs`: what runs with tools and parked questions cost, through the real server.

#![allow(clippy::print_stdout, reason = "a command-line tool prints its results")]

use clap::Parser;
use outlast_proof::agent::{allowed, costs, parked};
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;

/// Measures runs with tools: rounds, agents side by side, and questions that wait for a person.
#[derive(Parser)]
struct Arguments {
    /// How many questions wait in one store.
    #[arg(long, default_value_t = 100_000)]
    parked: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let upstream = Upstream::start().await?;
    let server = Server::start(allowed(&upstream)).await?;
    let costs::Costs { sandbox, round, side_by_side } = costs::measure(&upstream, &server).await?;
    drop(server);
    println!("a new sandbox, until its first tool begins: {sandbox:?}");
    println!("a round with `bash true`, beside the model's time (at most 40 ms): {round}");
    println!("50 agents side by side, ten rounds each, a whole run: {side_by_side}");
    let parked = parked::measure(&upstream, &Options::with(&upstream), arguments.parked).await?;
    let parked::Parked { questions, ready, ready_without, bytes, bytes_without, owners, decided } = parked;
    println!("{questions} questions parked: ready in {ready:?} (at most 2 s; without any {ready_without:?})");
    println!(
        "  {:.1} MB more memory than without (at most 50 MB)",
        bytes.saturating_sub(bytes_without) as f64 / 1e6
    );
    println!("  {owners} of them have a task (at most 0)");
    println!("  one of them approved, until its tool has ended (at most 1 s): {decided:?}");
    Ok(())
}
