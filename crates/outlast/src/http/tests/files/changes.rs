//! Files that people put into the workspace, or take away, and what they may not touch.

use outlast_core::Seq;
use outlast_store::Store as _;

use super::*;

/// Changes that a person makes.
impl Project {
    async fn put(&self, path: &str, content: &str) -> (u16, Value) {
        let response = self.server.ask("put", &self.path(&format!("files/{path}")), content.to_owned()).await;
        (response.status().as_u16(), super::read(response).await)
    }

    async fn delete(&self, path: &str) -> u16 {
        self.server.ask("delete", &self.path(&format!("files/{path}")), "").await.status().as_u16()
    }

    /// The events of a kind.
    async fn logged(&self, kind: &str) -> Vec<Value> {
        let all =
            self.server.store.read(&self.conversation.as_str().into(), Seq::ZERO, 1 << 20).await.unwrap();
        let events = all.iter().map(|record| serde_json::from_slice::<Value>(&record.bytes).unwrap());
        events.filter(|event| event["type"] == kind).collect()
    }

    async fn until_logged(&self, kind: &str, times: usize) {
        let logged = async {
            while self.logged(kind).await.len() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), logged).await.expect("it happens");
    }

    /// The folder of the sandbox.
    fn workspace(&self) -> PathBuf {
        let entries = fs::read_dir(self.folder.path().join("sandboxes")).unwrap();
        entries.map(|entry| entry.unwrap().path()).find(|path| path.is_dir()).unwrap()
    }
}

#[tokio::test]
async fn x9_a_person_puts_files_and_takes_them_away() {
    let project = Project::new().await;
    let (status, put) = project.put("notes/new%20file.md", "hello\n").await;
    assert_eq!((status, &put["change"], &put["size"]), (200, &json!("added"), &json!(6)), "{put}");
    assert_eq!(
        project.content("files/notes/new%20file.md").await,
        (200, "hello\n".to_owned()),
        "it is saved"
    );
    let (_, page) = project.server.get(&project.path("files")).await;
    let listed = page["data"].as_array().unwrap().iter().find(|file| file["path"] == "notes/new file.md");
    assert_eq!((&listed.unwrap()["hash"], &page["checkpoint"]), (&put["hash"], &put["checkpoint"]));
    assert_eq!(listed.unwrap()["mode"], 0o644);

    let (status, put) = project.put("src/main.rs", "").await;
    assert_eq!((status, &put["change"]), (200, &json!("modified")));
    assert_eq!(project.content("files/src/main.rs").await, (200, String::new()));
    assert_eq!(project.delete("src/main.rs").await, 204);
    assert_eq!(project.delete("src/main.rs").await, 404);
    assert_eq!(project.content("files/src/main.rs").await.0, 404);
    let log = project.logged("file.changed").await;
    let changes: Vec<&Value> = log.iter().map(|event| &event["payload"]["change"]).collect();
    assert_eq!(changes, [&json!("added"), &json!("modified"), &json!("deleted")]);
    assert_eq!(log[0]["payload"]["by"], "local");
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_a_file_can_be_put_before_anything_was_said() {
    let project = Project::new().await;
    let (_, made) = project.server.post("/v1/conversations", &json!({})).await;
    let path = format!("/v1/conversations/{}/files/a", made["id"].as_str().unwrap());
    assert_eq!(project.server.ask("delete", &path, "").await.status(), 404, "and no sandbox is made for it");
    assert_eq!(project.server.ask("put", &path, "one").await.status(), 200);
    assert_eq!(project.server.ask("get", &path, "").await.status(), 200);
    let without = Server::new();
    let (_, made) = without.post("/v1/conversations", &json!({})).await;
    let path = format!("/v1/conversations/{}/files/a", made["id"].as_str().unwrap());
    assert_eq!(without.problem("put", &path, "one").await, (409, "no_sandbox".to_owned()));
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_nobody_gets_out_of_the_workspace_by_a_path_or_a_link() {
    let project = Project::new().await;
    let (outside, workspace) = (project.folder.path().join("outside"), project.workspace());
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, workspace.join(name)).unwrap();
    link(&outside, "folder");
    link(&outside.join("kept"), "file");
    link(Path::new("../../outside"), "relative");
    link(Path::new("src"), "inside");
    for path in [
        "folder/kept",
        "folder/new",
        "relative/kept",
        "inside/main.rs",
        "file",
        "src",
        "src/main.rs/x",
        "%2Fetc%2Fpasswd",
        "..%2Fx",
        "%2e%2e/x",
        "src/../../x",
        "src/./x",
        "src//x",
        "src/",
        "a%00b",
        ".",
        &"x".repeat(300),
        &"d/".repeat(150),
    ] {
        let (status, problem) = project.put(path, "x").await;
        assert!([404, 405, 422].contains(&status), "put {path}: {status} {problem}");
        let told = problem.to_string();
        assert!(!told.contains(project.folder.path().to_str().unwrap()), "{told}");
    }
    for path in ["folder/kept", "relative/kept", "src", "..%2Fx", "src//main.rs", "%2Fetc%2Fpasswd"] {
        let status = project.delete(path).await;
        assert!([404, 405, 422].contains(&status), "delete {path}: {status}");
    }
    assert_eq!(project.delete("file").await, 204, "a link itself can be taken away");
    let left: Vec<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kept"]);
    assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_a_file_that_is_replaced_keeps_its_mode_and_is_never_seen_in_part() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let project = Project::new().await;
    let script = project.workspace().join("src/main.rs");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o750)).unwrap();
    let mut open = fs::File::open(&script).unwrap();
    let before = fs::metadata(&script).unwrap().ino();
    assert_eq!(project.put("src/main.rs", "new").await.0, 200);
    let after = fs::metadata(&script).unwrap();
    assert_eq!(after.mode() & 0o777, 0o750);
    assert_ne!(after.ino(), before, "whoever has it open goes on with the old file");
    let mut old = String::new();
    std::io::Read::read_to_string(&mut open, &mut old).unwrap();
    assert!(old.starts_with("fn main"), "{old}");
    project.server.engine.stop().await;
}

#[tokio::test]
async fn i18_a_file_that_is_too_large_is_refused() {
    let project = Project::new().await;
    let large = "x".repeat(outlast_engine::FILE_BYTES_MAX + 1);
    let (status, problem) = project.put("large", &large).await;
    assert_eq!((status, &problem["code"]), (413, &json!("too_large")));
    assert_eq!(project.put("large", &large[1..]).await.0, 200);
    project.server.engine.stop().await;
}

#[tokio::test]
async fn x9_files_are_left_alone_while_a_tool_runs() {
    let mut project = Project::new().await;
    project.run().await; // uses up the third script
    let (_, started) =
        project.server.post("/v1/generations", &json!({"content": "wait", "key": "project"})).await;
    let id = started["generationId"].as_str().unwrap();
    project.until_logged("tool.began", 5).await;
    let (status, problem) = project.put("notes", "x").await;
    assert_eq!((status, &problem["code"]), (409, &json!("tool_running")), "{problem}");
    assert_eq!(project.delete("src/main.rs").await, 409);
    project.server.post(&format!("/v1/generations/{id}/cancel"), &json!({})).await;
    project.until_logged("tool.stopped", 1).await;
    assert_eq!(project.put("notes", "x").await.0, 200);
    project.server.engine.stop().await;
}
