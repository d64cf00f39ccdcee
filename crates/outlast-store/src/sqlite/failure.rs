//! What an SQLite error means for the callers that wait: certainly nothing was written, or it is unknown.

use rusqlite::{Error, ErrorCode};

use crate::{AppendError, StoreError};

/// Why a transaction was not committed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Rolled back: nothing was written, and the store still works.
    Refused(String),
    /// The disk or the file can no longer be trusted. The transaction may or may not be there after a
    /// restart: after a failed fsync, a later one that succeeds proves nothing.
    Fatal(String),
}

impl Failure {
    /// A failure before COMMIT: the transaction was rolled back, but a disk error is still fatal.
    pub(super) fn before_commit(error: &Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Fatal(error.to_string())
            }
            _ => Self::Refused(error.to_string()),
        }
    }

    /// A failure of COMMIT itself: only if the disk is full or the file is busy was certainly nothing written.
    pub(super) fn at_commit(error: &Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Refused(error.to_string())
            }
            _ => Self::Fatal(error.to_string()),
        }
    }

    pub(super) fn to_append_error(&self) -> AppendError {
        match self {
            Self::Refused(why) => AppendError::Unavailable(why.clone()),
            Self::Fatal(why) => {
                AppendError::Unconfirmed(format!("storage failed; restart the server: {why}"))
            }
        }
    }

    pub(super) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Refused(why) => StoreError::Unavailable(why.clone()),
            Self::Fatal(why) => StoreError::Broken(format!("storage failed; restart the server: {why}")),
        }
    }
}

/// For reads and for opening, where no write is in doubt: says whether a retry may help.
pub(super) fn broken(error: Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen,
        ) => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: i32) -> Error {
        Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn a_full_disk_is_refused_and_a_failed_fsync_is_fatal() {
        let full = error(rusqlite::ffi::SQLITE_FULL);
        let fsync = error(rusqlite::ffi::SQLITE_IOERR_FSYNC);
        assert!(matches!(Failure::before_commit(&full), Failure::Refused(_)));
        assert!(matches!(Failure::at_commit(&full), Failure::Refused(_)));
        assert!(matches!(Failure::before_commit(&fsync), Failure::Fatal(_)));
        assert!(matches!(Failure::at_commit(&fsync), Failure::Fatal(_)));
        assert!(matches!(Failure::at_commit(&fsync).to_append_error(), AppendError::Unconfirmed(_)));
        assert!(matches!(Failure::at_commit(&full).to_append_error(), AppendError::Unavailable(_)));
    }
}
