use serde_json::json;

use super::*;
use crate::session::{
    ClientIdentity, Tenants,
    installation_secret::InstallationSecret,
    tests::fixture::{answer_digest, assistant, conversation, system, user, with_fields},
};

fn tenant(name: &str) -> Tenant {
    Tenants::new(InstallationSecret::from_bytes([1; 32])).derive_tenant(
        ClientIdentity::Named(name),
        &http::HeaderMap::new(),
        None,
    )
}

fn lineage(messages: &[serde_json::Value]) -> Lineage {
    Lineage::from_conversation(&conversation(messages), &tenant("a"))
}

fn keys(messages: &[serde_json::Value], answer: &serde_json::Value) -> StateKeys {
    lineage(messages).state_keys(answer_digest(answer)).unwrap()
}

#[test]
fn a_first_request_probes_nothing() {
    assert!(lineage(&[system("s"), user("u")]).probes.is_empty());
    assert!(lineage(&[]).probes.is_empty());
    // A greeting is no answer to anything.
    assert!(lineage(&[assistant("hi"), user("u")]).probes.is_empty());
}

#[test]
fn system_messages_alone_store_nothing() {
    assert_eq!(lineage(&[system("s")]).state_keys(1), None);
    assert_eq!(lineage(&[]).state_keys(1), None);
    assert!(
        lineage(&[system("s"), assistant("a"), user("u")])
            .probes
            .is_empty()
    );
}

#[test]
fn the_newest_answer_and_the_exact_key_are_probed_first() {
    let messages = [
        user("1"),
        assistant("a"),
        user("2"),
        assistant("b"),
        user("3"),
    ];
    let newer = keys(&messages[..3], &messages[3]);
    let older = keys(&messages[..1], &messages[1]);
    let expected = [
        newer.exact,
        newer.gap.unwrap(),
        newer.bare,
        older.exact,
        older.bare,
    ];
    assert_eq!(lineage(&messages).probes, expected);
    assert_eq!(older.gap, None);
}

#[test]
fn a_request_that_ends_with_an_answer_has_no_gap_key() {
    let prefilled = [user("1"), assistant("a")];
    assert_eq!(keys(&prefilled, &assistant("b")).gap, None);
}

#[test]
fn a_gap_key_covers_the_first_user_message() {
    let greeted = [assistant("hi"), user("task")];
    assert_eq!(keys(&greeted, &assistant("b")).gap, None);
    let later = [assistant("hi"), user("task"), assistant("b"), user("and")];
    assert!(keys(&later, &assistant("c")).gap.is_some());
}

#[test]
fn several_answers_in_a_row_belong_to_the_request_before_the_first() {
    // An answer of text and calls that the client keeps as two messages.
    let split = [user("1"), assistant("text"), assistant("calls"), user("2")];
    let probes = lineage(&split).probes;
    let given = keys(&split[..1], &assistant("text and calls"));
    assert!(probes.contains(&given.bare));
    assert!(!probes.contains(&given.exact));
    // Of the second in the row only the exact key is probed.
    let continued = keys(&split[..2], &split[2]);
    assert_eq!(probes[0], continued.exact);
    assert!(!probes.contains(&continued.bare));
    assert_eq!(probes.len(), 3);
    // The gap of the next request starts after the whole row.
    let next = keys(&split, &assistant("x"));
    let grown = [&split[..3], &[user("other"), assistant("x"), user("3")]].concat();
    assert!(lineage(&grown).probes.contains(&next.gap.unwrap()));
}

#[test]
fn every_probe_has_the_position_of_its_answer() {
    let messages = [
        system("s"),
        user("1"),
        assistant("a"),
        system("now"),
        user("2"),
        assistant("b"),
        assistant("c"),
        user("3"),
    ];
    let lineage = lineage(&messages);
    // The exact key of `c`; the three of `b`; the two of `a`.
    let expected = [4, 3, 3, 3, 1, 1].map(Some);
    let found: Vec<_> = (0..lineage.probes.len())
        .map(|probe| lineage.answer_at(probe))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(lineage.answer_at(expected.len()), None);
}

#[test]
fn keys_differ_by_tenant_and_by_kind() {
    let messages = [user("1"), assistant("a"), user("2")];
    let [one, other] = ["a", "b"].map(|name| {
        let lineage = Lineage::from_conversation(&conversation(&messages), &tenant(name));
        lineage.state_keys(7).unwrap()
    });
    let all = [one, other].map(|keys| [keys.exact, keys.gap.unwrap(), keys.bare]);
    let all = all.concat();
    for (index, key) in all.iter().enumerate() {
        assert!(!all[index + 1..].contains(key));
    }
}

#[test]
fn the_search_is_bounded() {
    let mut messages = Vec::new();
    for turn in 0..1_000 {
        messages.push(user(&format!("q{turn}")));
        messages.push(assistant(&format!("a{turn}")));
    }
    let probes = lineage(&messages).probes;
    assert_eq!(probes.len(), 3 * MAX_BOUNDARIES);
    let newest = keys(&messages[..1_999], &messages[1_999]);
    assert_eq!(probes[0], newest.exact);
}

#[test]
fn titles_and_probes_are_auxiliary() {
    let is_auxiliary = |fields: &[(&str, &str)]| with_fields(fields).is_auxiliary();
    let limit = ("max_tokens", "20");
    assert!(is_auxiliary(&[("max_tokens", "1")]));
    assert!(is_auxiliary(&[
        ("max_completion_tokens", "64"),
        ("tools", "[]")
    ]));
    assert!(is_auxiliary(&[limit, ("tools", "null")]));
    assert!(!is_auxiliary(&[]));
    assert!(!is_auxiliary(&[("max_tokens", "65")]));
    assert!(!is_auxiliary(&[
        limit,
        ("tools", r#"[{"type":"function"}]"#)
    ]));
    assert!(!is_auxiliary(&[limit, ("functions", r#"[{"name":"f"}]"#)]));
    assert!(!is_auxiliary(&[("max_tokens", "\"20\"")]));
    let auxiliary = with_fields(&[("max_tokens", "5")]);
    let lineage = Lineage::from_conversation(&auxiliary, &tenant("a"));
    assert_eq!(lineage.state_keys(1), None);
}

#[test]
fn messages_of_unknown_roles_are_part_of_the_key() {
    let strange = json!({ "role": "critic", "content": "x" });
    let with = keys(&[user("1"), strange], &assistant("a"));
    let without = keys(&[user("1")], &assistant("a"));
    assert_ne!(with, without);
}
