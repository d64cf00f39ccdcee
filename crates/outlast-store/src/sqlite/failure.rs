//! What an error of SQLite means for those who wait: was nothing written, or is nothing known any more?

use rusqlite::{Error, ErrorCode};

use crate::{AppendError, StoreError};

/// Why a transaction was not committed.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Rolled back: nothing was written, and the store goes on.
    Refused(String),
    /// The disk or the file cannot be trusted from here on: whether the transaction will be found
    /// after a restart is unknown. After a failed fsync, another one that succeeds proves nothing.
    Fatal(String),
}

impl Failure {
    /// A failure before COMMIT: surely rolled back, but a broken disk is a broken disk.
    pub(super) fn before_commit(error: &Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Fatal(error.to_string())
            }
            _ => Self::Refused(error.to_string()),
        }
    }

    /// A failure of COMMIT itself: only for a full disk or a busy file is it known that nothing is there.
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
            Self::Fatal(why) => AppendError::Unconfirmed(format!("storage failed, restart: {why}")),
        }
    }

    pub(super) fn to_store_error(&self) -> StoreError {
        match self {
            Self::Refused(why) => StoreError::Unavailable(why.clone()),
            Self::Fatal(why) => StoreError::Broken(format!("storage failed, restart: {why}")),
        }
    }
}

/// For looks and for opening, where nothing is at stake: may it help to try again?
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
