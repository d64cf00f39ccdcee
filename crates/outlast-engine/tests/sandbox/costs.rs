//! What sandboxes cost: `cargo run --release -p outlast-engine --bin sandbox-helper -- costs`.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use jiff::Timestamp;
use outlast_core::SandboxId;
use outlast_engine::sandbox::{Execution, Local, Offsets, Outcome, SandboxSettings, Sandboxes};
use outlast_engine::tools::{Call, Timeouts, Tool};
use serde_json::json;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const TIMES: usize = 100;
const SIDE_BY_SIDE: usize = 50;

pub(crate) async fn print() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("outlast-costs-{}", std::process::id()));
    let began = Instant::now();
    let local = Local::open(&folder, SandboxSettings::default(), std::env::current_exe()?).await?;
    row("open the provider, with its probe", &mut [began.elapsed()]);
    let id = SandboxId::from(format!("costs-{}", std::process::id()));
    let result = measure(&local, &id).await;
    local.kill(&id).await?;
    std::fs::remove_dir_all(folder)?;
    result
}

async fn measure(local: &Local, id: &SandboxId) -> Result<()> {
    let began = Instant::now();
    local.create(id, "test").await?;
    row("create a sandbox", &mut [began.elapsed()]);
    let mut times = Vec::new();
    for number in 0..TIMES {
        times.push(run(local, id, &program(&format!("true-{number}"), "true")).await?);
    }
    row("`bash true`, from start to the exit code", &mut times);
    let mut times = Vec::new();
    for number in 0..TIMES {
        let input = json!({"path": format!("file-{number}"), "content": "some text"});
        let Call::Run(run_) = Tool::WriteFile.call(&input)? else { continue };
        let minute = Duration::from_secs(60);
        let timeouts = Timeouts { default: minute, longest: minute };
        let execution = run_.execution(format!("write-{number}").into(), Timestamp::now(), timeouts);
        times.push(run(local, id, &execution).await?);
    }
    row("`write_file`", &mut times);
    let began = Instant::now();
    let together = (0..SIDE_BY_SIDE)
        .map(async |number| run(local, id, &program(&format!("many-{number}"), "true")).await);
    let together: Vec<Result<Duration>> = futures_util::future::join_all(together).await;
    let all = began.elapsed();
    let mut times = together.into_iter().collect::<Result<Vec<Duration>>>()?;
    row(&format!("`bash true`, {SIDE_BY_SIDE} at once, each"), &mut times);
    row(&format!("`bash true`, {SIDE_BY_SIDE} at once, all"), &mut [all]);
    pausing(local, id).await
}

async fn pausing(local: &Local, id: &SandboxId) -> Result<()> {
    local.start(id, &program("counter", "while :; do echo tick; sleep 0.01; done")).await?;
    let (mut freeze, mut thaw) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        let began = Instant::now();
        local.pause(id).await?;
        freeze.push(began.elapsed());
        let began = Instant::now();
        local.resume(id).await?;
        thaw.push(began.elapsed());
    }
    row("freeze a sandbox", &mut freeze);
    row("thaw a sandbox", &mut thaw);
    let began = Instant::now();
    local.stop(id, &"counter".into()).await?;
    row("stop an execution", &mut [began.elapsed()]);
    Ok(())
}

async fn run(local: &Local, id: &SandboxId, execution: &Execution) -> Result<Duration> {
    let began = Instant::now();
    local.start(id, execution).await?;
    let beyond = Offsets { stdout: u64::MAX, stderr: u64::MAX };
    let ended = local.wait(id, &execution.id, beyond).await?;
    match ended.outcome {
        Some(Outcome::Exited { code: 0 }) => Ok(began.elapsed()),
        other => Err(format!("{} ended with {other:?}", execution.id).into()),
    }
}

fn program(id: &str, script: &str) -> Execution {
    Execution {
        id: id.into(),
        program: ["/bin/bash", "-c", script].map(str::to_owned).into(),
        stdin: Bytes::new(),
        env: BTreeMap::new(),
        deadline: None,
    }
}

fn row(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1000.0;
    eprintln!("{what:45} median {:7.1} ms   p95 {:7.1} ms   ({} times)", at(50), at(95), times.len());
}
