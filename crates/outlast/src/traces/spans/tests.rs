use outlast_core::decode;

use super::*;

fn fixture(text: &str) -> Vec<Entry> {
    text.lines().map(|line| decode(line.as_bytes()).unwrap()).collect()
}

fn trace(entries: &[Entry]) -> Trace {
    let generation = entries.iter().find_map(|entry| entry.generation.clone()).unwrap();
    let own: Vec<Entry> =
        entries.iter().filter(|entry| entry.generation.as_ref() == Some(&generation)).cloned().collect();
    Trace::of(&generation, &own).unwrap()
}

/// The names of the spans, each below its parent.
fn tree(trace: &Trace, parent: Option<&str>) -> Vec<String> {
    let mut lines = Vec::new();
    for span in trace.spans.iter().filter(|span| span.parent.as_deref() == parent) {
        lines.push(format!("{}{}", span.name, if span.failed { " failed" } else { "" }));
        lines.extend(tree(trace, Some(&span.id)).into_iter().map(|line| format!("  {line}")));
    }
    lines
}

#[test]
fn x6_a_trace_has_the_rounds_attempts_and_tools_of_a_generation() {
    let trace = trace(&fixture(include_str!("../../../../../fixtures/agent-two-rounds.jsonl")));
    let lines = tree(&trace, None);
    assert_eq!(lines[0], "generation", "{lines:#?}");
    assert!(lines.contains(&"  round 1".to_owned()) && lines.contains(&"  round 2".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"    attempt".to_owned()), "{lines:#?}");
    assert!(lines.iter().any(|line| line.starts_with("    tool ")), "{lines:#?}");
    assert!(!lines.iter().any(|line| line.ends_with("failed")), "{lines:#?}");
}

#[test]
fn x6_a_round_that_was_retried_has_a_failed_attempt() {
    let trace = trace(&fixture(include_str!("../../../../../fixtures/agent-round-retried.jsonl")));
    let lines = tree(&trace, None);
    assert!(lines.contains(&"    attempt failed".to_owned()), "{lines:#?}");
    assert_eq!(lines[0], "generation", "it went well in the end: {lines:#?}");
}

#[test]
fn x6_the_spans_of_every_log_form_one_tree_within_the_time_of_their_generation() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
    let mut traced = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let entries = fixture(&std::fs::read_to_string(&path).unwrap());
        if !entries.iter().any(|entry| matches!(entry.event, Event::GenerationQueued { .. })) {
            continue;
        }
        let trace = trace(&entries);
        let root = &trace.spans[0];
        if !root.attributes.iter().any(|(name, _)| *name == "outlast.generation.status") {
            continue; // it is not over, and so has no trace yet
        }
        let ids: std::collections::BTreeSet<&str> = trace.spans.iter().map(|span| span.id.as_str()).collect();
        assert_eq!(ids.len(), trace.spans.len(), "{path:?}: ids are unique: {:#?}", trace.spans);
        for span in &trace.spans[1..] {
            assert!(ids.contains(span.parent.as_deref().unwrap()), "{path:?}: {span:?}");
            assert!(span.start >= root.start && span.end >= span.start, "{path:?}: {span:?}");
            assert!(span.end <= root.end, "{path:?}: {span:?}");
        }
        traced += 1;
    }
    assert!(traced > 20, "{traced}");
}
