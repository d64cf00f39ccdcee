use proptest::prelude::*;

use super::*;
use crate::testing::*;
use crate::{Role, Sources, context};

fn file(path: &str, description: &str) -> DescribedFile {
    DescribedFile { path: path.into(), description: description.into() }
}

fn changed(path: &str, change: Change) -> ChangedFile {
    ChangedFile { path: path.into(), change }
}

#[test]
fn s4_the_form_is_that_of_the_seed() {
    let files = [file("app/page.tsx", "Main landing page with hero section"), file("a b.txt", "")];
    let block =
        "<files_summary>\n- app/page.tsx: Main landing page with hero section\n- a b.txt\n</files_summary>";
    assert_eq!(files_summary(&files), block);
    assert_eq!(parse_files_summary(&format!("I am done.\n\n{block}\n")), files);
}

#[test]
fn s4_a_block_that_a_model_wrote_in_its_own_way_is_understood() {
    let text = "Done: <files_summary>\n\n  -  `src/main.rs` :  Entry   point\n    with arguments\n* ./a b.txt: R&D\n\
        \t- **docs/x.md**: a &lt;b&gt;\r\n- plain.txt\n- colon.txt:\n-not an item\n- `src/main.rs`: again\n";
    let expected = [
        file("src/main.rs", "Entry point with arguments"),
        file("a b.txt", "R&D"),
        file("docs/x.md", "a <b>"),
        file("plain.txt", ""),
        file("colon.txt", "-not an item"),
    ];
    assert_eq!(parse_files_summary(text), expected);
    assert_eq!(parse_files_summary(&text.replace("files_summary", "FILES_SUMMARY")), expected);
    assert_eq!(parse_files_summary("no block </files_summary>"), []);
    assert_eq!(parse_files_summary("<files_summary></files_summary> - a: b"), []);
}

#[test]
fn s4_the_last_block_counts() {
    let text = "<files_summary>\n- a: old\n</files_summary> more <files_summary>\n- b: new\n</files_summary>";
    assert_eq!(parse_files_summary(text), [file("b", "new")]);
}

#[test]
fn s4_descriptions_of_the_model_are_kept_and_the_rest_is_completed() {
    let said = "Done.\n<files_summary>\n- b: The b\n- invented: Not there\n- d\n";
    let changes =
        [changed("a", Change::Added), changed("b", Change::Modified), changed("d", Change::Deleted)];
    let expected = "\n\n<files_summary>\n- a: added\n- b: The b\n- d: deleted\n</files_summary>";
    assert_eq!(files_summary_to_append(said, &changes), expected);
}

#[test]
fn s4_a_summary_that_is_complete_is_left_alone() {
    let said = "Done.\n<files_summary>\n- a: The a\n- b: The b\n</files_summary>\n";
    let changes = [changed("a", Change::Added), changed("b", Change::Modified)];
    assert_eq!(files_summary_to_append(said, &changes), "");
    assert_ne!(files_summary_to_append(&format!("{said}And more."), &changes), "", "it must be the end");
    assert_ne!(files_summary_to_append(said, &[changed("c", Change::Added)]), "");
}

#[test]
fn s4_without_changes_nothing_is_appended() {
    assert_eq!(files_summary_to_append("text", &[]), "");
    assert_eq!(files_summary_to_append("text", &[changed(".git/index", Change::Modified)]), "");
    assert!(
        files_summary_to_append("text", &[changed(".gitignore", Change::Modified)]).contains(".gitignore")
    );
}

#[test]
fn s4_thousands_of_files_are_counted_instead_of_listed() {
    let changes: Vec<_> = (0..30_000).map(|n| changed(&format!("node_modules/{n}"), Change::Added)).collect();
    let block = files_summary_to_append("", &changes);
    assert!(block.len() < LINES_BYTES_MAX + 100);
    let listed = parse_files_summary(&block).len();
    assert!(block.contains(&format!("… and {} more\n</files_summary>", 30_000 - listed)));
}

/// Paths with everything that could end a line, a block or a path.
fn path() -> impl Strategy<Value = String> {
    let odd = prop::sample::select(vec![
        "a b",
        "a: b",
        ":",
        "`x`",
        "**x**",
        "\"x\"",
        " edge ",
        "new\nline",
        "<b>",
        "&amp;",
        "&#58;",
        "</files_summary>",
        "<files_summary>",
        "- x",
        "… and 3 more",
        "\t",
        "é/ü",
        "\u{a0}",
        "a:",
        "&",
        "\r",
        "x;y&lt",
        "\u{2028}",
    ]);
    prop_oneof![odd.prop_map(str::to_owned), "[a-z./ :&<>`*-]{1,12}", ".{1,20}"]
        .prop_filter("a path below the workspace", |path| {
            !path.is_empty() && !path.starts_with("./") && !path.contains('\0') && !is_of_git(path)
        })
}

fn description() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-zA-Z0-9 :,.<>&/-]{0,40}",
        prop::sample::select(vec!["</files_summary>", "a: b: c", "&lt;", "two\n- lines", "… and 1 more"])
            .prop_map(str::to_owned),
    ]
}

fn changes() -> impl Strategy<Value = Vec<ChangedFile>> {
    let change = prop::sample::select(vec![Change::Added, Change::Modified, Change::Deleted]);
    prop::collection::btree_map(path(), change, 1..12)
        .prop_map(|files| files.into_iter().map(|(path, change)| ChangedFile { path, change }).collect())
}

/// What a model says: prose, and perhaps a block of its own about some of the files.
fn said() -> impl Strategy<Value = String> {
    let files = prop::collection::vec((path(), description()), 0..6);
    let block = files.prop_map(|files| {
        let lines = files.iter().map(|(path, description)| format!(" - {path}: {description}\n"));
        format!("<files_summary>\n{}", lines.collect::<String>())
    });
    let end = prop::sample::select(vec!["", "</files_summary>", "</files_summary>\n\n", "\nmore prose"]);
    ("[a-zA-Z .\n<>]{0,40}", prop::option::of(block), end)
        .prop_map(|(prose, block, end)| format!("{prose}{}{end}", block.unwrap_or_default()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Property 4 of the seed, and the way back.
    #[test]
    fn s7_a_summary_lists_every_path_and_reads_back_as_it_was(
        files in prop::collection::btree_map(path(), description(), 1..12)
    ) {
        let files: Vec<_> = files.iter().map(|(path, description)| file(path, description)).collect();
        let block = files_summary(&files);
        prop_assert!(block.starts_with("<files_summary>\n") && block.ends_with("\n</files_summary>"), "{}", block);
        let expected: Vec<_> = files.iter().map(|f| file(&f.path, &one_line(&f.description))).collect();
        prop_assert_eq!(parse_files_summary(&block), expected);
    }

    /// Property 4 for what a model has already said: nothing of it is lost, and all changes are in the end.
    #[test]
    fn s7_whatever_the_model_said_its_message_ends_with_every_changed_path(said in said(), changes in changes()) {
        let given = parse_files_summary(&said);
        let whole = format!("{said}{}", files_summary_to_append(&said, &changes));
        let listed = parse_files_summary(&whole);
        prop_assert!(whole.trim_end().ends_with("</files_summary>"), "{}", whole);
        for changed in &changes {
            let line = listed.iter().find(|line| line.path == changed.path);
            let line = line.ok_or_else(|| TestCaseError::fail(format!("{:?} is not in {whole:?}", changed.path)))?;
            match given.iter().find(|given| given.path == changed.path && !given.description.is_empty()) {
                Some(given) => prop_assert_eq!(&line.description, &given.description),
                None => prop_assert_eq!(&line.description, changed.change.as_str()),
            }
        }
        prop_assert_eq!(files_summary_to_append(&whole, &changes), "", "once is enough: {:?}", whole);
    }

    /// Nothing that a model writes is too odd to be read.
    #[test]
    fn s7_any_text_can_be_parsed(text in ".{0,200}", said in said()) {
        parse_files_summary(&text);
        parse_files_summary(&format!("{said}{text}"));
    }

    /// Properties 1, 3 and 6 of the seed: order, role and content, summaries included.
    #[test]
    fn s7_the_context_has_every_message_in_order_with_its_summary(
        answers in prop::collection::vec((said(), changes()), 1..4)
    ) {
        let mut past = Vec::new();
        let mut expected = Vec::new();
        for (place, (said, changes)) in answers.iter().enumerate() {
            let generation = format!("gen_{place}");
            let whole = format!("{said}{}", files_summary_to_append(said, changes));
            past.push(answered(&generation, &whole));
            expected.push((Role::User, format!("question of {generation}")));
            expected.push((Role::Assistant, whole));
        }
        past.push(running("gen_last"));
        expected.push((Role::User, "question of gen_last".to_owned()));
        let world = given(past);
        let sources = Sources { messages: &world.stored.messages, limit: 10, prompt: None, prefill: false, budget: None };
        let context = context(&world.transcript.state, world.generation("gen_last"), sources);
        let told: Vec<_> = context.messages.iter().map(|message| (message.role, message.text())).collect();
        prop_assert_eq!(told, expected);
        let times: Vec<_> = world.stored.messages.iter().map(|message| (message.created_at, message.seq)).collect();
        prop_assert!(times.is_sorted(), "{:?}", times);
    }
}

#[test]
fn s4_a_hundred_thousand_lines_and_files_are_compared_in_one_pass() {
    let files: Vec<ChangedFile> = (0..100_000).map(|n| changed(&format!("f{n}"), Change::Added)).collect();
    let lines: String = (0..100_000).rev().map(|n| format!("- f{n}: number {n}\n")).collect();
    let said = format!("<files_summary>\n{lines}</files_summary>");
    assert_eq!(files_summary_to_append(&said, &files), "");
}
