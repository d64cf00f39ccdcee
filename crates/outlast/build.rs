//! Embeds the web app in the binary: the files that `npm run build` left in `ui/dist`, as a table of paths and
//! contents. Also notes the commit, for `outlast --version`.
//!
//! Without them the server has no web app; `make` builds the app first.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() {
    note_commit();
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo")).join("../../ui/dist");
    // Watched even while it is missing, so that the first build of the app is noticed.
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let mut table = String::from("&[\n");
    for file in &files {
        let path = file.strip_prefix(&root).expect("every file is in the root");
        let path = path.to_str().expect("the app's file names are UTF-8").replace('\\', "/");
        let bytes = file.canonicalize().expect("the file exists");
        writeln!(table, "    ({path:?}, include_bytes!({bytes:?}) as &[u8]),")
            .expect("writing to a String cannot fail");
        println!("cargo:rerun-if-changed={}", file.display());
    }
    table.push(']');
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("app.rs");
    std::fs::write(out, table).expect("the build folder can be written");
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// From `OUTLAST_COMMIT`, for a build without a repository, or else from git.
fn note_commit() {
    println!("cargo:rerun-if-env-changed=OUTLAST_COMMIT");
    // The log of HEAD changes with every commit. A file that is missing would cause a build each time.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = std::env::var("OUTLAST_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=OUTLAST_COMMIT={}", commit.as_deref().unwrap_or("unknown commit"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = std::process::Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
