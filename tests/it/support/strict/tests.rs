//! Each rule with conversations that keep it and that break it.

use plimsoll::guard::profile;

use super::{find_broken_rules, find_violations};

const U: &str = r#"{"role":"user","content":"u"}"#;
const A: &str = r#"{"role":"assistant","content":"a"}"#;
const S: &str = r#"{"role":"system","content":"s"}"#;
const C: &str = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}"#;
const T: &str = r#"{"role":"tool","tool_call_id":"x","content":"t"}"#;
const CC: &str = r#"{"role":"assistant","tool_calls":[{"id":"x"},{"id":"y"}]}"#;
const TY: &str = r#"{"role":"tool","tool_call_id":"y","content":"t"}"#;
const F: &str = r#"{"role":"assistant","content":null,"function_call":{"name":"f"}}"#;
const R: &str = r#"{"role":"function","name":"f","content":"r"}"#;

fn body(messages: &[&str]) -> String {
    format!(r#"{{"messages":[{}]}}"#, messages.join(","))
}

#[track_caller]
fn check(name: &str, messages: &[&str], rules: &[u8]) {
    let profile = profile::find_profile(name).unwrap();
    let found = find_violations(body(messages).as_bytes(), profile);
    let found: Vec<u8> = found.iter().map(|it| it.rule).collect();
    assert_eq!(found, rules, "{name}: {messages:?}");
}

#[test]
fn plain_conversations_are_valid_for_every_profile() {
    for profile in profile::PROFILES {
        check(profile.name, &[S, U, A, U, C, T, A, U], &[]);
        check(profile.name, &[U, C, T, CC, TY, T], &[]);
        check(profile.name, &[S, U, F, R, F, R], &[]);
    }
}

#[test]
fn results_must_follow_their_call() {
    check("openai", &[U, T], &[1]);
    check("openai", &[U, C, T, U, T], &[1]);
    check("openai", &[U, C, T, C, TY, T], &[1]);
    check("openai", &[U, R], &[1]);
    check("openai", &[U, C, T, T], &[3]);
}

#[test]
fn every_call_must_be_answered_in_its_step() {
    check("openai", &[U, C, U], &[2]);
    check("openai", &[U, CC, T], &[2]);
    check("openai", &[U, CC, T, U], &[2]);
    check("openai", &[U, C, C, T], &[2]);
    check("openai", &[U, F, U], &[2]);
    // The same id in a later step does not answer the earlier call.
    check("openai", &[U, CC, T, C, T], &[2]);
    check("openai", &[U, C, T, C, T], &[]);
}

#[test]
fn system_messages_must_come_first_where_the_profile_says_so() {
    check("template", &[S, U, A, S, U], &[5]);
    check("template", &[S, S, U], &[]);
    check("anthropic", &[S, U, A, S, U], &[]);
    check("openai", &[U, S], &[]);
}

#[test]
fn the_first_message_must_be_the_users() {
    check("gemini", &[S, C, T, A, U], &[6]);
    check("mistral", &[A, U], &[6]);
    check("openai", &[S, C, T], &[]);
}

#[test]
fn roles_must_alternate_where_the_profile_says_so() {
    check("template", &[U, U], &[7]);
    check("template", &[U, A, A, U], &[7]);
    check("template", &[U, C, T, A, U], &[]);
    check("gemini", &[U, U], &[]);
    check("deepseek", &[U, U], &[]);
}

#[test]
fn no_user_message_after_a_tool_result_where_it_is_refused() {
    check("mistral", &[U, C, T, U], &[8, 7]);
    check("gemini", &[U, C, T, U], &[]);
    check("kimi", &[U, F, R, U], &[]);
}

#[test]
fn the_last_message_must_not_be_the_assistants() {
    check("mistral", &[U, A], &[9]);
    check("kimi", &[U, A], &[9]);
    check("openai", &[U, A], &[]);
    let prefix = r#"{"role":"assistant","content":"a","prefix":true}"#;
    check("deepseek", &[U, prefix], &[]);
}

#[test]
fn content_may_be_missing_only_beside_calls() {
    check("openai", &[r#"{"role":"user","content":null}"#], &[10]);
    check("openai", &[U, r#"{"role":"assistant"}"#, U], &[10]);
    check("openai", &[r#"{"role":"user","content":[]}"#], &[10]);
    check(
        "openai",
        &[U, r#"{"role":"assistant","refusal":"no"}"#, U],
        &[],
    );
    check(
        "openai",
        &[U, r#"{"role":"assistant","content":null,"audio":{}}"#, U],
        &[],
    );
}

#[test]
fn other_json_is_reported_as_no_conversation() {
    let profile = &profile::PROFILES[0];
    for text in ["", "{", "[]", r#"{"messages":{}}"#] {
        assert_eq!(
            find_violations(text.as_bytes(), profile)[0].rule,
            0,
            "{text}"
        );
    }
}

#[test]
fn what_the_newer_version_of_messages_refuses_is_a_fault_of_an_edit() {
    let cited = r#"[{"type":"text","text":"a","citations":[{}]}]"#;
    let document = r#"[{"type":"document"}]"#;
    let said = |role: &str, content: &str| {
        let entry = format!(r#"{{"role":"{role}","content":{content}}}"#);
        body(&[U, &entry, U])
    };
    let plain = said("assistant", cited);
    for (after, rules) in [
        (said("assistant", cited), &[][..]),
        (said("user", cited), &[19]),
        (said("assistant", document), &[19]),
        (said("user", document), &[]),
        (plain.replacen('{', r#"{"top_k":1,"#, 1), &[19]),
    ] {
        let found = super::messages::find_broken_rules(plain.as_bytes(), after.as_bytes());
        let found: Vec<u8> = found.iter().map(|it| it.rule).collect();
        assert_eq!(found, rules, "{after}");
        let same = super::messages::find_broken_rules(after.as_bytes(), after.as_bytes());
        assert_eq!(same, [], "{after}");
    }
}

#[test]
fn only_faults_new_after_an_edit_are_reported() {
    let profile = profile::find_profile("template").unwrap();
    let whole = body(&[U, C, T, U, U]);
    assert_eq!(
        find_broken_rules(whole.as_bytes(), whole.as_bytes(), profile),
        []
    );
    let cut = body(&[U, T, U, U]);
    let found = find_broken_rules(whole.as_bytes(), cut.as_bytes(), profile);
    assert_eq!(found[0].rule, 1);

    let empty = body(&[U, C, r#"{"role":"tool","tool_call_id":"x","content":""}"#]);
    assert_eq!(
        find_broken_rules(whole.as_bytes(), empty.as_bytes(), profile)[0].rule,
        10
    );

    let with_tools = whole.replacen('{', r#"{"tools":[1],"#, 1);
    let found = find_broken_rules(with_tools.as_bytes(), whole.as_bytes(), profile);
    assert_eq!(found[0].rule, 13);
}
