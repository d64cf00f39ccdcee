//! Calls every route with every kind of token that must be refused.

use super::*;
use crate::auth::tests::tokens::Login;

#[tokio::test]
async fn b5_i13_no_bad_token_gets_through_a_wall_on_any_route() {
    let login = Login::new();
    let model = DemoModel::with_pace(Duration::from_secs(5));
    let server = Server::of(model, Settings::default(), Some(login.jwt().await));
    let bob = bob(&server).await;
    let offered =
        server.send(&format!("Bearer {}", login.good()), "get", "/v1/capabilities", String::new()).await;
    assert_eq!(offered.status(), StatusCode::OK, "the same token without its fault");
    let mut seen = 0;
    for route in walls() {
        let Route { method, path, scope } = &route;
        if scope.is_none() {
            continue;
        }
        for (what, token) in login.bad() {
            let response = server.ask_as(&format!("Bearer {token}"), &route, bob.named_in(path)).await;
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path} with {what}");
            let body = text(response).await;
            assert!(body.contains("\"unauthenticated\"") && !body.contains(CANARY), "{body}");
            assert!(!body.contains(&token), "{body}");
            seen += 1;
        }
    }
    assert!(seen > 200, "{seen}");
    server.engine.stop().await;
}

/// The tests of all routes take them from the OpenAPI document, so a route that is not described would not be tested.
#[test]
fn b5_every_route_is_described() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/http");
    for file in std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let Ok(source) = std::fs::read_to_string(&file) else { continue }; // a folder
        let bare = source.matches(".route(").count();
        // The one in mod.rs is `/healthz` for connections beyond the limit.
        let allowed = usize::from(file.ends_with("mod.rs"));
        assert_eq!(bare, allowed, "{}: use `.routes(routes!(…))`", file.display());
    }
}
