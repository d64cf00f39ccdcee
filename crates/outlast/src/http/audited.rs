//! Writes a line of the audit log for every request that may change something and whose caller is known.
//!
//! This is one layer around all routes, so a new route is in the log without doing anything. The routes of
//! [`NOT_AUDITED`] are used many times a second and only continue what a line of the log began.

use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use sha2::{Digest as _, Sha256};

use super::App;
use crate::audit::Action;
use crate::auth::{Principal, hex};

/// What a worker sends while it produces an answer. Its claim is in the log.
const NOT_AUDITED: [&str; 2] = ["/v1/generations/{id}/events", "/v1/generations/{id}/heartbeat"];

/// Where the caller is left for the log.
#[derive(Clone, Default)]
struct Slip(Arc<OnceLock<Principal>>);

/// Notes who makes this request.
pub(super) fn note(parts: &Parts, principal: &Principal) {
    if let Some(Slip(slip)) = parts.extensions.get() {
        slip.get_or_init(|| principal.clone());
    }
}

pub(crate) async fn layer(State(app): State<App>, request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(request.method());
    let Some(route) = route.filter(|route| !reads && !NOT_AUDITED.contains(&route.as_str())) else {
        return next.run(request).await;
    };
    let slip = Slip::default();
    let hash: Arc<Mutex<Sha256>> = Arc::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(slip.clone());
    let action = format!("{} {route}", parts.method);
    // A path with a key in it names no other object.
    let object = if route.contains("{key}") { route } else { parts.uri.path().to_owned() };
    let hashed = Hashed { body: UnsyncBoxBody::new(body), hash: hash.clone() };
    let response = next.run(Request::from_parts(parts, Body::new(hashed))).await;
    if let Some(principal) = slip.0.get() {
        let arguments = hash.lock().unwrap_or_else(PoisonError::into_inner).clone().finalize();
        let result = response.status().as_u16();
        let action = Action::of(principal, app.auth().now(), action);
        app.audit().record(&Action { object, arguments: Some(hex(&arguments)), result, ..action });
    }
    response
}

/// A body that is hashed while it is read.
struct Hashed {
    body: UnsyncBoxBody<Bytes, axum::Error>,
    hash: Arc<Mutex<Sha256>>,
}

impl HttpBody for Hashed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(bytes) = frame.data_ref()
        {
            self.hash.lock().unwrap_or_else(PoisonError::into_inner).update(bytes);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
