//! What a server says that its tools are. Everything in it is untrusted: it is checked before anybody reads it.

use std::collections::BTreeMap;

use outlast_core::{DEPTH_MAX, SERVER_SEPARATOR, ToolSpec, depth};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The most tools of one server. Models choose badly among more, and every call would carry all of them.
pub(super) const TOOLS_MAX: usize = 128;
/// The size of all descriptions and schemas of one server, which a model is sent with every call.
pub(super) const LIST_BYTES_MAX: usize = 512 * 1024;
/// The size of one description.
const DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// The size of one schema, as JSON.
const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// The length of a tool's name with its server's. Upstreams refuse longer ones.
const NAME_BYTES_MAX: usize = 64;
/// The length of a server's name, so that its tools have room for theirs.
const SERVER_NAME_BYTES_MAX: usize = 32;

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Described {
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) schema: Value,
}

/// A tool that was checked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Listed {
    /// The server's name for it.
    pub(super) name: String,
    /// What a model is told, under the name that it has here.
    pub(super) spec: ToolSpec,
    /// Of everything that a model is told.
    pub(super) hash: String,
    /// Why it cannot be used, whatever anybody agrees to.
    pub(super) fault: Option<String>,
}

/// Whether a server may have this name: the names of its tools can then be told apart from all others.
pub fn is_server_name(name: &str) -> bool {
    let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-');
    let edges = name.starts_with('_') || name.ends_with('_') || name.contains(SERVER_SEPARATOR);
    (1..=SERVER_NAME_BYTES_MAX).contains(&name.len()) && letters && !edges
}

/// Checks a whole list. If the list itself is too large, the server cannot be used.
pub(super) fn check(server: &str, described: Vec<Described>) -> Result<Vec<Listed>, String> {
    if described.len() > TOOLS_MAX {
        return Err(format!("it lists more than {TOOLS_MAX} tools"));
    }
    let bytes: usize = described.iter().map(bytes_of).sum();
    if bytes > LIST_BYTES_MAX {
        return Err(format!("its list of tools is larger than {LIST_BYTES_MAX} bytes"));
    }
    let mut listed: Vec<Listed> = described.into_iter().map(|tool| check_one(server, tool)).collect();
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for tool in &listed {
        *names.entry(tool.spec.name.clone()).or_default() += 1;
    }
    // Whichever came first would be called, so the order of a list could swap one tool for another.
    for tool in listed.iter_mut().filter(|tool| names.get(&tool.spec.name) > Some(&1)) {
        tool.fault = Some("the server has several tools of this name".to_owned());
    }
    Ok(listed)
}

fn bytes_of(tool: &Described) -> usize {
    tool.name.len() + tool.description.as_ref().map_or(0, String::len) + tool.schema.to_string().len()
}

fn check_one(server: &str, described: Described) -> Listed {
    let fault = fault_of(server, &described);
    let Described { name, description, schema } = described;
    let canonical = json!([name, description, schema]).to_string();
    let hash = Sha256::digest(canonical.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let spec =
        ToolSpec { name: full_name(server, &name), description, parameters: Some(schema), strict: None };
    Listed { name, spec, hash, fault }
}

fn fault_of(server: &str, tool: &Described) -> Option<String> {
    let description = tool.description.as_ref().map_or(0, String::len);
    if tool.name.is_empty() || full_name(server, &tool.name).len() > NAME_BYTES_MAX {
        return Some(format!("its name, with the server's, does not have 1 to {NAME_BYTES_MAX} characters"));
    }
    if description > DESCRIPTION_BYTES_MAX {
        return Some(format!("its description is longer than {DESCRIPTION_BYTES_MAX} bytes"));
    }
    if !tool.schema.is_object() || depth(&tool.schema) > DEPTH_MAX {
        return Some(format!("its schema is not an object of at most {DEPTH_MAX} levels"));
    }
    if tool.schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Some(format!("its schema is larger than {SCHEMA_BYTES_MAX} bytes"));
    }
    None
}

/// The name that models and settings use for a tool of a server. Upstreams accept letters, digits, `_` and `-`, and MCP
/// also has dots and slashes.
pub fn full_name(server: &str, tool: &str) -> String {
    let letter = |letter: char| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => letter,
        _ => '_',
    };
    let tool: String = tool.chars().map(letter).take(NAME_BYTES_MAX + 1).collect();
    format!("{server}{SERVER_SEPARATOR}{tool}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, schema: Value) -> Described {
        Described { name: name.to_owned(), description: Some("d".to_owned()), schema }
    }

    fn faults(described: Vec<Described>) -> Vec<Option<String>> {
        check("s", described).unwrap().into_iter().map(|listed| listed.fault).collect()
    }

    #[test]
    fn x4_names_of_tools_fit_what_upstreams_accept() {
        assert_eq!(full_name("files", "read.text/v2"), "files__read_text_v2");
        let long = tool(&"x".repeat(62), json!({}));
        assert_eq!(faults(vec![tool("ok", json!({})), long]).map_ok(), [true, false]);
        for (name, allowed) in
            [("a", true), ("my_server-2", true), ("", false), ("a__b", false), ("_a", false), ("a_", false)]
        {
            assert_eq!(is_server_name(name), allowed, "{name:?}");
        }
    }

    #[test]
    fn x4_tools_that_would_share_a_name_are_all_refused() {
        let list = vec![tool("a.b", json!({})), tool("a_b", json!({})), tool("c", json!({}))];
        assert_eq!(faults(list).map_ok(), [false, false, true]);
    }

    #[test]
    fn x4_huge_lists_are_refused_and_so_are_deep_or_huge_schemas_and_descriptions() {
        let many = (0..=TOOLS_MAX).map(|place| tool(&format!("t{place}"), json!({}))).collect();
        assert!(check("s", many).unwrap_err().contains("more than 128 tools"));
        let large =
            (0..20).map(|place| tool(&format!("t{place}"), json!({"x": "y".repeat(30_000)}))).collect();
        assert!(check("s", large).unwrap_err().contains("bytes"));
        let deep = (0..64).fold(json!({}), |inner, _| json!({"properties": inner}));
        let wordy = Described { description: Some("x".repeat(20_000)), ..tool("wordy", json!({})) };
        let list = vec![
            tool("deep", deep),
            tool("large", json!({"x": "y".repeat(70_000)})),
            wordy,
            tool("list", json!([])),
            tool("fine", json!({"type": "object"})),
        ];
        assert_eq!(faults(list).map_ok(), [false, false, false, false, true]);
    }

    #[test]
    fn x4_a_hash_changes_with_name_description_and_schema_only() {
        let hash = |tool: Described| check("s", vec![tool]).unwrap()[0].hash.clone();
        let one = tool("a", serde_json::from_str(r#"{"x": 1, "y": 2}"#).unwrap());
        let same = tool("a", serde_json::from_str(r#"{"y": 2, "x": 1}"#).unwrap());
        assert_eq!(hash(one.clone()), hash(same));
        assert_ne!(hash(one.clone()), hash(Described { name: "b".to_owned(), ..one.clone() }));
        assert_ne!(hash(one.clone()), hash(Described { description: None, ..one.clone() }));
        assert_ne!(hash(one.clone()), hash(Described { schema: json!({"x": 1}), ..one }));
    }

    trait MapOk {
        fn map_ok(&self) -> Vec<bool>;
    }

    impl MapOk for Vec<Option<String>> {
        fn map_ok(&self) -> Vec<bool> {
            self.iter().map(Option::is_none).collect()
        }
    }
}
