//! What the server refuses, and how. Invalid input never causes a 500.

use std::time::Duration;

use outlast_proof::server::{Options, Server};
use outlast_proof::wait::{LONG, bounded};
use outlast_proof::worker::Worker;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::both;

#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_problems_that_name_the_field() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    let raw = |body: &str| {
        let request = api.request(Method::POST, "/v1/generations").header("content-type", "application/json");
        api.send(request.body(body.to_owned()))
    };
    for broken in ["{", "tea", "{\"content\":\"x\"} more", "{\"content\":\"\\ud800\"}"] {
        raw(broken).await?.problem(400, "invalid_json")?;
    }
    let wrong: [(Value, &str); 9] = [
        (json!({"content": "x", "colour": "red"}), "colour"),
        (json!({"content": 7}), "content"),
        (json!({"content": ""}), "content"),
        (json!({"content": []}), "content"),
        (json!({}), "content"),
        (json!({"content": "x", "whenBusy": "panic"}), "whenBusy"),
        (json!({"content": "x", "requestId": ""}), "requestId"),
        (json!({"content": "x", "metadata": "text"}), "metadata"),
        (json!({"content": "x", "model": "nobody"}), "model"),
    ];
    for (body, field) in wrong {
        let answer = api.post("/v1/generations", &body).await?.problem(422, "invalid_request")?;
        let detail = answer.text("detail")?;
        assert!(detail.contains(field), "{body} is refused without naming {field}: {detail}");
    }
    for body in [json!([]), json!("x"), json!(null)] {
        api.post("/v1/generations", &body).await?.problem(422, "invalid_request")?;
    }
    // The client gets the refusal and can send its next request, although the server did not read all of this one.
    let large = json!({"content": "x".repeat(2 << 20)});
    for _ in 0..20 {
        api.post("/v1/generations", &large).await?.problem(413, "too_large")?;
        api.get("/v1/conversations").await?.expect(200)?;
    }
    let listed = api.get("/v1/conversations").await?.expect(200)?;
    assert_eq!(listed.body["data"], json!([]), "no refused request started anything");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_position_or_format_is_refused_by_name() -> anyhow::Result<()> {
    let (server, upstream) = both().await?;
    let api = server.api();
    let started = api.play(&upstream.script(3)).await?;
    let path = format!("/v1/generations/{}/events", started.generation);
    for (query, field) in [("after=tea", "after"), ("after=-1", "after"), ("format=xml", "format")] {
        let answer = api.get(&format!("{path}?{query}")).await?.problem(422, "invalid_request")?;
        assert_eq!(answer.body["field"], field);
    }
    let strange = api.request(Method::GET, &path).header("last-event-id", "tea");
    api.send(strange).await?.problem(422, "invalid_request")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn o6_one_reader_too_many_is_429_and_affects_no_other() -> anyhow::Result<()> {
    let upstream = outlast_proof::upstream::Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_LIMITS__FOLLOWERS_PER_CONVERSATION", "2");
    let server = Server::start(options).await?;
    let api = server.api();
    let started = api.play(&upstream.script(10_000).rate(100)).await?;
    let path = format!("/v1/generations/{}/events", started.generation);
    let mut watching = Vec::new();
    for _ in 0..2 {
        watching.push(api.request(Method::GET, &path).send().await?.error_for_status()?);
    }
    let refused = api.get(&path).await?.problem(429, "limit_reached")?;
    assert!(refused.retry_after.is_some());
    drop(watching);
    outlast_proof::wait::until("room for another reader", Duration::from_secs(10), async || {
        let response = api.request(Method::GET, &path).send().await?;
        Ok((response.status().as_u16() == 200).then_some(()))
    })
    .await?;
    assert!(api.cancel(&started.generation).await?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b5_what_does_not_exist_is_404_on_every_path() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    let api = server.api();
    for path in [
        "/v1/generations/gen_x",
        "/v1/generations/gen_x/events",
        "/v1/generations/gen_x/events?format=json",
        "/v1/conversations/conv_x",
        "/v1/conversations/conv_x/messages",
        "/v1/conversations/conv_x/events",
        "/v1/conversations/conv_x/events?after=3",
        "/v1/tea",
    ] {
        api.get(path).await?.problem(404, "not_found")?;
    }
    for what in ["cancel", "resume", "dismiss", "retry"] {
        let path = format!("/v1/generations/gen_x/{what}");
        api.post(&path, &json!({})).await?.problem(404, "not_found")?;
    }
    let body = json!({"content": "x", "conversationId": "conv_x"});
    api.post("/v1/generations", &body).await?.problem(404, "not_found")?;
    for method in [Method::PATCH, Method::DELETE] {
        let request = api.request(method, "/v1/conversations/conv_x").json(&json!({}));
        api.send(request).await?.problem(404, "not_found")?;
    }
    for (method, path) in [
        (Method::DELETE, "/v1/generations"),
        (Method::PUT, "/v1/conversations/conv_x"),
        (Method::GET, "/v1/generations/gen_x/cancel"),
    ] {
        api.send(api.request(method, path)).await?.problem(405, "method_not_allowed")?;
    }
    Ok(())
}

/// Reads and writes that a page of another origin could send. Each header alone is enough to refuse them.
async fn refuses_foreign_pages(server: &Server) -> anyhow::Result<()> {
    let api = server.api();
    let own = format!("http://{}", server.address());
    let request = api.request(Method::GET, "/v1/conversations").header("origin", &own);
    let reply = api.send(request.header("sec-fetch-site", "same-origin")).await?.expect(200)?;
    assert_eq!(reply.body["data"], json!([]));
    for (name, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("host", "rebound.example:80"),
        ("host", "[::1].evil"),
        ("host", "127.0.0.1.evil.com"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        let read = api.request(Method::GET, "/v1/conversations").header(name, value);
        api.send(read).await?.problem(403, "foreign_origin")?;
        let write = api.request(Method::POST, "/v1/generations").header(name, value);
        api.send(write.json(&json!({"content": "x"}))).await?.problem(403, "foreign_origin")?;
        let upgrade = api.request(Method::GET, "/v1/conversations/c/ws").header(name, value);
        let upgrade = upgrade.header("connection", "upgrade").header("upgrade", "websocket");
        let upgrade = upgrade.header("sec-websocket-version", "13").header("sec-websocket-key", "AAAA");
        api.send(upgrade).await?.problem(403, "foreign_origin")?;
    }
    for twice in ["host", "origin"] {
        let request = api.request(Method::GET, "/v1/conversations");
        let mut headers = reqwest::header::HeaderMap::new();
        for _ in 0..2 {
            let value = if twice == "host" { own.trim_start_matches("http://") } else { &own };
            headers.append(twice, value.parse()?);
        }
        api.send(request.headers(headers)).await?.problem(400, "invalid_request")?;
    }
    let listed = api.get("/v1/conversations").await?.expect(200)?;
    assert_eq!(listed.body["data"], json!([]), "no refused request started anything");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_or_a_rebound_name_is_refused() -> anyhow::Result<()> {
    let (server, _upstream) = both().await?;
    refuses_foreign_pages(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_is_refused_even_with_insecure() -> anyhow::Result<()> {
    let options = Options::default().arg("--listen").arg("0.0.0.0:0").arg("--insecure");
    let server = Server::start(options).await?;
    refuses_foreign_pages(&server).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allowed_name_works_behind_a_tls_proxy() -> anyhow::Result<()> {
    let server =
        Server::start(Options::default().arg("--set").arg("server.allowed_hosts=chat.example.com")).await?;
    let api = server.api();
    let ask = |host: &str, origin: &str| {
        let request = api.request(Method::GET, "/v1/conversations").header("host", host);
        api.send(request.header("origin", origin))
    };
    ask("chat.example.com", "https://chat.example.com").await?.expect(200)?;
    ask("chat.example.com", "https://evil.example").await?.problem(403, "foreign_origin")?;
    ask("evil.example", "https://evil.example").await?.problem(403, "foreign_origin")?;
    let reply = api.request(Method::GET, "/healthz").send().await?;
    for name in ["cross-origin-resource-policy", "cross-origin-opener-policy"] {
        assert_eq!(reply.headers()[name], "same-origin");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b4_over_the_limit_is_429_with_retry_after() -> anyhow::Result<()> {
    let upstream = outlast_proof::upstream::Upstream::start().await?;
    let options = Options::with(&upstream).env("OUTLAST_LIMITS__LIVE_GENERATIONS_PER_USER", "2");
    let server = Server::start(options).await?;
    let api = server.api();
    let first = api.play(&upstream.script(10_000).rate(50)).await?;
    api.play(&upstream.script(10_000).rate(50)).await?;
    let body = json!({"content": upstream.script(3).to_string()});
    let refused = api.post("/v1/generations", &body).await?.problem(429, "limit_reached")?;
    assert!(refused.retry_after.is_some());
    assert!(api.cancel(&first.generation).await?);
    outlast_proof::wait::until("room for one more", Duration::from_secs(10), async || {
        Ok((api.post("/v1/generations", &body).await?.status == 202).then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn b1_a_store_that_is_unknown_or_cannot_be_reached_stops_the_start() -> anyhow::Result<()> {
    for (store, told) in [
        ("mysql://user:secret@host/db", "sqlite:"),
        ("postgres://user:secret@127.0.0.1:1/db", "cannot be reached"),
    ] {
        let said = Server::refused(Options::default().arg("--store").arg(store)).await?;
        assert!(said.contains(told) && !said.contains("secret"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_public_address_is_refused_without_insecure() -> anyhow::Result<()> {
    let public = Options::default().arg("--listen").arg("0.0.0.0:0");
    let said = Server::refused(public.clone()).await?;
    assert!(said.contains("--insecure") && said.contains("0.0.0.0"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    Server::start(public.arg("--insecure")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn b7_a_bad_setting_stops_the_start_with_one_line_that_names_it() -> anyhow::Result<()> {
    let set = |setting: &str| Options::default().arg("--set").arg(setting);
    for (options, named) in [
        (Options::default().toml("[durability]\nmode = \"hope\""), "durability.mode"),
        (Options::default().toml("[stoer]\nurl = \"sqlite:\""), "unknown setting stoer"),
        (Options::default().env("OUTLAST_STORE__URI", "memory:"), "unknown setting store.uri"),
        (set("limits.body_bytes=many"), "limits.body_bytes"),
        (set("limits.subscribers_per_generation=5"), "limits.followers_per_conversation"),
        (set("timeouts.producer_silence=5s"), "timeouts.worker_silence"),
        (Options::default().env("OUTLAST_LOG", "a=b=c"), "OUTLAST_LOG"),
        (Options::default().toml("[limits]\nbody_bytes = \"many\""), "limits.body_bytes"),
        (Options::default().toml("[limits]\nstarts_per_minute = 0"), "limits.starts_per_minute"),
        (Options::default().toml("this is not TOML"), "outlast.toml"),
        (set("limits.tokens_per_day=0"), "limits.tokens_per_day"),
        (set("limits.disk_per_user=lots"), "limits.disk_per_user"),
        (set("store.url=redis://127.0.0.1:1"), "store.url"),
        (set("tls.certificate=/nowhere.pem"), "tls.key"),
        (set("tls.certificate=/nowhere.pem").arg("--set").arg("tls.key=/nowhere.pem"), "/nowhere.pem"),
        (set("jwt.issuer=https://login.example"), "jwt"),
        (set("traces.url=ftp://collector"), "traces.url"),
        (
            Options::default()
                .toml("[models.default]\nkind = \"openai\"\nmodel = \"m\"\napi_key_env = \"NOT_SET\""),
            "NOT_SET",
        ),
    ] {
        let said = Server::refused(options).await?;
        assert!(said.contains(named) && said.lines().count() == 1, "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_over_the_limit_is_503_until_another_one_closes() -> anyhow::Result<()> {
    let upstream = outlast_proof::upstream::Upstream::start().await?;
    let server = Server::start(Options::with(&upstream).arg("--set").arg("limits.connections=2")).await?;
    let ask = async |path: &str| -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(server.address()).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        bounded("a reply", LONG, stream.read_to_string(&mut reply)).await??;
        Ok(reply)
    };
    let mut held = Vec::new();
    for _ in 0..2 {
        // An incomplete request: the server waits for the rest of its head.
        let mut stream = TcpStream::connect(server.address()).await?;
        stream.write_all(b"GET / HTTP/1.1\r\n").await?;
        held.push(stream);
    }
    let full = ask("/v1/models").await?;
    assert!(full.starts_with("HTTP/1.1 503 ") && full.contains("limit_reached"), "{full}");
    assert!(full.contains("retry-after: "), "{full}");
    assert!(ask("/healthz").await?.starts_with("HTTP/1.1 200 "), "the process is alive");
    drop(held);
    outlast_proof::wait::until("room for another connection", Duration::from_secs(10), async || {
        Ok(ask("/v1/models").await?.starts_with("HTTP/1.1 200 ").then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_finishes_its_request_is_dropped_after_15_s() -> anyhow::Result<()> {
    let server = Server::start(Options::default()).await?;
    let begun = Instant::now();
    let mut silent = TcpStream::connect(server.address()).await?;
    let mut slow = TcpStream::connect(server.address()).await?;
    let dripping = async {
        // One byte of the head per second: never idle, never complete.
        for letter in b"GET / HTTP/1.1 and then some more letters ".iter().cycle() {
            if slow.write_all(&[*letter]).await.is_err() {
                return;
            }
            let mut reply = [0; 256];
            if let Ok(Ok(_)) = timeout(Duration::from_secs(1), slow.read(&mut reply)).await {
                return; // a refusal or the end
            }
        }
    };
    let mut nothing = Vec::new();
    let silence = async { silent.read_to_end(&mut nothing).await.ok() };
    bounded("dropping both", Duration::from_secs(40), async { tokio::join!(dripping, silence) }).await?;
    eprintln!("both dropped after {:?}", begun.elapsed());
    Ok(())
}

/// JSON with this many nested lists.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test(flavor = "multi_thread")]
async fn i20_json_nested_too_deep_is_refused_everywhere_and_lists_keep_working() -> anyhow::Result<()> {
    let (mut server, _upstream) = both().await?;
    let api = server.api().clone();
    let mut worker = Worker::start(&api).await?;
    let conversation = format!("/v1/conversations/{}", worker.started.conversation);
    for levels in [65, 126, 127, 200] {
        let deep = nested(levels);
        let metadata = json!({"deep": deep});
        api.post("/v1/generations", &json!({"content": "x", "metadata": metadata}))
            .await?
            .problem(422, "invalid_request")?;
        api.post("/v1/conversations", &json!({"metadata": metadata}))
            .await?
            .problem(422, "invalid_request")?;
        let change = api.request(Method::PATCH, &conversation).json(&json!({"metadata": metadata}));
        api.send(change).await?.problem(422, "invalid_request")?;
        let tool = json!({"toolUseId": "call_1", "toolName": "bash", "toolInput": deep});
        for kind in ["tool.start", "approval.requested"] {
            let events = json!([{"type": kind, "payload": tool}]);
            worker.append(events).await?.problem(422, "invalid_request")?;
        }
        let flat = json!({"toolUseId": "call_1", "toolName": "bash", "toolInput": {}});
        let end = json!({"toolUseId": "call_1", "result": deep});
        let events = json!([{"type": "tool.start", "payload": flat}, {"type": "tool.end", "payload": end}]);
        worker.append(events).await?.problem(422, "invalid_request")?;
        let tools = json!([{"type": "function", "function": {"name": "f", "parameters": metadata}}]);
        for (name, value) in [
            ("metadata", metadata.clone()),
            ("tools", tools),
            ("messages", json!([{"role": "user", "content": deep}])),
            ("response_format", deep.clone()),
        ] {
            let mut body = json!({"model": "default", "messages": [{"role": "user", "content": "x"}]});
            body[name] = value;
            let answer = api.post("/v1/chat/completions", &body).await?;
            let refused = matches!(answer.status, 400 | 422) && answer.code() == "invalid_request";
            assert!(refused, "{name} of {levels} levels: {} {}", answer.status, answer.body);
        }
    }
    // The deepest allowed value is returned unchanged, even after a restart.
    let most = json!({"deep": nested(63)});
    let body = json!({"content": "x", "producer": "external", "metadata": most});
    let kept = api.post("/v1/generations", &body).await?.started()?;
    let tool = json!({"toolUseId": "call_1", "toolName": "bash", "toolInput": nested(64)});
    worker.append(json!([{"type": "tool.start", "payload": tool}])).await?.expect(200)?;
    for _ in 0..2 {
        assert_eq!(api.generation(&kept.generation).await?["metadata"], most);
        for list in ["/v1/generations", "/v1/conversations"] {
            let listed = api.get(list).await?.expect(200)?.body;
            assert_eq!(listed["data"].as_array().map(Vec::len), Some(2), "only what was accepted: {listed}");
        }
        api.view(&worker.started.conversation).await?;
        api.view(&kept.conversation).await?;
        server.crash().await?;
    }
    Ok(())
}
