//! A model that continues a partial answer: the text is kept, and shown once.

use std::collections::{BTreeMap, BTreeSet};

use outlast_core::Rules;
use outlast_engine::Settings;
use serde_json::Value;

use crate::bench::{Bench, KINDS, Kind};
use crate::server::{Act, events};
use crate::streams::{ends, says};

/// The role and text of the last message in a request.
fn last_message(request: &str) -> (String, String) {
    let (_, body) = request.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    let last = body["messages"].as_array().unwrap().last().unwrap().clone();
    let text = last["content"].as_str().or(last["content"][0]["text"].as_str());
    (last["role"].as_str().unwrap().to_owned(), text.unwrap().to_owned())
}

async fn prefilled(kind: Kind) -> Bench {
    let prefill = BTreeSet::from(["default".to_owned()]);
    let settings = Settings { rules: Rules { prefill, ..Rules::default() }, ..Settings::default() };
    Bench::with(kind, settings, BTreeMap::new()).await
}

#[tokio::test]
async fn g11_with_prefill_a_failed_answer_continues_from_its_last_word() {
    for kind in KINDS {
        let bench = prefilled(kind).await;
        let breaks = |text: &str| vec![Act::Send(events(&says(kind, text)))];
        let rest = vec![Act::Send(events(&format!("{}{}", says(kind, " sat down."), ends(kind))))];
        let outcome = bench.run(vec![breaks("The cat"), breaks(" then"), rest]).await;
        assert_eq!(outcome.told(), ("stop", "The cat then sat down.", 3));
        assert_eq!(outcome.retracted, 0, "nothing is withdrawn");
        let given: Vec<_> = bench.upstream.requests().iter().map(|request| last_message(request)).collect();
        let given: Vec<_> = given.iter().map(|(role, text)| (role.as_str(), text.as_str())).collect();
        assert_eq!(given, [("user", "hello"), ("assistant", "The cat"), ("assistant", "The cat then")]);
    }
}

#[tokio::test]
async fn g11_without_prefill_a_failed_answer_starts_over() {
    for kind in KINDS {
        let bench = Bench::new(kind).await;
        let breaks = vec![Act::Send(events(&says(kind, "The cat")))];
        let whole = vec![Act::Send(events(&format!("{}{}", says(kind, "A dog."), ends(kind))))];
        let outcome = bench.run(vec![breaks, whole]).await;
        assert_eq!((outcome.told(), outcome.retracted), (("stop", "A dog.", 2), 1));
        assert_eq!(last_message(&bench.upstream.requests()[1]).0, "user");
    }
}
