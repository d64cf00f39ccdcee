//! What a person sees of the difference between two checkpoints.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use crate::folders::{Between, Content, Folders, conversation, picture, set_mode};

impl Folders {
    async fn diff(&self, before: Option<&str>, after: &str) -> String {
        self.checkpoints.diff(&conversation(), Between { before, after }).await.unwrap()
    }
}

#[tokio::test]
async fn x9_a_diff_shows_text_modes_links_and_mentions_the_rest() {
    let folders = Folders::new();
    folders.put("text", "one\ntwo\nthree\n");
    folders.put("binary", [0, 1, 2]);
    folders.put("tool", "#!/bin/sh\n");
    folders.put("gone", "bye");
    folders.take("one").await;
    folders.put("text", "one\n2\nthree");
    folders.put("binary", [0, 1, 2, 3]);
    set_mode(&folders.workspace().join("tool"), 0o755);
    fs::remove_file(folders.workspace().join("gone")).unwrap();
    folders.put("new\nline", "new\n");
    symlink("text", folders.workspace().join("link")).unwrap();
    folders.take("two").await;
    let expected = "\
diff --git a/binary b/binary
Binary or large files differ: 3 bytes before, 4 bytes after
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
\\ No newline at end of file
diff --git a/link b/link
new file mode 120000
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+text
\\ No newline at end of file
diff --git \"a/new\\012line\" \"b/new\\012line\"
new file mode 100644
--- /dev/null
+++ \"b/new\\012line\"
@@ -0,0 +1 @@
+new
diff --git a/text b/text
--- a/text
+++ b/text
@@ -1,3 +1,3 @@
 one
-two
-three
+2
+three
\\ No newline at end of file
diff --git a/tool b/tool
old mode 100644
new mode 100755
";
    assert_eq!(folders.diff(Some("one"), "two").await, expected);
    assert_eq!(folders.diff(Some("two"), "two").await, "");
    assert_eq!(folders.diff(None, "one").await.matches("new file mode").count(), 4);
}

#[tokio::test]
async fn x9_a_diff_is_cut_and_says_so() {
    let folders = Folders::new();
    folders.put("a long file", "line\n".repeat(100_000));
    folders.put("too large", "x".repeat(600 << 10));
    for file in 0..600 {
        folders.put(&format!("many/{file:03}"), "text\n");
    }
    folders.take("one").await;
    let diff = folders.diff(None, "one").await;
    assert!(diff.len() <= 1 << 20);
    assert!(diff.contains("more bytes of this diff are not shown]\ndiff --git"));
    assert!(diff.ends_with("[102 more changed files are not shown]\n"), "{}", &diff[diff.len() - 100..]);
    for file in 0..30 {
        folders.put(&format!("large/{file}"), format!("{file}\n").repeat(40_000));
    }
    folders.take("two").await;
    let diff = folders.diff(Some("one"), "two").await;
    assert!(diff.len() <= (1 << 20) + 100, "{}", diff.len());
    assert!(diff.ends_with("more changed files are not shown]\n"));
    folders.put("too large", "y".repeat(600 << 10));
    folders.take("three").await;
    assert!(folders.diff(Some("two"), "three").await.contains("614400 bytes before, 614400 bytes after"));
}

fn git_apply(folder: &Path, diff: &str) -> bool {
    let mut git = Command::new("git");
    git.args(["apply", "--whitespace=nowarn", "--allow-empty", "-"]).current_dir(folder);
    git.env("GIT_CEILING_DIRECTORIES", "/").stdin(Stdio::piped());
    let mut git = git.spawn().expect("git is installed: this is a repository");
    std::io::Write::write_all(&mut git.stdin.take().unwrap(), diff.as_bytes()).unwrap();
    git.wait().unwrap().success()
}

/// Few names and few lines, so that versions have much in common.
fn version() -> impl Strategy<Value = Vec<(String, String)>> {
    let name =
        prop::sample::select(vec!["a", "b c", "d/e", "d/\"f\"", "g\t", "d/h\\"]).prop_map(str::to_owned);
    let line = prop::sample::select(vec!["one\n", "two\n", "\n", "a\rb\n", "\r\n", "-- x\n", "no newline"]);
    let text = prop::collection::vec(line, 1..12).prop_map(|lines| lines.concat());
    prop::collection::vec((name, text), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn x9_git_makes_the_second_version_out_of_the_first_and_the_diff(first in version(), second in version()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folders = Folders::new();
            for (id, version) in [("one", first), ("two", second)] {
                fs::remove_dir_all(folders.workspace()).unwrap();
                fs::create_dir(folders.workspace()).unwrap();
                version.iter().for_each(|(path, text)| folders.put(path, text));
                folders.take(id).await;
            }
            let diff = folders.diff(Some("one"), "two").await;
            let patched = folders.restore("one", "patched").await;
            assert!(git_apply(&patched, &diff), "{diff}");
            let files = |folder: &Path| {
                let mut files = picture(folder);
                files.retain(|_, pictured| pictured.content != Content::Directory);
                files.into_iter().map(|(path, pictured)| (path, pictured.content)).collect::<Vec<_>>()
            };
            assert_eq!(files(&patched), files(&folders.workspace()), "{diff}");
        });
    }
}
