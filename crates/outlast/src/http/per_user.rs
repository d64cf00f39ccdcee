//! How many of something each user has open at this server. A stream or a connection costs memory for as long as it is
//! open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use outlast_core::UserId;

use super::error::Problem;
use crate::auth::Principal;

/// The setting that limits connections. A refusal closes the connection.
pub(super) const CONNECTIONS_PER_USER: &str = "limits.connections_per_user";

#[derive(Clone)]
pub(crate) struct PerUser {
    /// The setting that limits them.
    limit: &'static str,
    at_most: usize,
    open: Arc<Mutex<HashMap<UserId, usize>>>,
}

/// Something that is open, counted until it is dropped.
pub(super) struct Open {
    of: PerUser,
    user: UserId,
}

/// The user of a connection: the one who last sent a request on it. Behind a proxy, one connection may serve several.
#[derive(Clone, Default)]
pub(crate) struct ConnectionUser(Arc<Mutex<Option<Open>>>);

impl PerUser {
    pub(crate) fn streams(at_most: usize) -> PerUser {
        PerUser { limit: "limits.streams_per_user", at_most, open: Arc::default() }
    }

    pub(crate) fn connections(at_most: usize) -> PerUser {
        PerUser { limit: CONNECTIONS_PER_USER, at_most, open: Arc::default() }
    }

    /// Counts one more. A server without keys has one user, on its own machine, who is not limited.
    pub(super) fn open(&self, principal: &Principal) -> Result<Open, Problem> {
        let user = principal.user().clone();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.get(&user).copied().unwrap_or_default();
        if count >= self.at_most && !principal.is_local() {
            let detail = format!("you already have {count} open: {} is reached", self.limit);
            return Err(Problem::limited(self.limit, detail));
        }
        open.insert(user.clone(), count + 1);
        Ok(Open { of: self.clone(), user })
    }
}

impl ConnectionUser {
    /// Counts the connection for this user.
    pub(super) fn becomes(&self, principal: &Principal, connections: &PerUser) -> Result<(), Problem> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.as_ref().is_none_or(|open| open.user != *principal.user()) {
            *open = Some(connections.open(principal)?);
        }
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut open = self.of.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}
