//! An API key that every server gets and that must not appear anywhere (I14): not in its output, its data or its
//! responses.

use std::path::Path;

use memchr::memmem;

/// The key. The scripted upstream repeats it in its errors, as careless providers do.
pub const KEY: &str = "sk-canary-6b1f0c9e47d2";

/// The environment variable that holds it.
pub(crate) const VARIABLE: &str = "OUTLAST_PROOF_KEY";

pub(crate) fn is_in(bytes: &[u8]) -> bool {
    memmem::find(bytes, KEY.as_bytes()).is_some()
}

/// Panics if the key is in a file under this path. Files that cannot be read are skipped.
pub(crate) fn must_not_be_in(path: &Path) {
    if let Ok(entries) = std::fs::read_dir(path) {
        for entry in entries.flatten() {
            must_not_be_in(&entry.path());
        }
    } else if let Ok(bytes) = std::fs::read(path) {
        assert!(!is_in(&bytes), "the key is in {}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_any_file_of_any_folder() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("log"), [b"\xff\0 Bearer ", &KEY.as_bytes()[1..]].concat()).unwrap();
        must_not_be_in(folder.path());
        must_not_be_in(&folder.path().join("gone"));
        std::fs::write(deep.join("log"), [b"\xff\0 Bearer ", KEY.as_bytes(), b"\n"].concat()).unwrap();
        std::panic::catch_unwind(|| must_not_be_in(folder.path())).unwrap_err();
    }
}
