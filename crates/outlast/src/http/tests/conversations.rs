//! Conversations: what a change sets, clears and leaves unchanged.

use super::*;

#[tokio::test]
async fn null_clears_title_and_metadata_and_what_is_absent_stays() {
    let server = Server::new();
    let (_, created) =
        server.post("/v1/conversations", &json!({"title": "Tea", "metadata": {"tab": 1}})).await;
    let path = format!("/v1/conversations/{}", created["id"].as_str().unwrap());
    for (change, title, metadata) in [
        (json!({}), json!("Tea"), json!({"tab": 1})),
        (json!({"title": null}), json!(null), json!({"tab": 1})),
        (json!({"title": "Oolong"}), json!("Oolong"), json!({"tab": 1})),
        (json!({"metadata": null}), json!("Oolong"), json!(null)),
        (json!({"metadata": {}}), json!("Oolong"), json!({})),
    ] {
        let changed = read(server.ask("patch", &path, change.to_string()).await).await;
        assert_eq!((&changed["title"], &changed["metadata"]), (&title, &metadata), "{change}");
        assert_eq!(server.get(&path).await.1["conversation"], changed);
    }
    server.engine.stop().await;
}
