use proptest::prelude::*;
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
        read_only: false,
        policy: Policy::Ask,
        rules: rules.iter().map(rule).collect(),
        shell_argument: Some("command".into()),
    }
}

fn says(rule: &ToolRule, command: &str) -> Verdict {
    rule.verdict("bash", &json!({"command": command}), &[])
}

const DENIED: Verdict = Verdict::Refuse("denied by policy");

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
    assert!(matches!(says(&rule, &both, "curl x"), Verdict::Refuse(_)), "the newest that matches counts");
    assert_eq!(rule.verdict("sh", &json!({"command": "ls"}), &all), Verdict::Ask, "of another tool");
}

proptest! {
    #[test]
    fn a_pattern_without_wildcards_matches_itself_and_stars_match_anything(text in "[a-c*?]{0,8}", around in "[a-c]{0,4}") {
        let literal = text.replace(['*', '?'], "a");
        prop_assert!(glob(&literal, &literal));
        prop_assert!(glob("*", &text));
        let wrapped = format!("{around}{literal}{around}");
        let stars = format!("*{literal}*");
        prop_assert!(glob(&stars, &wrapped));
        prop_assert_eq!(glob(&literal, &wrapped), literal == wrapped);
    }
}

#[test]
fn a_hostile_pattern_takes_no_longer_than_the_product_of_the_lengths() {
    assert!(!glob(&"*a".repeat(200), &"a".repeat(2_000).replace('a', "b")));
}
