//! The OpenAPI document. Handlers describe themselves; this file adds what is common to all of them.

use std::sync::LazyLock;

use utoipa::openapi::header::HeaderBuilder;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{
    AdditionalProperties, Components, KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type,
};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder};
use utoipa::{OpenApi as _, ToSchema as _};

use super::body::REQUEST_ID_BYTES_MAX;
use super::events::{Format, StreamEvent};
use super::problem::ProblemDocument;
use super::tools::StreamName;

/// As it is served at `/openapi.json`.
pub(crate) static DOCUMENT: LazyLock<String> = LazyLock::new(|| {
    let (_, mut document) = super::routes().split_for_parts();
    complete(&mut document);
    let mut json = document.to_pretty_json().expect("an OpenAPI document has string keys");
    json.push('\n');
    json
});

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Outlast",
        description = "Once a message is sent, the server finishes the answer and keeps it, whatever the client \
            does. Any number of clients may follow it, reconnect at the exact position, or cancel it. PROTOCOL.md \
            explains how to write a client.\n\nFields are camelCase, ids are opaque strings, times are RFC 3339 in \
            UTC. Errors are problem documents (RFC 9457) with a stable `code`. A query parameter without a value \
            counts as absent.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "Generations", description = "Start, read and stop generations."),
        (name = "Conversations", description = "Conversations and their messages."),
        (name = "Files", description = "The workspace that tools work in."),
        (name = "Events", description = "Follow what happens, by SSE, polling or WebSocket."),
        (name = "Approvals", description = "Decide about tool calls."),
        (name = "Workers", description = "Produce answers outside the server."),
        (name = "Jobs", description = "Chat completions, in the foreground or in the background."),
        (name = "Users", description = "Log in from a browser."),
        (name = "Server", description = "Health, capabilities, models."),
    ),
    components(schemas(Format, ProblemDocument, StreamEvent, StreamName)),
)]
struct Frame;

pub(crate) fn frame() -> OpenApi {
    Frame::openapi()
}

fn complete(document: &mut OpenApi) {
    // OpenAPI has no name for a parameter that spans several segments; a client encodes the slashes or leaves them.
    let paths = std::mem::take(&mut document.paths.paths);
    document.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    let components = document.components.get_or_insert_default();
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            parameters(path, method, operation);
            problems(path, operation);
            security(operation);
            if let Some(RefOr::T(body)) = &mut operation.request_body {
                body.required =
                    Some(if needs_fields(body, components) { Required::True } else { Required::False });
            }
        }
    }
    let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(
        "An API key or a JWT. The names beside it are the scopes that it needs. A server without keys serves one user, \
         `local`, and needs none.",
    ));
    for name in ["Event", "Part"] {
        components.schemas.get_mut(name).into_iter().for_each(camel_case);
    }
    components.schemas.get_mut("WorkerEvent").into_iter().for_each(close);
    components.add_security_scheme("key", SecurityScheme::Http(key.build()));
}

/// A server without keys asks nobody. What never needs a key says so.
fn security(operation: &mut Operation) {
    match &mut operation.security {
        Some(keys) => keys.insert(0, SecurityRequirement::default()),
        None => operation.security = Some(Vec::new()),
    }
}

/// Renames the fields of enum variants, because utoipa ignores serde's `rename_all_fields`.
fn camel_case(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::OneOf(one)) => one.items.iter_mut().for_each(camel_case),
        RefOr::T(Schema::AllOf(all)) => all.items.iter_mut().for_each(camel_case),
        RefOr::T(Schema::Object(object)) => {
            object.required.iter_mut().for_each(|name| *name = camel(name));
            for (name, mut field) in std::mem::take(&mut object.properties) {
                camel_case(&mut field);
                object.properties.insert(camel(&name), field);
            }
        }
        _ => {}
    }
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        name + &head.to_ascii_uppercase() + tail
    })
}

/// Allows no other fields in enum variants, because utoipa ignores serde's `deny_unknown_fields` there.
fn close(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::OneOf(one)) => one.items.iter_mut().for_each(close),
        RefOr::T(Schema::Object(object)) => {
            object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(false)));
        }
        _ => {}
    }
}

/// Whether the body is required; an empty body counts as an empty object.
fn needs_fields(body: &RequestBody, components: &Components) -> bool {
    let content = body.content.values().find_map(|content| match content {
        RefOr::T(content) => content.schema.as_ref(),
        RefOr::Ref(_) => None,
    });
    let Some(RefOr::Ref(reference)) = content else { return true };
    let name = reference.ref_location.rsplit('/').next().unwrap_or_default();
    match components.schemas.get(name) {
        Some(RefOr::T(Schema::Object(object))) => !object.required.is_empty(),
        _ => true,
    }
}

fn operations(item: &mut PathItem) -> Vec<(&'static str, &mut Operation)> {
    let all = [
        ("get", &mut item.get),
        ("post", &mut item.post),
        ("put", &mut item.put),
        ("patch", &mut item.patch),
        ("delete", &mut item.delete),
    ];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?))).collect()
}

/// The ids in the path, and the headers that many routes accept.
fn parameters(path: &str, method: &str, operation: &mut Operation) {
    let streams = operation.responses.responses.values().any(|response| match response {
        RefOr::T(response) => response.content.contains_key("text/event-stream"),
        RefOr::Ref(_) => false,
    });
    let parameters = operation.parameters.get_or_insert_default();
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let ids = names.map(|name| {
        let schema = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1));
        let id = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        RefOr::T(id.schema(Some(schema)).build())
    });
    parameters.splice(0..0, ids);
    if method == "post" {
        parameters.push(RefOr::T(idempotency_key()));
    }
    if streams && method == "get" {
        parameters.push(RefOr::T(last_event_id()));
    }
    if parameters.is_empty() {
        operation.parameters = None;
    }
}

fn idempotency_key() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::String)
        .min_length(Some(1))
        .max_length(Some(REQUEST_ID_BYTES_MAX))
        .pattern(Some(r"^[\x21-\x7e]+$"));
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .description(Some("The same as `requestId` in the body, which takes precedence. Repeating a request does nothing twice."))
        .schema(Some(schema))
        .build()
}

fn last_event_id() -> Parameter {
    let schema = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
        .minimum(Some(0));
    ParameterBuilder::new()
        .name("Last-Event-ID")
        .parameter_in(ParameterIn::Header)
        .description(Some("The same as `after`; browsers send it when they reconnect."))
        .schema(Some(schema))
        .build()
}

/// The problems that every route of a kind can return, and their document.
fn problems(path: &str, operation: &mut Operation) {
    let mut common = vec![("403", "`foreign_origin`, or `forbidden`: the key lacks a scope.")];
    if operation.security.is_some() {
        common.push(("401", "`unauthenticated`."));
    }
    if path.contains('{') {
        common.push(("404", "`not_found`: not found, or it belongs to another user."));
    }
    let parameters = operation.parameters.iter().flatten();
    let checked = parameters.clone().any(|parameter| match parameter {
        RefOr::T(parameter) => parameter.parameter_in != ParameterIn::Path,
        RefOr::Ref(_) => false,
    });
    if operation.request_body.is_some() {
        common.push(("400", "`invalid_json`, or `invalid_request` if the body was cut off."));
        common.push(("413", "`too_large`."));
    }
    if operation.request_body.is_some() || checked {
        common.push((
            "422",
            "`invalid_request`: a field or parameter is unknown, missing or wrong; `field` names it.",
        ));
    }
    if path.starts_with("/v1/") || path == "/readyz" {
        common.push(("500", "`store_broken`."));
        common.push(("503", "`store_unavailable`, `draining`, or `limit_reached` if the server is full."));
    }
    let responses = &mut operation.responses.responses;
    for (status, description) in common {
        let add = || RefOr::T(ResponseBuilder::new().description(description).build());
        responses.entry(status.to_owned()).or_insert_with(add);
    }
    for (status, response) in responses.iter_mut() {
        if let RefOr::T(response) = response
            && status.as_str() >= "400"
        {
            as_problem(status, response);
        }
    }
}

fn as_problem(status: &str, response: &mut Response) {
    if response.content.is_empty() {
        let problem = Ref::from_schema_name(ProblemDocument::name());
        let content = ContentBuilder::new().schema(Some(problem)).build();
        response.content.insert("application/problem+json".to_owned(), content.into());
    }
    if status == "429" || status == "503" {
        let seconds = ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(0));
        let header =
            HeaderBuilder::new().schema(Some(seconds)).description(Some("Seconds to wait before a retry."));
        response.headers.insert("Retry-After".to_owned(), header.build().into());
    }
}
