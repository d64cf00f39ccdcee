//! The processes of `make bench`: `upstream`, `floor` and `run`. `store` measures a store alone.

#![allow(clippy::print_stdout, reason = "these are tools: what they print is what they are for")]

mod clock;
mod floor;
mod marker;
mod run;
mod script;
mod store;
mod upstream;

use std::net::SocketAddr;

use anyhow::{Context, bail};

const USAGE: &str = "usage:
  outlast-bench upstream [--listen 127.0.0.1:0]
  outlast-bench floor --upstream URL [--listen 127.0.0.1:0]
  outlast-bench run [--only a,b] [--seconds S] [--candidates floor,outlast,outlast-postgres,node] [--outlast PATH] [--check]
  outlast-bench store [--streams 200,1000] [--seconds S] [--check]";

fn main() -> anyhow::Result<()> {
    let mut arguments = Arguments(std::env::args().skip(1).collect());
    let command = arguments.command().context(USAGE)?;
    match command.as_str() {
        "upstream" => {
            let listen = arguments.listen()?;
            arguments.done()?;
            single_threaded()?.block_on(upstream::serve(listen))
        }
        "floor" => {
            let listen = arguments.listen()?;
            let upstream = arguments.value("--upstream")?.context(USAGE)?;
            arguments.done()?;
            single_threaded()?.block_on(floor::serve(listen, upstream))
        }
        "run" => {
            let options = run::Options {
                only: arguments.value("--only")?,
                candidates: arguments.value("--candidates")?,
                seconds: arguments.value("--seconds")?.map_or(Ok(10), |seconds| seconds.parse())?,
                outlast: arguments
                    .value("--outlast")?
                    .unwrap_or_else(|| "target/release/outlast".into())
                    .into(),
                check: arguments.flag("--check"),
            };
            arguments.done()?;
            run::prepare()?;
            let runtime = single_threaded()?;
            tokio::task::LocalSet::new().block_on(&runtime, run::run(options))
        }
        "store" => {
            let streams = arguments.value("--streams")?.unwrap_or_else(|| "50,200,1000".to_owned());
            let streams = streams.split(',').map(str::parse).collect::<Result<Vec<usize>, _>>()?;
            let seconds = arguments.value("--seconds")?.map_or(Ok(10), |seconds| seconds.parse())?;
            let check = arguments.flag("--check");
            arguments.done()?;
            single_threaded()?.block_on(store::run(&streams, seconds, check))
        }
        _ => bail!("{USAGE}"),
    }
}

/// Every process of the benchmark has one core, so more threads would not help.
fn single_threaded() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

/// The command line: a command, then `--name value` pairs and flags.
struct Arguments(Vec<String>);

impl Arguments {
    fn command(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    fn value(&mut self, name: &str) -> anyhow::Result<Option<String>> {
        let Some(position) = self.0.iter().position(|argument| argument == name) else { return Ok(None) };
        self.0.remove(position);
        if position >= self.0.len() {
            bail!("{name} wants a value\n{USAGE}");
        }
        Ok(Some(self.0.remove(position)))
    }

    fn flag(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|argument| argument == name);
        position.map(|position| self.0.remove(position)).is_some()
    }

    fn listen(&mut self) -> anyhow::Result<SocketAddr> {
        let listen = self.value("--listen")?.unwrap_or_else(|| "127.0.0.1:0".to_owned());
        listen.parse().with_context(|| format!("--listen {listen} is not an address"))
    }

    /// Refuses unknown arguments: a mistyped option must not silently measure something else.
    fn done(self) -> anyhow::Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(argument) => bail!("unknown argument {argument}\n{USAGE}"),
        }
    }
}
