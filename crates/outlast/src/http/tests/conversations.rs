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

#[tokio::test]
async fn s1_a_key_names_one_conversation_of_a_user() {
    let server = Server::new();
    let new = json!({"key": "screen-17", "title": "Screen", "metadata": {"projectId": "p1"}});
    let (status, created) = server.post("/v1/conversations", &new).await;
    assert_eq!((status, &created["key"]), (201, &json!("screen-17")), "{created}");
    let path = format!("/v1/conversations/{}", created["id"].as_str().unwrap());
    read(server.ask("patch", &path, json!({"title": "Renamed"}).to_string()).await).await;
    for again in [new, json!({"key": "screen-17"}), json!({"key": "screen-17", "title": "Screen"})] {
        let (status, found) = server.post("/v1/conversations", &again).await;
        assert_eq!(
            (status, &found["id"], &found["title"]),
            (201, &created["id"], &json!("Renamed")),
            "{again}"
        );
    }
    let (status, refused) =
        server.post("/v1/conversations", &json!({"key": "screen-17", "title": "Other"})).await;
    assert_eq!((status, &refused["code"]), (409, &json!("idempotency_conflict")));
    assert_eq!(refused["conversationId"], created["id"]);
    let (_, listed) = server.get("/v1/conversations?key=screen-17").await;
    assert_eq!((listed["data"].as_array().unwrap().len(), &listed["data"][0]["id"]), (1, &created["id"]));
    assert_eq!(server.get("/v1/conversations?key=screen-18").await.1["data"], json!([]));
    for wrong in [json!({"key": ""}), json!({"key": "x".repeat(201)}), json!({"key": 7})] {
        let (status, problem) = server.post("/v1/conversations", &wrong).await;
        assert_eq!((status, &problem["field"]), (422, &json!("key")), "{wrong}");
    }
    server.engine.stop().await;
}

#[tokio::test]
async fn s1_a_message_sent_to_a_key_creates_its_conversation_once() {
    let server = Server::new();
    let say = |text: &str| json!({"content": text, "key": "screen-17", "whenBusy": "queue"});
    let (status, first) = server.post("/v1/generations", &say("hello")).await;
    assert_eq!(status, 202, "{first}");
    let (_, second) = server.post("/v1/generations", &say("again")).await;
    assert_eq!(first["conversationId"], second["conversationId"]);
    let (_, opened) = server.post("/v1/conversations", &json!({"key": "screen-17"})).await;
    assert_eq!((&opened["id"], &opened["title"]), (&first["conversationId"], &json!("hello")));
    let both = json!({"content": "x", "key": "a", "conversationId": first["conversationId"]});
    assert_eq!(server.post("/v1/generations", &both).await.0, 422);
    server.engine.stop().await;
}

#[tokio::test]
async fn s1_conversations_are_found_by_a_field_of_their_metadata() {
    let server = Server::new();
    let mut ids = Vec::new();
    for metadata in
        [json!({"projectId": "p1"}), json!({"projectId": "p2"}), json!({"projectId": "p1", "n": 7})]
    {
        let (_, made) = server
            .post("/v1/conversations", &json!({"metadata": metadata, "key": metadata.to_string()}))
            .await;
        ids.push(made["id"].clone());
    }
    let found = async |query: &str| -> Vec<Value> {
        let (status, page) = server.get(&format!("/v1/conversations?{query}")).await;
        assert_eq!(status, 200, "{page}");
        let mut found: Vec<Value> =
            page["data"].as_array().unwrap().iter().map(|one| one["id"].clone()).collect();
        found.sort_by_key(|id| ids.iter().position(|other| other == id));
        found
    };
    assert_eq!(found("metadata[projectId]=p1").await, [ids[0].clone(), ids[2].clone()]);
    assert_eq!(found("metadata%5Bn%5D=7").await, ids[2..]);
    assert!(found("metadata[projectId]=p").await.is_empty() && found("metadata[other]=p1").await.is_empty());
    let path = format!("/v1/conversations/{}", ids[0].as_str().unwrap());
    server.ask("patch", &path, json!({"metadata": {"projectId": "p3"}}).to_string()).await;
    assert_eq!(
        found("metadata[projectId]=p1").await,
        ids[2..],
        "a change of the metadata changes what is found"
    );
    assert_eq!(found("metadata[projectId]=p3").await, ids[..1]);
    let (_, page) = server.get("/v1/conversations?metadata[n]=7&key=nobodys").await;
    assert_eq!(page["data"], json!([]));
    let long = format!("metadata[a]={}", "x".repeat(600));
    for wrong in ["metadata=p1", "metadata[a]=1&metadata[b]=2", "metadata[a=1", &long] {
        let (status, problem) = server.get(&format!("/v1/conversations?{wrong}")).await;
        assert_eq!((status, &problem["field"]), (422, &json!("metadata")), "{wrong}");
    }
    server.engine.stop().await;
}
