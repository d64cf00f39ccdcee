//! `outlast doctor`: tries everything that a server needs, and says how to fix what does not work.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context as _, bail};
use outlast_engine::sandbox::{E2b, Local};

use super::say;
use crate::config::{Config, SandboxKind};

/// How long an upstream may take to respond.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// What was found out about one thing.
enum Finding {
    Good(String),
    /// It works, but an operator should know.
    Note(String),
    /// It does not work; what to do.
    Bad(String),
}

/// Prints one line for each thing. An error if any of them does not work.
pub(crate) async fn run(config: &Config) -> anyhow::Result<()> {
    let (lines, broken) = examine(config).await;
    for line in lines {
        say(&line);
    }
    if broken > 0 {
        bail!("{broken} of these must be fixed before the server can start with these settings");
    }
    Ok(())
}

/// A line for each thing, and how many of them do not work.
async fn examine(config: &Config) -> (Vec<String>, usize) {
    let mut findings = vec![
        ("settings", settings(config)),
        ("data", data(config)),
        ("store", store(config).await),
        ("address", address(config)),
        ("sandbox", sandbox(config).await),
    ];
    findings.extend(upstreams(config).await);
    let broken = findings.iter().filter(|(_, finding)| matches!(finding, Finding::Bad(_))).count();
    let line = |(what, finding): (&str, Finding)| {
        let (mark, text) = match finding {
            Finding::Good(text) => ("ok  ", text),
            Finding::Note(text) => ("note", text),
            Finding::Bad(text) => ("BAD ", text),
        };
        format!("{mark}  {what:<9} {}", text.replace('\n', " "))
    };
    (findings.into_iter().map(line).collect(), broken)
}

fn settings(config: &Config) -> Finding {
    match config.check() {
        Ok(()) => Finding::Good("all values are valid".to_owned()),
        Err(error) => Finding::Bad(format!("{error:#}")),
    }
}

fn data(config: &Config) -> Finding {
    let folder = &config.server.data;
    let tried = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
    match tried {
        Ok(_) => Finding::Good(format!("{} is writable", folder.display())),
        Err(error) => Finding::Bad(format!(
            "cannot write to {}: {error}. Make it writable for the server's user, or choose another with --data",
            folder.display()
        )),
    }
}

async fn store(config: &Config) -> Finding {
    let kind = config.store.url.split(':').next().unwrap_or_default();
    if kind == "memory" {
        return Finding::Note("memory: all data is lost when the server stops".to_owned());
    }
    match outlast_store::open_items(&config.store.url, &config.server.data, config.durable()).await {
        Ok(_) => Finding::Good(format!("{kind} can be opened")),
        Err(error) => Finding::Bad(format!("{error}. Check store.url, and whether the database is running")),
    }
}

fn address(config: &Config) -> Finding {
    let listen = config.server.listen;
    match TcpListener::bind(listen) {
        Ok(_) => Finding::Good(format!("{listen} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            Finding::Note(format!("{listen} is in use, perhaps by a running server"))
        }
        Err(error) => {
            Finding::Bad(format!("cannot listen on {listen}: {error}. Choose another with --listen"))
        }
    }
}

/// Tries the walls in a folder of its own, so that a running server is not disturbed.
async fn sandbox(config: &Config) -> Finding {
    if config.sandbox.kind == SandboxKind::None {
        return Finding::Note("sandbox.kind is none: there are no tools that run in a sandbox".to_owned());
    }
    let tried = async {
        if let Some(e2b) = config.e2b()? {
            E2b::open(e2b).await?;
            return anyhow::Ok(());
        }
        let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Local::open(folder.path(), config.sandbox.settings(), program).await?;
        anyhow::Ok(())
    };
    match tried.await {
        Ok(()) if config.sandbox.kind == SandboxKind::E2b => Finding::Good("E2B accepts the key".to_owned()),
        Ok(()) => Finding::Good("programs can run in a sandbox".to_owned()),
        Err(error) if config.sandbox.kind == SandboxKind::E2b => {
            Finding::Bad(format!("cannot use E2B: {error:#}"))
        }
        Err(error) => Finding::Note(format!("there will be no tools that run in a sandbox: {error:#}")),
    }
}

/// Whether something responds at the address of each model. The key is not sent, so it is not checked.
async fn upstreams(config: &Config) -> Vec<(&'static str, Finding)> {
    let mut findings = Vec::new();
    for (name, model) in &config.models {
        let Some(address) = crate::models::address(config, name, model) else { continue };
        let found = match ask(address).await {
            Ok(status) => Finding::Good(format!("{name}: responds with {status}")),
            Err(error) => Finding::Bad(format!(
                "{name}: {error:#}. Check models.{name}.base_url, the network and this machine's proxy"
            )),
        };
        findings.push(("model", found));
    }
    if findings.is_empty() {
        findings.push(("model", Finding::Note("only the built-in demo model is configured".to_owned())));
    }
    findings
}

async fn ask(address: &str) -> anyhow::Result<u16> {
    let client =
        reqwest::Client::builder().timeout(UPSTREAM_TIMEOUT).build().context("cannot make a client")?;
    // The error without the URL, which may contain a password.
    let response = client.get(address).send().await.map_err(|error| error.without_url());
    Ok(response.context("no response")?.status().as_u16())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::config::Sources;

    /// The settings of a server with an upstream, in a folder of its own.
    fn config(data: &std::path::Path, upstream: &str, store: &str) -> Config {
        let flags = [
            format!("server.data={}", data.display()),
            "server.listen=127.0.0.1:0".to_owned(),
            "sandbox.kind=none".to_owned(),
            format!("store.url={store}"),
            "models.default.kind=openai".to_owned(),
            "models.default.model=m".to_owned(),
            format!("models.default.base_url={upstream}"),
        ];
        Config::load(Sources { flags: &flags, ..Sources::default() }).unwrap()
    }

    #[tokio::test]
    async fn x6_doctor_says_which_of_store_and_upstream_does_not_respond_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let upstream = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/v1", upstream.local_addr().unwrap());
        let responds = async {
            let (mut stream, _) = upstream.accept().await.unwrap();
            assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
            stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        };
        let config_ok = config(folder.path(), &address, "sqlite:");
        let ((lines, broken), ()) = tokio::join!(examine(&config_ok), responds);
        assert_eq!(broken, 0, "{lines:?}");
        assert!(lines.iter().any(|line| line == "ok    model     default: responds with 404"), "{lines:?}");
        drop(upstream);
        let bad = config(folder.path(), &address, "postgres://127.0.0.1:9/none");
        let (lines, broken) = examine(&bad).await;
        assert_eq!(broken, 2, "{lines:?}");
        let bad = |what: &str| lines.iter().find(|line| line.starts_with(&format!("BAD   {what}"))).unwrap();
        assert!(bad("store").contains("Check store.url"), "{lines:?}");
        assert!(bad("model").contains("Check models.default.base_url"), "{lines:?}");
    }
}
