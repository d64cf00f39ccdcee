//! A process that uses sandboxes: it can be killed while it does, and it measures what they cost.

mod costs;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use bytes::Bytes;
use outlast_core::{ExecutionId, SandboxId};
use outlast_engine::sandbox::{Execution, Local, SandboxSettings, Sandboxes};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    if command == "tool" {
        return outlast_engine::tools::inside::main(&words.next().unwrap_or_default());
    }
    if command == "inside" {
        return outlast_engine::sandbox::inside::main(&words.next().unwrap_or_default());
    }
    match serve(&command, words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn serve(command: &str, words: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    match command {
        "start" => start(words).await,
        "kill" => kill(words).await,
        "costs" => costs::print().await,
        _ => Err(format!("unknown command {command:?}").into()),
    }
}

/// `start ROOT SANDBOX EXECUTION PROGRAM…`: what a server does, up to the moment in which it dies.
async fn start(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let mut word = || words.next().ok_or("start ROOT SANDBOX EXECUTION PROGRAM…");
    let (root, id, execution) = (word()?, SandboxId::from(word()?), ExecutionId::from(word()?));
    let local =
        Local::open(&PathBuf::from(root), SandboxSettings::default(), std::env::current_exe()?).await?;
    let execution = Execution {
        id: execution,
        program: words.collect(),
        stdin: Bytes::new(),
        env: BTreeMap::new(),
        deadline: None,
    };
    local.start(&id, &execution).await?;
    Ok(())
}

/// `kill ROOT SANDBOX`: cleans up after a test.
async fn kill(mut words: impl Iterator<Item = String>) -> Result<(), Box<dyn std::error::Error>> {
    let mut word = || words.next().ok_or("kill ROOT SANDBOX");
    let (root, id) = (word()?, SandboxId::from(word()?));
    let local =
        Local::open(&PathBuf::from(root), SandboxSettings::default(), std::env::current_exe()?).await?;
    Ok(local.kill(&id).await?)
}
