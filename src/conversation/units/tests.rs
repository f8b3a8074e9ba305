use bytes::Bytes;

use super::*;
use crate::{conversation::Format, format::chat::index_body};

fn kinds(messages: &str) -> Vec<(UnitKind, Range<usize>)> {
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    let conversation = index_body(Bytes::from(body)).unwrap();
    let units = split_units(&conversation).into_iter();
    units.map(|unit| (unit.kind, unit.messages)).collect()
}

const USER: &str = r#"{"role":"user","content":"u"}"#;

fn calls(ids: &[&str]) -> String {
    let calls: Vec<_> = ids
        .iter()
        .map(|id| format!(r#"{{"id":"{id}","function":{{"name":"f","arguments":"{{}}"}}}}"#))
        .collect();
    format!(
        r#"{{"role":"assistant","tool_calls":[{}]}}"#,
        calls.join(",")
    )
}

fn result(id: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"r"}}"#)
}

#[test]
fn a_step_holds_all_results_directly_after_its_calls() {
    let text = [
        USER.into(),
        calls(&["a", "b"]),
        result("b"),
        result("a"),
        USER.into(),
        calls(&["a"]),
        result("a"),
        r#"{"role":"assistant","content":"done"}"#.into(),
    ]
    .join(",");
    use UnitKind::{Assistant, Step, User};
    assert_eq!(
        kinds(&text),
        [
            (User, 0..1),
            (Step, 1..4),
            (User, 4..5),
            (Step, 5..7),
            (Assistant, 7..8)
        ]
    );
}

#[test]
fn what_does_not_pair_stays_with_the_results_directly_behind_it() {
    use UnitKind::{Other, Step, User};
    let check = |parts: &[String], expected: &[(UnitKind, Range<usize>)]| {
        let body = format!(r#"{{"messages":[{}]}}"#, parts.join(","));
        let conversation = index_body(Bytes::from(body)).unwrap();
        let units = split_units(&conversation);
        let found = units.iter().map(|it| (it.kind, it.messages.clone()));
        assert_eq!(found.collect::<Vec<_>>(), expected, "{parts:?}");
        let mut others = units.iter().filter(|it| it.kind == Other);
        assert!(others.all(|it| it.is_pinned));
    };
    let user = || USER.to_owned();
    check(&[user(), result("a")], &[(User, 0..1), (Other, 1..2)]);
    check(&[calls(&["a"]), result("b"), result("a")], &[(Other, 0..3)]);
    check(&[calls(&["a"])], &[(Other, 0..1)]);
    check(
        &[calls(&["a", "b"]), result("a"), user()],
        &[(Other, 0..2), (User, 2..3)],
    );
    check(
        &[calls(&["a"]), result("a"), user(), result("a")],
        &[(Step, 0..2), (User, 2..3), (Other, 3..4)],
    );
    check(
        &[calls(&["a"]), user(), result("a")],
        &[(Other, 0..1), (User, 1..2), (Other, 2..3)],
    );
}

#[test]
fn legacy_calls_pair_without_ids() {
    let call =
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#;
    let answer = r#"{"role":"function","name":"f","content":"r"}"#;
    assert_eq!(
        kinds(&format!("{USER},{call},{answer}"))[1],
        (UnitKind::Step, 1..3)
    );
    assert_eq!(
        kinds(&format!("{USER},{answer}"))[1],
        (UnitKind::Other, 1..2)
    );
    assert_eq!(kinds(&format!("{call},{USER}"))[0], (UnitKind::Other, 0..1));
}

#[test]
fn the_task_is_the_first_user_message_and_the_last_that_follows_it_directly() {
    let text = "long ".repeat(4_000);
    let long = format!(r#"{{"role":"user","content":"{text}"}}"#);
    let stays = |format: Format, roles: &str| -> String {
        let message = |role: char| match role {
            'u' => r#"{"role":"user","content":"u"}"#,
            'U' => &long,
            's' => r#"{"role":"system","content":"s"}"#,
            'c' => r#"{"role":"user","content":[{"type":"compaction","content":"c"}]}"#,
            _ => r#"{"role":"assistant","content":"a"}"#,
        };
        let messages: Vec<&str> = roles.chars().map(message).collect();
        let messages = messages.join(",");
        let body = format!(r#"{{"messages":[{messages}],"input":[{messages}]}}"#);
        let conversation = format.index_body(Bytes::from(body)).unwrap();
        let units = split_units(&conversation);
        let mark = |unit: &Unit| if unit.is_pinned { '!' } else { '.' };
        units.iter().map(mark).collect()
    };
    assert_eq!(stays(Format::Responses, "uau"), "!..");
    assert_eq!(stays(Format::Responses, "suuauu"), "!!!...");
    assert_eq!(stays(Format::Responses, "uuusua"), "!..!!.");
    assert_eq!(stays(Format::Responses, "auua"), ".!!.");
    assert_eq!(stays(Format::Responses, "uuu"), "!.!");
    assert_eq!(
        stays(Format::Responses, "uUa") + &stays(Format::Responses, "Uua"),
        "!..!!."
    );
    assert_eq!(stays(Format::Responses, "a"), ".");
    assert_eq!(stays(Format::Chat, "suuauu"), "!!....");
    assert_eq!(stays(Format::Messages, "cuuau"), "!!...");
}
