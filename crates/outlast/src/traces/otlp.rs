//! Traces as OTLP writes them in JSON.

use serde_json::{Value, json};

use super::nanoseconds;
use super::spans::{Attribute, Span, Trace};

/// Work inside of the server.
const INTERNAL: u8 = 1;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// The body of `POST /v1/traces`.
pub(super) fn document(traces: &[Trace], instance: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", Attribute::from("outlast")),
        ("service.version", Attribute::from(version)),
        ("service.instance.id", Attribute::from(instance)),
    ];
    let spans: Vec<Value> =
        traces.iter().flat_map(|trace| trace.spans.iter().map(|span| written(&trace.id, span))).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{"scope": {"name": "outlast", "version": version}, "spans": spans}],
    }]})
}

fn written(trace: &str, span: &Span) -> Value {
    json!({
        "traceId": trace,
        "spanId": span.id,
        "parentSpanId": span.parent.as_deref().unwrap_or_default(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes(&span.attributes),
        "status": {"code": if span.failed { ERROR } else { OK }},
    })
}

fn attributes(list: &[(&'static str, Attribute)]) -> Vec<Value> {
    let value = |attribute: &Attribute| match attribute {
        Attribute::Text(text) => json!({"stringValue": text}),
        Attribute::Number(number) => json!({"intValue": number.to_string()}),
    };
    list.iter().map(|(key, attribute)| json!({"key": key, "value": value(attribute)})).collect()
}
