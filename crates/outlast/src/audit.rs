//! The audit log: who changed what, with which credential, and with what result.
//!
//! One line of JSON for each request that may change something, appended to a file. It has no content: of a request it
//! keeps the SHA-256 hash of the body, so that whoever has the body can prove that it was the one sent. Text
//! that clients chose is escaped as JSON, so nobody can forge a line.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use outlast_core::Timestamp;
use serde::Serialize;

use crate::auth::{Principal, Source};

/// One line.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Action {
    pub(crate) at: Timestamp,
    /// Absent for the command line of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// Which credential: the id of a key, or the hash of a token or a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) credential: Option<Source>,
    /// The route, or the command.
    pub(crate) action: String,
    /// What it was done to: the path of the request, or an id.
    pub(crate) object: String,
    /// The SHA-256 hash of the body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<String>,
    /// The HTTP status.
    pub(crate) result: u16,
}

impl Action {
    /// Something that a caller did.
    pub(crate) fn of(principal: &Principal, at: Timestamp, action: String) -> Action {
        let user = principal.user().as_str().to_owned();
        Action { user: Some(user), credential: Some(principal.source().clone()), ..Action::here(at, action) }
    }

    /// Something that was done on the command line of this machine.
    pub(crate) fn here(at: Timestamp, action: String) -> Action {
        Action {
            at,
            user: None,
            credential: None,
            action,
            object: String::new(),
            arguments: None,
            result: 200,
        }
    }
}

/// The file of the audit log; `None` if there is none.
#[derive(Clone, Debug)]
pub(crate) struct Audit(Option<PathBuf>);

impl Audit {
    /// A relative name is in the data folder; an empty one means no log.
    pub(crate) fn new(file: &Path, data: &Path) -> Audit {
        Audit((!file.as_os_str().is_empty()).then(|| data.join(file)))
    }

    pub(crate) fn file(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// Appends a line. The file is opened each time, so that it can be moved away while the server runs, and a line is
    /// one write, so that lines of several processes do not mix. A request does not fail because of the log.
    pub(crate) fn record(&self, action: &Action) {
        let Some(file) = &self.0 else { return };
        if let Err(error) = append(file, action) {
            tracing::error!(%error, action = action.action, "cannot write the audit log");
        }
    }
}

fn append(file: &Path, action: &Action) -> io::Result<()> {
    let line = serde_json::to_string(action)? + "\n";
    let mut options = OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600); // nobody else may read who did what
    let opened = match options.open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::create_dir_all(file.parent().unwrap_or(Path::new("")))?;
            options.open(file)
        }
        opened => opened,
    };
    opened?.write_all(line.as_bytes())
}
