//! How large a workspace may be to be checkpointed, and a checkpoint to be restored.

/// Checked both when a checkpoint is taken and when it is restored: a checkpoint is bytes from a disk or a
/// bucket, and what was written within the limits need not be what is read.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Files, links and directories together.
    pub entries: usize,
    /// The sizes of all files together.
    pub bytes: u64,
    /// The size of one file.
    pub file_bytes: u64,
    /// Of a path below the workspace.
    pub path_bytes: usize,
    /// Directories within directories.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries: 200_000,           // a large `node_modules` has 50,000
            bytes: 8 << 30,             // what a person would still wait for when it is restored
            file_bytes: 4 << 30,        // 1,024 chunks: its entry in a listing stays below 128 KiB
            path_bytes: 4_096 - 1 - 64, // Linux's PATH_MAX, with room for the names of the sandbox's files
            depth: 128,                 // deeper trees are mistakes, such as a directory copied into itself
        }
    }
}

/// Larger files are stored in chunks of this size, so that nothing larger is ever held in memory, and a log
/// that grows costs only its new chunks.
pub(super) const CHUNK_BYTES: usize = 4 << 20;
/// The maximum size of one directory's listing before compression: 100,000 names of ordinary length.
pub(super) const LISTING_BYTES_MAX: u64 = 32 << 20;
/// The maximum size of a checkpoint's record, which holds paths of changed files and git's output, both shortened.
pub(super) const RECORD_BYTES_MAX: u64 = 1 << 20;
/// Linux's NAME_MAX.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// Concurrent transfers for one checkpoint: enough to overlap disk or network waits, and at most 64 MiB of chunks
/// together.
pub(super) const TRANSFERS_MAX: usize = 8;
