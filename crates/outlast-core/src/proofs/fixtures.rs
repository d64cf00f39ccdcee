//! The logs in `fixtures/` and the views they fold to, both here and in the TypeScript client.
//!
//! `OUTLAST_WRITE_FIXTURES=1` writes those of this version. The ones in `fixtures/first/` were written by the
//! first version and are never edited: a log outlives the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use super::scenarios::SCENARIOS;
use crate::testing::*;
use crate::{ConversationView, Entry, Event, Head, Transcript, decode, encode, head};

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "../../fixtures"].iter().collect()
}

fn path(name: &str, ending: &str) -> PathBuf {
    folder().join(format!("{name}.{ending}"))
}

/// Every fixture, of this version and of the first, by name.
pub(crate) fn logs() -> Vec<(String, Vec<Entry>)> {
    let now = SCENARIOS.iter().map(|(name, _)| ((*name).to_owned(), read(name)));
    let first = first_names().into_iter().map(|name| (format!("first/{name}"), read_first(&name)));
    now.chain(first).collect()
}

fn first_names() -> Vec<String> {
    let files = fs::read_dir(folder().join("first")).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> =
        names.filter_map(|name| Some(name.strip_suffix(".jsonl")?.to_owned())).collect();
    names.sort_unstable();
    names
}

/// A log as the first version wrote it.
pub(crate) fn read_first(name: &str) -> Vec<Entry> {
    read(&format!("first/{name}"))
}

fn read(name: &str) -> Vec<Entry> {
    let path = path(name, "jsonl");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| decode(line.as_bytes()).unwrap()).collect()
}

fn compare_or_write(name: &str, ending: &str, written: &str) {
    let path = path(name, ending);
    if std::env::var_os("OUTLAST_WRITE_FIXTURES").is_some() {
        fs::write(&path, written).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(there, written, "{} is not what the code writes now", path.display());
}

#[test]
fn the_code_writes_the_logs_and_views_that_are_checked_in() {
    for (name, scenario) in SCENARIOS {
        let world = scenario();
        let lines = world.log.iter().map(|entry| String::from_utf8(encode(entry)).unwrap() + "\n");
        compare_or_write(name, "jsonl", &lines.collect::<String>());

        let mut transcript = Transcript::new(nothing_yet());
        let mut changes = Vec::new();
        for entry in &read(name) {
            let before = transcript.view();
            transcript.apply(entry);
            changes.push(change(&before, &transcript.view()));
        }
        compare_or_write(name, "views.json", &format!("[\n{}\n]\n", changes.join(",\n")));
        assert_eq!(transcript.view(), world.view(), "{name}: what lived and what was read differ");
        let view = serde_json::to_string_pretty(&transcript.view()).unwrap() + "\n";
        compare_or_write(name, "view.json", &view);
    }
}

/// The fields of a view that an event changed, as one line.
fn change(before: &ConversationView, after: &ConversationView) -> String {
    let (before, after) = (serde_json::to_value(before).unwrap(), serde_json::to_value(after).unwrap());
    let fields = after.as_object().unwrap().iter().filter(|(name, field)| before[name] != **field);
    serde_json::to_string(&fields.collect::<BTreeMap<_, _>>()).unwrap()
}

#[test]
fn the_logs_of_the_first_version_fold_to_the_same_views() {
    assert_eq!(first_names().len(), 39);
    for name in first_names() {
        let mut transcript = Transcript::new(nothing_yet());
        read_first(&name).iter().for_each(|entry| transcript.apply(entry));
        let view = fs::read_to_string(folder().join("first").join(format!("{name}.view.json"))).unwrap();
        let expected: serde_json::Value = serde_json::from_str(&view).unwrap();
        assert_eq!(serde_json::to_value(transcript.view()).unwrap(), expected, "{name}");
    }
}

#[test]
fn every_file_in_the_folder_belongs_to_a_scenario() {
    let known: BTreeSet<String> = SCENARIOS
        .iter()
        .flat_map(|(name, _)| ["jsonl", "view.json", "views.json"].map(|ending| format!("{name}.{ending}")))
        .chain(["README.md".to_owned(), "first".to_owned()])
        .collect();
    let files = fs::read_dir(folder()).unwrap();
    let there: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(there, known);
}

#[test]
fn every_kind_of_event_is_in_a_fixture() {
    let logs = SCENARIOS.iter().flat_map(|(name, _)| read(name));
    let seen: BTreeSet<String> = logs.map(|entry| kind(&entry)).collect();
    let all: BTreeSet<String> = Event::KINDS.iter().map(|kind| (*kind).to_owned()).collect();
    assert_eq!(seen, all);
}

#[test]
fn every_line_reads_back_to_the_same_bytes() {
    for (name, _) in SCENARIOS {
        for line in fs::read_to_string(path(name, "jsonl")).unwrap().lines() {
            let entry = decode(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(encode(&entry)).unwrap(), line);
            let head = head(line.as_bytes()).unwrap();
            assert_eq!(head.is_end(), entry.event.is_end());
            assert_eq!(head, Head::of(&entry));
        }
    }
}

#[test]
fn every_event_may_gain_fields_without_confusing_this_version() {
    for (name, _) in SCENARIOS {
        for line in fs::read_to_string(path(name, "jsonl")).unwrap().lines() {
            let mut later: serde_json::Value = serde_json::from_str(line).unwrap();
            let novelty = serde_json::json!({"deep": [1, {"er": null}]});
            later["novelty"] = novelty.clone();
            later["payload"]["novelty"] = novelty.clone();
            if later["payload"]["message"].is_object() {
                later["payload"]["message"]["novelty"] = novelty;
            }
            // This sorts the fields by name. Readers may rely on their order, but any order must be accepted.
            let later = serde_json::to_vec(&later).unwrap();
            assert_eq!(decode(&later).unwrap(), decode(line.as_bytes()).unwrap());
            assert_eq!(head(&later).unwrap(), head(line.as_bytes()).unwrap());
        }
    }
}
