//! Plain responses: everything that is not a stream.

/// A JSON response with its length, so that the connection can be used again.
pub(crate) fn json(status: u16, body: &str, retry_after: Option<u64>) -> Vec<u8> {
    let retry = retry_after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: application/json\r\n{retry}content-length: {}\r\n\r\n{body}",
        reason(status),
        body.len(),
    )
    .into_bytes()
}

/// An error in the shape OpenAI gives it.
pub(crate) fn error(status: u16, message: &str, retry_after: Option<u64>) -> Vec<u8> {
    let kind = match status {
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    };
    let body = serde_json::json!({"error": {"message": message, "type": kind, "code": status}});
    json(status, &body.to_string(), retry_after)
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Scripted",
    }
}
