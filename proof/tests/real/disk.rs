//! A full disk (I17), on a small separate file system.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::server::{Options, Server};
use outlast_proof::upstream::Upstream;
use outlast_proof::wait::{LONG, until};
use serde_json::json;

use crate::soon;

/// A file system in memory of a few MiB. Unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None`, with the reason on stderr, if mounting is not allowed.
    fn mount() -> anyhow::Result<Option<SmallDisk>> {
        let folder = tempfile::TempDir::new()?;
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Some(SmallDisk(folder))),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                eprintln!("SKIPPED i17: a small file system cannot be mounted here: {why}");
                Ok(None)
            }
            Err(error) => {
                eprintln!("SKIPPED i17: there is no mount: {error}");
                Ok(None)
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn ballast(&self) -> std::path::PathBuf {
        self.0.path().join("ballast")
    }

    /// Uses up all space.
    fn fill(&self) -> anyhow::Result<()> {
        let mut file = std::fs::File::create(self.ballast())?;
        let block = vec![7_u8; 4096];
        loop {
            match std::io::Write::write_all(&mut file, &block) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn free(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.ballast())?)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.0.path()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} could not be unmounted", self.0.path().display());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i17_a_full_disk_acknowledges_nothing_and_reads_continue() -> anyhow::Result<()> {
    let Some(disk) = SmallDisk::mount()? else { return Ok(()) };
    let upstream = Upstream::start().await?;
    let mut server = Server::start(Options::with(&upstream).data(&disk.path().join("data"))).await?;
    let api = server.api().clone();
    let before = api.play(&upstream.script(20)).await?;
    api.until_ended(&before.generation).await?;
    let running = api.play(&upstream.script(400).rate(200)).await?;
    let watching = Reader::of_generation(&api, &running.generation).record(soon());
    let full = async {
        api.until_chunks(&running.generation, 20).await?;
        disk.fill()?;
        let body = json!({"content": upstream.script(5).to_string(), "requestId": "full"});
        // The write-ahead log may have some space left: fill it until the store refuses.
        let refused = until("a refusal", LONG, async || {
            let start = json!({"content": "x ".repeat(20_000)});
            let answer = api.post("/v1/generations", &start).await?;
            Ok((answer.status != 202).then_some(answer))
        })
        .await?;
        let refused = refused.problem(503, "store_unavailable")?;
        assert!(refused.retry_after.is_some(), "a refusal says when to retry");
        let named = api.post("/v1/generations", &body).await?;
        named.problem(503, "store_unavailable")?;
        // Reads still work, and the process is running.
        Case::completed(&before, 20, Vec::new()).check(&api).await?.clean()?;
        api.get("/healthz").await?.expect(200)?;
        disk.free()?;
        let started = until("recovering", LONG, async || {
            let answer = api.post("/v1/generations", &body).await?;
            Ok((answer.status == 202).then_some(answer))
        })
        .await?;
        started.started()
    };
    let (recording, started) = tokio::join!(watching, full);
    let started = started?;
    api.until_ended(&started.generation).await?;
    Case::completed(&started, 5, Vec::new()).check(&api).await?.clean()?;
    // The running answer continued when there was space again, without gaps or duplicates.
    Case::completed(&running, 400, vec![recording]).check(&api).await?.clean()?;
    server.crash().await?;
    Case::completed(&running, 400, Vec::new()).check(&api).await?.clean()?;
    bounded_stop(&mut server).await
}

async fn bounded_stop(server: &mut Server) -> anyhow::Result<()> {
    server.terminate()?;
    server.ended(Duration::from_secs(20)).await?;
    Ok(())
}
