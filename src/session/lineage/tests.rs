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
fn a_first_request_looks_for_nothing() {
    assert!(lineage(&[system("s"), user("u")]).probes().is_empty());
    assert!(lineage(&[]).probes().is_empty());
    // A greeting is no answer to anything.
    assert!(lineage(&[assistant("hi"), user("u")]).probes().is_empty());
}

#[test]
fn system_messages_alone_are_never_filed() {
    assert_eq!(lineage(&[system("s")]).state_keys(1), None);
    assert_eq!(lineage(&[]).state_keys(1), None);
    assert!(
        lineage(&[system("s"), assistant("a"), user("u")])
            .probes()
            .is_empty()
    );
}

#[test]
fn the_newest_answer_is_asked_for_first_and_by_its_whole_key_first() {
    let said = [
        user("1"),
        assistant("a"),
        user("2"),
        assistant("b"),
        user("3"),
    ];
    let newer = keys(&said[..3], &said[3]);
    let older = keys(&said[..1], &said[1]);
    let expected = [
        newer.exact,
        newer.gap.unwrap(),
        newer.bare,
        older.exact,
        older.bare,
    ];
    assert_eq!(lineage(&said).probes(), expected);
    assert_eq!(older.gap, None);
}

#[test]
fn what_ends_with_an_answer_has_no_gap() {
    let prefilled = [user("1"), assistant("a")];
    assert_eq!(keys(&prefilled, &assistant("b")).gap, None);
}

#[test]
fn a_gap_never_loses_the_first_user_message() {
    let greeted = [assistant("hi"), user("task")];
    assert_eq!(keys(&greeted, &assistant("b")).gap, None);
    let later = [assistant("hi"), user("task"), assistant("b"), user("and")];
    assert!(keys(&later, &assistant("c")).gap.is_some());
}

#[test]
fn several_answers_in_a_row_belong_to_the_request_before_the_first() {
    // An answer of text and calls that the client keeps as two messages.
    let split = [user("1"), assistant("text"), assistant("calls"), user("2")];
    let probes = lineage(&split).probes().to_vec();
    let given = keys(&split[..1], &assistant("text and calls"));
    assert!(probes.contains(&given.bare));
    assert!(!probes.contains(&given.exact));
    // Of the second in the row only the whole key is asked for.
    let continued = keys(&split[..2], &split[2]);
    assert_eq!(probes[0], continued.exact);
    assert!(!probes.contains(&continued.bare));
    assert_eq!(probes.len(), 3);
    // The gap of the next request starts after the whole row.
    let next = keys(&split, &assistant("x"));
    let grown = [&split[..3], &[user("other"), assistant("x"), user("3")]].concat();
    assert!(lineage(&grown).probes().contains(&next.gap.unwrap()));
}

#[test]
fn every_probe_knows_where_its_answer_stands() {
    let said = [
        system("s"),
        user("1"),
        assistant("a"),
        system("now"),
        user("2"),
        assistant("b"),
        assistant("c"),
        user("3"),
    ];
    let lineage = lineage(&said);
    // The whole key of `c`; the three of `b`; the two of `a`.
    let expected = [4, 3, 3, 3, 1, 1].map(Some);
    let found: Vec<_> = (0..lineage.probes().len())
        .map(|probe| lineage.answer_at(probe))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(lineage.answer_at(expected.len()), None);
}

#[test]
fn tenants_and_kinds_never_share_a_key() {
    let said = [user("1"), assistant("a"), user("2")];
    let [one, other] = ["a", "b"].map(|name| {
        let lineage = Lineage::from_conversation(&conversation(&said), &tenant(name));
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
    let mut said = Vec::new();
    for turn in 0..1_000 {
        said.push(user(&format!("q{turn}")));
        said.push(assistant(&format!("a{turn}")));
    }
    let probes = lineage(&said).probes().to_vec();
    assert_eq!(probes.len(), 3 * MAX_BOUNDARIES);
    let newest = keys(&said[..1_999], &said[1_999]);
    assert_eq!(probes[0], newest.exact);
}

#[test]
fn titles_and_probes_are_auxiliary() {
    let of = |fields: &[(&str, &str)]| with_fields(fields).is_auxiliary();
    assert!(of(&[("max_tokens", "1")]));
    assert!(of(&[("max_completion_tokens", "64"), ("tools", "[]")]));
    assert!(of(&[("max_tokens", "20"), ("tools", "null")]));
    assert!(!of(&[]));
    assert!(!of(&[("max_tokens", "65")]));
    assert!(!of(&[
        ("max_tokens", "20"),
        ("tools", r#"[{"type":"function"}]"#)
    ]));
    assert!(!of(&[
        ("max_tokens", "20"),
        ("functions", r#"[{"name":"f"}]"#)
    ]));
    assert!(!of(&[("max_tokens", "\"20\"")]));
    let auxiliary = with_fields(&[("max_tokens", "5")]);
    assert_eq!(
        Lineage::from_conversation(&auxiliary, &tenant("a")).state_keys(1),
        None
    );
}

#[test]
fn unknown_roles_are_part_of_what_was_said() {
    let strange = json!({ "role": "critic", "content": "x" });
    let with = keys(&[user("1"), strange], &assistant("a"));
    let without = keys(&[user("1")], &assistant("a"));
    assert_ne!(with, without);
}
