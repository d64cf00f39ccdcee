//! Ids, which are opaque, and positions. Order by `Seq`, never by id.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        #[schema(value_type = String)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl<T: AsRef<str>> From<T> for $name {
            fn from(id: T) -> Self {
                Self(Arc::from(id.as_ref()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// A conversation: one log, one owner.
    ConversationId
);
id!(
    /// One generation: a user's message and everything done to answer it.
    GenerationId
);
id!(
    /// A message of the transcript; an assistant's segment is a message.
    MessageId
);
id!(
    /// The client's idempotency key for a request.
    RequestId
);
id!(
    /// The user that a conversation belongs to.
    UserId
);
id!(
    /// A sandbox. A conversation has at most one at a time; a new one has a new id.
    SandboxId
);
id!(
    /// One run of a tool call. A sandbox runs each id at most once; for tools elsewhere it is the idempotency key.
    ExecutionId
);
id!(
    /// The files of a workspace at one moment.
    CheckpointId
);
id!(
    /// A notification. Its id follows from its cause, so that making it twice makes one.
    NotificationId
);

/// A hash of `parts`, as part of an id. Ids that the core gives are computed from the state and the place in the log,
/// so a decision that is made again after a crash gives the same ones.
pub(crate) fn derived(prefix: &str, parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes()); // so that no two lists of parts run together
        hash.update(part);
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}_{hex}")
}

/// An event's position in its conversation: 1, 2, 3, … without gaps. Zero means "before the first event".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    pub const ZERO: Seq = Seq(0);

    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }

    pub fn plus(self, count: usize) -> Seq {
        Seq(self.0 + count as u64)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
