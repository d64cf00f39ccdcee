//! Upstreams that respond before they have read the whole request.

use std::collections::BTreeMap;

use futures_util::StreamExt;
use outlast_core::{Context, ContextMessage, Failure, Part, Piece, Role};
use outlast_engine::{Arrived, Model, OpenAiModel, Secret, UpstreamSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::bench::Kind;
use crate::streams::{ends, says};

/// More than fits into the buffers of a connection.
const LONG_BYTES: usize = 32 * 1024 * 1024;

/// What the upstream does after the head of its response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Leaves,
    Stays,
    ReadsOn,
}

/// The result of a long request to an upstream that sends `head` after the first bytes and `tail` at the end.
async fn asked(head: String, tail: String, then: Then) -> Result<String, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let model = OpenAiModel::new(UpstreamSettings {
        base_url: Secret::new(format!("http://{}", listener.local_addr().unwrap())),
        model: "m".into(),
        api_key: None,
        headers: BTreeMap::new(),
        max_tokens: None,
    });
    let parts = vec![Part::Text { text: "x".repeat(LONG_BYTES) }];
    let messages = vec![ContextMessage { role: Role::User, parts }];
    let mut stream = model.unwrap().call(Context { messages, ..Context::default() });
    let serving = async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.read_exact(&mut [0; 20]).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        if then == Then::ReadsOn {
            connection.read_exact(&mut vec![0; LONG_BYTES]).await.unwrap();
            connection.write_all(tail.as_bytes()).await.unwrap();
        }
        (then != Then::Leaves).then_some(connection)
    };
    let reading = async {
        let mut said = String::new();
        loop {
            match stream.next().await.unwrap()? {
                Arrived::Piece(Piece::Text { text, .. }) => said.push_str(&text),
                Arrived::Finished { .. } => return Ok(said),
                _ => {}
            }
        }
    };
    tokio::join!(serving, reading).1
}

#[tokio::test]
async fn a_refusal_before_the_request_was_read_is_understood() {
    let refused = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo long";
    for then in [Then::Stays, Then::Leaves] {
        let failure = asked(refused.into(), String::new(), then).await.unwrap_err();
        assert_eq!(failure.message, "upstream responded with 413: too long", "{then:?}");
    }
}

#[tokio::test]
async fn an_answer_that_starts_before_the_request_was_read_is_complete() {
    let (head, tail) =
        (says(Kind::OpenAi, "Hé"), format!("{}{}", says(Kind::OpenAi, "llo"), ends(Kind::OpenAi)));
    let length = head.len() + tail.len();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{head}");
    assert_eq!(asked(head, tail, Then::ReadsOn).await.unwrap(), "Héllo");
}
