//! Checks of the source tree: dependencies between crates, what the core must not use, the length of files and
//! functions, and that documents match the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use outlast_core::Event;

/// The maximum number of lines in a file before its tests.
const FILE_LINES_MAX: usize = 400;
/// The maximum number of lines in a function: about a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Generated folders, which are not checked.
const MADE: &[&str] = &["target", "node_modules", ".venv", "outlast-data", "results", ".git"];

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace exists")
}

struct File {
    /// Relative to the root of the workspace.
    path: String,
    text: String,
}

/// Every text file of the workspace, sorted by path.
fn files() -> Vec<File> {
    let root = root();
    let mut files = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("a folder can be read to its end").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if MADE.contains(&name.as_str()) {
                continue; // `.git` may also be a file, in a worktree
            }
            if path.is_dir() {
                folders.push(path);
            } else if let (true, Ok(text)) = (path.is_file(), fs::read_to_string(&path)) {
                let path =
                    path.strip_prefix(&root).expect("it is in the root").to_string_lossy().into_owned();
                files.push(File { path, text });
            }
        }
    }
    files.retain(|file| !file.path.ends_with(".log"));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// The sources of the crates; `of` is a crate's name, or nothing for all of them.
fn sources(of: &str) -> Vec<File> {
    let mut files = files();
    files.retain(|file| {
        let ours = file.path.starts_with(&format!("crates/{of}")) && file.path.contains("/src/");
        ours && file.path.ends_with(".rs")
    });
    assert!(!files.is_empty(), "no sources of {of:?}");
    files
}

/// The sources of the client package, the web app and the Convex functions, without generated files.
fn typescript() -> Vec<File> {
    let mut files = files();
    files.retain(|file| {
        let folders = ["client/src/", "ui/src/", "convex/functions/", "convex/test/"];
        let ours = folders.iter().any(|folder| file.path.starts_with(folder));
        let written = !file.text.lines().take(10).any(|line| line.contains("auto-generated"));
        ours && written && (file.path.ends_with(".ts") || file.path.ends_with(".tsx"))
    });
    assert!(!files.is_empty(), "no TypeScript was found");
    files
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The lines before the tests of a file.
fn before_tests(text: &str) -> impl Iterator<Item = &str> {
    let tests = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..tests].lines()
}

fn assert_none(what: &str, found: &[String]) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

fn dependencies(name: &str) -> BTreeSet<String> {
    let manifest: toml::Table =
        read(&format!("crates/{name}/Cargo.toml")).parse().expect("a manifest is TOML");
    let table = manifest.get("dependencies").and_then(toml::Value::as_table);
    table.map(|table| table.keys().cloned().collect()).unwrap_or_default()
}

#[test]
fn each_crate_depends_only_on_those_below_it() {
    let below = ["outlast-core", "outlast-store", "outlast-engine", "outlast"];
    for (place, name) in below.iter().enumerate() {
        let all = dependencies(name);
        let ours: BTreeSet<&str> =
            all.iter().map(String::as_str).filter(|other| other.starts_with("outlast")).collect();
        let allowed: BTreeSet<&str> = below[..place].iter().copied().collect();
        assert!(ours.is_subset(&allowed), "{name} depends on {ours:?}");
    }
}

#[test]
fn the_core_has_no_dependency_with_a_clock_a_network_or_tasks() {
    let allowed = ["jiff", "memchr", "serde", "serde_json", "sha2", "thiserror", "utoipa"];
    let found: Vec<String> =
        dependencies("outlast-core").into_iter().filter(|name| !allowed.contains(&name.as_str())).collect();
    assert_none("the core depends on", &found);
    assert!(dependencies("outlast-engine").is_disjoint(&["axum", "rusqlite"].map(str::to_owned).into()));
    assert!(dependencies("outlast-store").is_disjoint(&["axum"].map(str::to_owned).into()));
    // Convex is the only store that is reached over HTTP.
    let over_http = sources("outlast-store/src/").into_iter().filter(|file| file.text.contains("reqwest"));
    let found: Vec<String> =
        over_http.map(|file| file.path).filter(|path| !path.contains("src/convex")).collect();
    assert_none("a store uses HTTP", &found);
}

#[test]
fn the_core_uses_no_clock_no_randomness_and_no_io() {
    let forbidden = [
        "SystemTime",
        "Instant",
        "Timestamp::now",
        "std::fs",
        "std::net",
        "std::env",
        "std::io",
        "std::thread",
        "std::process",
        "tokio",
        "async fn",
        "async move",
        ".await",
        "rand::",
        "RandomState",
        "HashMap",
    ];
    let mut found = Vec::new();
    for file in sources("outlast-core/") {
        if ["/proofs", "/testing"].iter().any(|tests| file.path.contains(tests)) {
            continue;
        }
        for line in before_tests(&file.text).filter(|line| !line.trim_start().starts_with("//")) {
            let words = forbidden.iter().filter(|word| line.contains(*word));
            found.extend(words.map(|word| format!("{}: {word}", file.path)));
        }
    }
    assert_none("forbidden in the core", &found);
}

#[test]
fn every_queue_has_a_limit() {
    let word = concat!("un", "bounded");
    let found: Vec<String> =
        sources("").into_iter().filter(|file| file.text.contains(word)).map(|file| file.path).collect();
    assert_none("something without a limit", &found);
}

#[test]
fn files_are_short() {
    let mut found = Vec::new();
    for file in sources("").into_iter().chain(typescript()).filter(|file| !file.path.ends_with("/tests.rs")) {
        let lines = before_tests(&file.text).count();
        if lines > FILE_LINES_MAX {
            found.push(format!("{}: {lines} lines before its tests", file.path));
        }
    }
    assert_none(&format!("files of more than {FILE_LINES_MAX} lines"), &found);
}

#[test]
fn functions_fit_a_screen() {
    let mut found = Vec::new();
    for file in sources("").into_iter().chain(typescript()) {
        let lines: Vec<&str> = file.text.lines().collect();
        let begins = if file.path.ends_with(".rs") { begins_function } else { begins_typescript_function };
        for (first, line) in lines.iter().enumerate().filter(|(_, line)| begins(line)) {
            let mut signature = lines[first..].iter().map(|line| line.trim_end());
            if signature.find(|line| line.ends_with(['{', ';', '}'])).is_some_and(|line| line.ends_with(';'))
            {
                continue; // a declaration without a body
            }
            let indent = &line[..line.len() - line.trim_start().len()];
            // Formatters indent the closing brace like the first line; a one-line function has no such line.
            let last = ["}", ";", "};", "});"].map(|end| format!("{indent}{end}"));
            let is_last = |line: &&str| last.iter().any(|last| last == *line);
            let length = match lines[first..].iter().position(is_last) {
                Some(last) if !line.ends_with('}') && !line.ends_with(';') => last + 1,
                _ => 1,
            };
            if length > FUNCTION_LINES_MAX {
                found.push(format!("{}:{}: {length} lines", file.path, first + 1));
            }
        }
    }
    assert_none(&format!("functions of more than {FUNCTION_LINES_MAX} lines"), &found);
}

fn begins_function(line: &str) -> bool {
    let before = line.trim_start().split("fn ").next().unwrap_or_default();
    let words = ["pub", "pub(crate)", "pub(super)", "const", "async"];
    line.contains("fn ") && before.split_whitespace().all(|word| words.contains(&word))
}

/// Functions, methods and arrow functions with a body.
fn begins_typescript_function(line: &str) -> bool {
    let text = line.trim_start();
    let words =
        ["export ", "default ", "async ", "private ", "public ", "protected ", "static ", "readonly "];
    let mut rest = text;
    while let Some(word) = words.iter().find(|word| rest.starts_with(*word)) {
        rest = &rest[word.len()..];
    }
    let controls = ["if ", "for ", "while ", "switch ", "catch ", "return ", "}"];
    let is_method = || {
        let name = rest.split(['(', '<']).next().unwrap_or_default();
        let named =
            !name.is_empty() && name.chars().all(|letter| letter.is_alphanumeric() || "_$#".contains(letter));
        named && rest.contains('(') && !controls.iter().any(|control| rest.starts_with(control))
    };
    rest.starts_with("function ")
        || rest.starts_with("const ") && rest.contains("=> {")
        || is_method() && rest.ends_with('{')
}

#[test]
fn typescript_has_no_any() {
    let mut found = Vec::new();
    for file in typescript() {
        for (number, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let is_comment = code.trim_start().starts_with('*') || code.trim_start().starts_with("/*");
            let any = [": any", "<any", "as any", "any[]", ", any>", "| any"];
            let ends = |at: usize, word: &str| {
                !code[at + word.len()..].starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
            };
            let is_any = any.iter().any(|word| code.match_indices(word).any(|(at, _)| ends(at, word)));
            if is_any && !is_comment {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert_none("uses of `any`", &found);
}

#[test]
fn every_event_is_in_the_protocol_and_in_a_fixture() {
    let protocol = read("PROTOCOL.md");
    let logs: Vec<File> = files().into_iter().filter(is_log).collect();
    assert!(!logs.is_empty(), "fixtures/ has no log");
    let mut seen = BTreeSet::new();
    for line in logs.iter().flat_map(|log| log.text.lines()) {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        seen.insert(event["type"].as_str().unwrap().to_owned());
    }
    for kind in Event::KINDS {
        assert!(protocol.contains(&format!("`{kind}`")), "PROTOCOL.md does not explain {kind}");
        assert!(protocol.contains(&format!("\"type\":\"{kind}\"")), "PROTOCOL.md shows no example of {kind}");
        assert!(seen.contains(*kind), "no log in fixtures/ has {kind}");
    }
}

fn is_log(file: &File) -> bool {
    file.path.starts_with("fixtures/") && file.path.ends_with(".jsonl")
}

#[test]
fn the_examples_of_the_protocol_are_events_that_this_version_reads() {
    let protocol = read("PROTOCOL.md");
    let examples: Vec<&str> = protocol.lines().filter(|line| line.starts_with("{\"seq\":")).collect();
    assert!(examples.len() > Event::KINDS.len());
    for example in examples.iter().filter(|example| !example.contains("\"type\":\"snapshot\"")) {
        let entry =
            outlast_core::decode(example.as_bytes()).unwrap_or_else(|error| panic!("{example}: {error}"));
        assert_eq!(String::from_utf8(outlast_core::encode(&entry)).unwrap(), *example);
    }
}

#[test]
fn no_file_contains_a_path_of_the_machine_it_was_written_on() {
    let paths = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("/wo", "rk/")];
    let mut found = Vec::new();
    for file in files() {
        for (number, line) in file.text.lines().enumerate() {
            if paths.iter().any(|path| line.contains(path)) {
                found.push(format!("{}:{}: {}", file.path, number + 1, line.trim()));
            }
        }
    }
    assert_none("paths of one machine", &found);
}

#[test]
fn nothing_is_left_for_later() {
    let word = concat!("TO", "DO");
    let found: Vec<String> =
        files().into_iter().filter(|file| file.text.contains(word)).map(|file| file.path).collect();
    assert_none("work that was left", &found);
}

#[test]
fn every_link_between_documents_resolves() {
    let root = root();
    let mut found = Vec::new();
    for file in files().into_iter().filter(|file| file.path.ends_with(".md")) {
        let here = root.join(&file.path);
        let folder = here.parent().unwrap();
        for target in links(&file.text).into_iter().filter(|target| !target.contains("://")) {
            let path = target.split('#').next().unwrap_or_default();
            if !path.is_empty() && !path.starts_with("mailto:") && !folder.join(path).exists() {
                found.push(format!("{}: {target}", file.path));
            }
        }
    }
    assert_none("broken links", &found);
}

/// The targets of the links in a document, except in code.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut in_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let said = line.split('`').step_by(2); // between backticks is code
        for piece in said.flat_map(|said| said.split("](").skip(1).collect::<Vec<_>>()) {
            links.extend(piece.split(')').next().map(|target| target.trim().to_owned()));
        }
    }
    links
}

#[test]
fn every_requirement_is_proved_and_every_code_in_a_test_name_can_be_looked_up() {
    let page = read("docs/requirements.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let (linked, stated): (Vec<_>, Vec<_>) =
        rows.filter(|(code, _)| is_code(&code.to_lowercase())).partition(|(_, says)| says.contains("]("));
    let proved: BTreeSet<String> = files()
        .into_iter()
        .filter(|file| file.path.ends_with(".rs"))
        .flat_map(|file| file.text.split("fn ").skip(1).flat_map(codes).collect::<Vec<_>>())
        .collect();
    let unproved = stated.iter().map(|(code, _)| code.to_lowercase()).filter(|code| !proved.contains(code));
    assert_none("requirements without a test", &unproved.collect::<Vec<_>>());
    let known: BTreeSet<String> = linked.iter().chain(&stated).map(|(code, _)| code.to_lowercase()).collect();
    let unknown: Vec<String> = proved.difference(&known).cloned().collect();
    assert_none("codes that docs/requirements.md does not explain", &unknown);
}

/// The codes at the beginning of a function's name: `g5` and `i9` of `g5_i9_one_of_ten_cancels_wins`.
fn codes(name: &str) -> impl Iterator<Item = String> + '_ {
    name.split('_').take_while(|word| is_code(word)).map(str::to_owned)
}

fn is_code(word: &str) -> bool {
    let number = word.strip_prefix(['g', 'o', 's', 'b', 'p', 'x', 'i']);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}
