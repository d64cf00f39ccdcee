//! The same tests for a server that is not root and has no control groups: other limits, another way to freeze.

use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::{HELPER, helper};

/// Nobody owns anything on this machine with this id.
const USER: u32 = 54_321;

#[test]
fn everything_holds_for_a_server_that_is_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return; // all other tests were this one
    }
    // The folder of the build may be closed to others.
    let folder = tempfile::tempdir().unwrap();
    let (tests, copied) = (folder.path().join("tests"), folder.path().join("helper"));
    std::fs::copy(std::env::current_exe().unwrap(), &tests).unwrap();
    std::fs::copy(helper(), &copied).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    chown(folder.path(), Some(USER), Some(USER)).unwrap();
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={USER}")).arg(format!("--regid={USER}")).arg("--clear-groups");
    command.arg(tests).args([
        "--test-threads=2",
        "pausing::",
        "stopping::",
        "walls::",
        "once::x8",
        "suite::",
    ]);
    command.env("TMPDIR", folder.path()).env(HELPER, copied).env("RUST_BACKTRACE", "0");
    command.current_dir(folder.path());
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}\n{}", String::from_utf8_lossy(&done.stderr));
    println!("{text}");
}
