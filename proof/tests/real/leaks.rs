//! After load, memory and files are released (I16).

use outlast_proof::check::Case;
use outlast_proof::reader::Reader;
use outlast_proof::wait::{LONG, until};
use tokio::task::JoinSet;

use crate::{both, soon};

/// Allows for caches and for memory that the allocator keeps. A leak of 200 generations and 400 readers is more.
const MEMORY_SLACK: u64 = 48 << 20;
/// Idle connections that clients keep for a while.
const FILES_SLACK: usize = 8;

#[tokio::test(flavor = "multi_thread")]
async fn i16_memory_and_files_return_to_the_baseline_after_load() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let load = |generations: usize| {
        let (api, upstream) = (server.api().clone(), &upstream);
        async move {
            for _ in 0..generations / 20 {
                let mut visits = JoinSet::new();
                for _ in 0..20 {
                    let (api, script) = (api.clone(), upstream.script(40).rate(200));
                    visits.spawn(async move {
                        let started = api.play(&script).await?;
                        let reader =
                            |seed| Reader::of_generation(&api, &started.generation).drops_after(8, seed);
                        let (one, other) = tokio::join!(reader(1).record(soon()), reader(2).record(soon()));
                        Case::completed(&started, 40, vec![one, other]).check(&api).await?.clean()
                    });
                }
                for visit in visits.join_all().await {
                    visit?;
                }
            }
            anyhow::Ok(())
        }
    };
    load(20).await?; // warm up: a one-time allocation is not a leak
    let (memory, files) = (server.resident_bytes()?, server.open_files()?);
    load(200).await?;
    let (loaded, open) = (server.resident_bytes()?, server.open_files()?);
    eprintln!(
        "{} MiB and {files} files before, {} MiB and {open} files right after",
        memory >> 20,
        loaded >> 20
    );
    until("closing files and releasing memory", LONG, async || {
        let (now, open) = (server.resident_bytes()?, server.open_files()?);
        Ok((now < memory + MEMORY_SLACK && open <= files + FILES_SLACK).then_some(()))
    })
    .await?;
    Ok(())
}
