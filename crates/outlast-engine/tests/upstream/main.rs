//! Upstreams that misbehave, at the level of bytes: a raw server plays a script, and the tests check what the
//! engine recorded. Each row of the table in docs/models.md is one of these tests.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may panic")]

mod answers;
mod bench;
mod cancels;
mod connections;
mod cuts;
mod early;
mod keys;
mod prefill;
mod seeds;
mod server;
mod silence;
mod statuses;
mod streams;

#[test]
fn every_test_in_the_table_of_the_docs_exists() {
    let here = env!("CARGO_MANIFEST_DIR");
    let table = std::fs::read_to_string(format!("{here}/../../docs/models.md")).unwrap();
    let table = table.split("## What happens when an upstream misbehaves").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| the upstream"));
    let named: Vec<&str> =
        rows.flat_map(|row| row.rsplit('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect();
    assert!(named.len() > 20, "{named:?}");
    let files = std::fs::read_dir(format!("{here}/tests/upstream")).unwrap();
    let sources: String = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    for name in named {
        assert!(sources.contains(&format!("async fn {name}()")), "there is no test {name}");
    }
}
