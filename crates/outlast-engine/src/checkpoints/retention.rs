//! Removing checkpoints, and the blobs that no checkpoint needs any more.
//!
//! Safe at any moment of a crash: records go first, then blobs that no record needs. What a crash leaves
//! behind is a blob too many, never one too few, and the next run removes it.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use object_store::path::Path;
use outlast_core::Timestamp;
use outlast_store::fault;
use tokio::sync::RwLockWriteGuard;

use super::blobs::Area;
use super::gates::Sweep;
use super::hash::ContentHash;
use super::limits::Limits;
use super::load::load_listing;
use super::tree::{ListingRef, Node};
use super::{CheckpointError, Keep, Swept};

/// Whatever is younger stays. An owner that lost its conversation and does not know it yet may run this with an
/// old list, while the new owner takes checkpoints.
const GRACE: Duration = Duration::from_secs(60 * 60);
/// Objects that are removed at once: well below a second in a folder, one request to a bucket. A checkpoint waits for no
/// more than that.
const STEP: usize = 1_000;

pub(super) async fn keep(
    area: &Area,
    limits: &Limits,
    sweep: &Sweep<'_>,
    request: &Keep<'_>,
) -> Result<Swept, CheckpointError> {
    let mut swept = Swept { unfinished: true, ..Swept::default() };
    let Some(dropped) = request.stop.run_until_cancelled(dropped(area, request)).await else {
        return Ok(swept);
    };
    for dropped in dropped?.chunks(STEP) {
        let Some(_alone) = step(sweep, request) else { return Ok(swept) };
        swept.checkpoints += dropped.len() as u64;
        area.delete(dropped.to_vec()).await?;
    }
    fault::point("keep.dropped");

    let Some(needed) = request.stop.run_until_cancelled(needed(area, limits, request)).await else {
        return Ok(swept);
    };
    let needed = needed?;
    fault::point("keep.marked");

    let mut blobs = area.list(&area.blobs()).try_chunks(STEP);
    while let Some(blobs) = blobs.try_next().await.map_err(|error| error.1)? {
        let Some(_alone) = step(sweep, request) else { return Ok(swept) };
        let mut unneeded = Vec::new();
        for blob in blobs {
            let hash = blob.location.filename().and_then(ContentHash::parse);
            if !hash.is_some_and(|hash| needed.contains(&hash)) && is_old(&blob, request.now) {
                swept.blobs += 1;
                swept.bytes += blob.size;
                unneeded.push(blob.location);
            }
        }
        area.delete(unneeded).await?;
        fault::point("keep.swept");
    }
    Ok(Swept { unfinished: false, ..swept })
}

fn step<'a>(sweep: &'a Sweep<'_>, request: &Keep<'_>) -> Option<RwLockWriteGuard<'a, ()>> {
    sweep.step().filter(|_| !request.stop.is_cancelled())
}

/// The records that go.
async fn dropped(area: &Area, request: &Keep<'_>) -> Result<Vec<Path>, CheckpointError> {
    let kept = kept(area, request);
    let goes = |record: &ObjectMeta| !kept.contains(&record.location) && is_old(record, request.now);
    let records = area.list_records().await?.into_iter().filter(goes);
    Ok(records.map(|record| record.location).collect())
}

/// The blobs of all remaining checkpoints.
async fn needed(
    area: &Area,
    limits: &Limits,
    request: &Keep<'_>,
) -> Result<HashSet<ContentHash>, CheckpointError> {
    let (kept, mut needed) = (kept(area, request), HashSet::new());
    for record in area.list_records().await? {
        match mark(area, limits, &record.location, &mut needed).await {
            // Half of a checkpoint that was given up, or removed since: nobody can restore it.
            Err(
                CheckpointError::Damaged(_) | CheckpointError::Storage(object_store::Error::NotFound { .. }),
            ) if !kept.contains(&record.location) => {}
            marked => marked?,
        }
    }
    Ok(needed)
}

fn kept(area: &Area, request: &Keep<'_>) -> HashSet<Path> {
    request.ids.iter().map(|id| area.record(id)).collect()
}

fn is_old(object: &ObjectMeta, now: Timestamp) -> bool {
    now.since(Timestamp(object.last_modified.timestamp_millis())) > GRACE
}

/// Adds every blob of a checkpoint to `needed`. Listings that are in there already are not read again.
async fn mark(
    area: &Area,
    limits: &Limits,
    record: &Path,
    needed: &mut HashSet<ContentHash>,
) -> Result<(), CheckpointError> {
    let root = area.read_record_at(record).await?.root;
    let mut listings: Vec<(ListingRef, usize)> = vec![(root, 0)];
    while let Some((listing, depth)) = listings.pop() {
        if !needed.insert(listing.hash) {
            continue;
        }
        for entry in load_listing(area, limits, listing, depth).await? {
            match entry.node {
                Node::Directory(below) => listings.push((below, depth + 1)),
                Node::File(file) => needed.extend(file.blobs().map(|blob| blob.hash)),
                Node::Link { .. } => {}
            }
        }
    }
    Ok(())
}

/// Whether everything is gone; otherwise, call it again.
pub(super) async fn forget(area: &Area) -> Result<bool, CheckpointError> {
    let everything = area.everything();
    let step: Vec<Path> =
        area.list(&everything).take(STEP).map_ok(|object| object.location).try_collect().await?;
    let done = step.len() < STEP;
    area.delete(step).await?;
    if done {
        area.remove_remains().await?;
    }
    Ok(done)
}
