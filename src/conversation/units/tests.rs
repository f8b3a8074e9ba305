use bytes::Bytes;

use super::*;
use crate::{conversation::Format, format::chat::index_body};

fn kinds(messages: &str) -> Result<Vec<(UnitKind, Range<usize>)>, UnitError> {
    let body = format!(r#"{{"messages":[{messages}]}}"#);
    let conversation = index_body(Bytes::from(body)).unwrap();
    Ok(split_units(&conversation)?
        .into_iter()
        .map(|unit| (unit.kind, unit.messages))
        .collect())
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
        kinds(&text).unwrap(),
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
fn errors_name_the_message_of_a_broken_pair() {
    let check = |parts: &[String], expected| {
        assert_eq!(kinds(&parts.join(",")), Err(expected), "{parts:?}");
    };
    check(&[USER.into(), result("a")], UnitError::Orphan(1));
    check(&[calls(&["a"]), result("b")], UnitError::Orphan(1));
    check(&[calls(&["a"])], UnitError::Unanswered(0));
    check(
        &[calls(&["a", "b"]), result("a"), USER.into()],
        UnitError::Unanswered(0),
    );
    check(
        &[calls(&["a"]), result("a"), USER.into(), result("a")],
        UnitError::Orphan(3),
    );
}

#[test]
fn legacy_calls_pair_without_ids() {
    let call =
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}"#;
    let answer = r#"{"role":"function","name":"f","content":"r"}"#;
    assert_eq!(
        kinds(&format!("{USER},{call},{answer}")).unwrap()[1],
        (UnitKind::Step, 1..3)
    );
    assert_eq!(
        kinds(&format!("{USER},{answer}")),
        Err(UnitError::Orphan(1))
    );
    assert_eq!(
        kinds(&format!("{call},{USER}")),
        Err(UnitError::Unanswered(0))
    );
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
            _ => r#"{"role":"assistant","content":"a"}"#,
        };
        let messages: Vec<&str> = roles.chars().map(message).collect();
        let messages = messages.join(",");
        let body = format!(r#"{{"messages":[{messages}],"input":[{messages}]}}"#);
        let conversation = format.index_body(Bytes::from(body)).unwrap();
        let units = split_units(&conversation).unwrap();
        let mark = |unit: &Unit| if unit.stays { '!' } else { '.' };
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
}
