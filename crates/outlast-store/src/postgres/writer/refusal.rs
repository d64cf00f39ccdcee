//! The same answer for everybody in a flush.

use crate::AppendError;

pub(super) trait CloneRefusal {
    fn clone_refusal(&self) -> Self;
}

impl CloneRefusal for Result<(), AppendError> {
    fn clone_refusal(&self) -> Self {
        match self {
            Ok(()) => Ok(()),
            Err(AppendError::Unavailable(why)) => Err(AppendError::Unavailable(why.clone())),
            Err(AppendError::Unconfirmed(why)) => Err(AppendError::Unconfirmed(why.clone())),
            Err(other) => Err(AppendError::Unavailable(other.to_string())),
        }
    }
}
