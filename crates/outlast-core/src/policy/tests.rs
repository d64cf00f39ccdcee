use serde_json::json;

use super::*;

fn patterns(list: &[(&str, &str)]) -> Patterns {
    list.iter().map(|(argument, pattern)| ((*argument).to_owned(), (*pattern).to_owned())).collect()
}

fn bash(rules: &[(&str, Policy)]) -> ToolRule {
    let rule = |(pattern, policy): &(&str, Policy)| PatternRule {
        patterns: patterns(&[("command", pattern)]),
        policy: *policy,
    };
    ToolRule {
        place: Place::Sandbox,
        read_only: false,
        idempotent: false,
        policy: Policy::Ask,
        rules: rules.iter().map(rule).collect(),
        shell_argument: Some("command".into()),
    }
}

fn says(rule: &ToolRule, command: &str) -> Verdict {
    rule.verdict("bash", &json!({"command": command}), &[])
}

const DENIED: Verdict = Verdict::Deny("denied by policy");

#[test]
fn the_first_rule_that_matches_the_whole_argument_counts() {
    let rule = bash(&[("rm *", Policy::Deny), ("git push*", Policy::Ask), ("git *", Policy::Allow)]);
    assert_eq!(says(&rule, "rm -rf ~"), DENIED);
    assert_eq!(says(&rule, "git push origin"), Verdict::Ask);
    assert_eq!(says(&rule, "git status"), Verdict::Run);
    assert_eq!(says(&rule, "legit status"), Verdict::Ask);
    assert_eq!(rule.verdict("bash", &json!({"command": 7}), &[]), Verdict::Ask, "only text matches");
    assert_eq!(rule.verdict("bash", &json!({}), &[]), Verdict::Ask);
}

#[test]
fn i8_a_pattern_that_allows_never_matches_a_command_that_hides_another() {
    let rule = bash(&[("git *", Policy::Allow)]);
    for hidden in [
        "git status; rm -rf ~",
        "git status && x",
        "git log | sh",
        "git log `x`",
        "git log $(x)",
        "git log\nx",
        "git log > ~/.profile",
        "git log ${x}",
    ] {
        assert_eq!(says(&rule, hidden), Verdict::Ask, "{hidden}");
    }
    let spelled = bash(&[("git log | head*", Policy::Allow)]);
    assert_eq!(says(&spelled, "git log | head -3"), Verdict::Run);
    assert_eq!(says(&spelled, "git log | head -3 | sh"), Verdict::Ask, "one is spelled out, two are not");
    let denied = bash(&[("*rm *", Policy::Deny)]);
    assert_eq!(
        says(&denied, "true; rm -rf ~"),
        DENIED,
        "a pattern that denies matches whatever is around it"
    );
}

#[test]
fn a_decision_for_always_answers_what_the_operator_leaves_to_people_and_nothing_else() {
    let always = |decision, pattern: Option<&str>| Always {
        tool: "bash".into(),
        decision,
        pattern: pattern.map(|pattern| patterns(&[("command", pattern)])),
    };
    let says = |rule: &ToolRule, always: &[Always], command: &str| {
        rule.verdict("bash", &json!({"command": command}), always)
    };
    let rule = bash(&[("rm *", Policy::Deny)]);
    let all = [always(Decision::Approve, None)];
    assert_eq!(says(&rule, &all, "ls; anything"), Verdict::Run);
    assert_eq!(says(&rule, &all, "rm x"), DENIED, "the operator has the last word");
    let some = [always(Decision::Approve, Some("cargo *"))];
    assert_eq!(says(&rule, &some, "cargo test"), Verdict::Run);
    assert_eq!(says(&rule, &some, "cargo test; ls"), Verdict::Ask);
    let both = [always(Decision::Approve, None), always(Decision::Deny, Some("curl *"))];
    assert!(matches!(says(&rule, &both, "curl x"), Verdict::Deny(_)), "the newest that matches counts");
    assert_eq!(rule.verdict("sh", &json!({"command": "ls"}), &all), Verdict::Ask, "of another tool");
}

fn write_file(pattern: &str, policy: Policy) -> ToolRule {
    let rules = vec![PatternRule { patterns: patterns(&[("path", pattern)]), policy }];
    ToolRule { rules, shell_argument: None, ..bash(&[]) }
}

#[test]
fn i8_a_pattern_that_allows_never_matches_a_path_that_steps_up() {
    let says = |rule: &ToolRule, path: &str| rule.verdict("write_file", &json!({"path": path}), &[]);
    let docs = write_file("docs/*", Policy::Allow);
    for path in ["docs/../.git/hooks/x", "docs/..", "docs/a/../../b"] {
        assert_eq!(says(&docs, path), Verdict::Ask, "{path}");
    }
    for path in ["docs/a..b", "docs/...", "docs/a/b"] {
        assert_eq!(says(&docs, path), Verdict::Run, "{path}");
    }
    let sibling = write_file("../docs/*", Policy::Allow);
    assert_eq!(says(&sibling, "../docs/a"), Verdict::Run);
    assert_eq!(says(&sibling, "../docs/../x"), Verdict::Ask, "one step is spelled out, two are not");
    assert_eq!(says(&write_file("*.git/*", Policy::Deny), "docs/../.git/hooks/x"), DENIED);
    let always = Always {
        tool: "write_file".into(),
        decision: Decision::Approve,
        pattern: Some(patterns(&[("path", "docs/*")])),
    };
    let asks = write_file("x", Policy::Ask);
    let says = |path: &str| asks.verdict("write_file", &json!({"path": path}), std::slice::from_ref(&always));
    assert_eq!((says("docs/a"), says("docs/../a")), (Verdict::Run, Verdict::Ask));
}

#[test]
fn a_choice_denies_each_of_its_texts_and_allows_no_more_operators_than_one_of_them_has() {
    let denied = bash(&[("{rm,dd} *", Policy::Deny)]);
    assert_eq!((says(&denied, "dd of=x"), says(&denied, "ls")), (DENIED, Verdict::Ask));
    let allowed = bash(&[("git {log,diff} | {head,tail | cat}*", Policy::Allow)]);
    assert_eq!(says(&allowed, "git diff | head"), Verdict::Run);
    assert_eq!(says(&allowed, "git diff | head | sh"), Verdict::Ask);
}

#[test]
fn x4_a_tool_of_a_server_has_its_own_rule_or_that_of_its_server() {
    let (own, of_server) = (bash(&[]), ToolRule { policy: Policy::Deny, ..bash(&[]) });
    let rules = ToolRules::from([("files__read".to_owned(), own), (rule_of_server("files"), of_server)]);
    let policy = |name: &str| rule_of(&rules, name).map(|rule| rule.policy);
    assert_eq!(policy("files__read"), Some(Policy::Ask));
    assert_eq!(policy("files__write"), Some(Policy::Deny));
    assert_eq!(policy("files__a__b"), Some(Policy::Deny), "a server's name has no double underscore");
    assert_eq!((policy("files"), policy("other__read"), policy("__read")), (None, None, None));
}
