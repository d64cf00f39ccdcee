//! Events in the form that the SDK of Inngest sends: `inngest.send({ name: "chat/message.sent", data })` starts a
//! generation.

use axum::extract::Request;
use axum::http::HeaderMap;
use outlast_core::GenerationId;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::App;
use super::body::{self, RequestName};
use super::caller::{Caller, Write};
use super::error::Problem;
use super::generations::StartBody;

/// The event that starts a generation.
const MESSAGE_SENT: &str = "chat/message.sent";
/// The maximum number of events in one request. Each is a generation.
const EVENTS_MAX: usize = 100;
/// New for every call of `send`, and the same when the SDK repeats a request.
const SEED: &str = "x-inngest-event-id-seed";

pub(crate) fn router() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(receive))
}

/// One event. Fields that are not named here are ignored, as newer versions of the SDK may add some.
#[derive(Deserialize, ToSchema)]
pub(crate) struct InngestEvent {
    /// `chat/message.sent`.
    name: String,
    /// The same as the body of `POST /v1/generations`.
    #[schema(value_type = StartBody)]
    data: Value,
    /// Idempotency key: repeating the event starts nothing new.
    id: Option<RequestName>,
}

/// One event or a list of them.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum InngestEvents {
    Many(Vec<InngestEvent>),
    One(Box<InngestEvent>),
}

#[derive(Serialize, ToSchema)]
pub(crate) struct InngestReceipt {
    /// The generations, in the order of the events.
    ids: Vec<GenerationId>,
    status: u16,
}

/// Receive events from Inngest's SDK
///
/// The SDK can send a key only in the path: set `INNGEST_EVENT_KEY` to an API key with the scope `write`, and
/// `INNGEST_BASE_URL` to the address of this server. A key in `Authorization` takes precedence.
#[utoipa::path(post, path = "/e/{key}", operation_id = "receiveEvents", tag = "Generations",
    security(("key" = ["write"])), request_body = InngestEvents,
    responses(
        (status = 200, body = InngestReceipt, description = "Started, now or by an earlier event with the same id."),
        (status = 409, description = "`conversation_busy` or `idempotency_conflict`."),
        (status = 429, description = "`limit_reached`."),
    ))]
async fn receive(
    caller: Caller<Write>,
    headers: HeaderMap,
    request: Request,
) -> Result<axum::Json<InngestReceipt>, Problem> {
    let events = events(&body::read(request, caller.app().0.body_bytes).await?)?;
    let seed = headers.get(SEED).and_then(|seed| seed.to_str().ok());
    let mut requests = Vec::new();
    for (place, event) in events.into_iter().enumerate() {
        requests.push(event.into_request(place, seed)?);
    }
    // All are checked before the first is started. The SDK repeats a request that failed half-way with the same ids.
    let mut ids = Vec::new();
    for body in requests {
        let request = caller.admit(body.into_request(&HeaderMap::new())?).await?;
        let started = caller.engine().start(caller.user(), request).await?;
        ids.push(started.generation);
    }
    Ok(axum::Json(InngestReceipt { ids, status: 200 }))
}

fn events(bytes: &[u8]) -> Result<Vec<InngestEvent>, Problem> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| body::not_json(&error))?;
    let wrong = "must be an event with `name` and `data`, or a list of events";
    let events = InngestEvents::deserialize(value).map_err(|_| Problem::invalid("", wrong))?;
    let events = match events {
        InngestEvents::Many(list) => list,
        InngestEvents::One(event) => vec![*event],
    };
    match events.len() {
        1..=EVENTS_MAX => Ok(events),
        _ => Err(Problem::invalid("", format!("must have 1 to {EVENTS_MAX} events"))),
    }
}

impl InngestEvent {
    /// An event without an id is named by the SDK's seed, so that a repeated request is still recognised.
    fn into_request(self, place: usize, seed: Option<&str>) -> Result<StartBody, Problem> {
        if self.name != MESSAGE_SENT {
            let known = format!("{place}.name");
            return Err(Problem::invalid(
                &known,
                format!("must be {MESSAGE_SENT:?}, the only supported event"),
            ));
        }
        let body = body::parse::<StartBody>(self.data.to_string().as_bytes())?;
        let seeded = seed.map(|seed| RequestName::new(format!("{seed}:{place}"))).transpose()?;
        Ok(body.named(self.id.or(seeded)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_limited_number_of_events() {
        let list = |count| Value::from(vec![serde_json::json!({"name": MESSAGE_SENT, "data": {}}); count]);
        assert_eq!(events(list(EVENTS_MAX).to_string().as_bytes()).ok().unwrap().len(), EVENTS_MAX);
        assert!(events(list(EVENTS_MAX + 1).to_string().as_bytes()).is_err());
    }
}
