use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn own(name: &str, arguments: &str) -> ProxyToolCall {
    ProxyToolCall {
        id: "call_1".into(),
        name: name.into(),
        arguments: arguments.into(),
        ..ProxyToolCall::default()
    }
}

/// What one call is answered, and whether a new course is asked for.
fn said(call: &ProxyToolCall, reminders: &mut Reminders) -> (String, bool) {
    let executed = execute_calls(Format::Chat, std::slice::from_ref(call), reminders);
    let [message] = &executed.results[..] else {
        panic!("{} answers", executed.results.len());
    };
    let message: Value = serde_json::from_str(message).unwrap();
    if call.legacy {
        assert_eq!(message["role"], "function");
        assert_eq!(message["name"], &*call.name);
    } else {
        assert_eq!(message["role"], "tool");
        assert_eq!(message["tool_call_id"], &*call.id);
    }
    (
        message["content"].as_str().unwrap().to_owned(),
        executed.clear,
    )
}

fn answer(name: &str, arguments: &str, reminders: &mut Reminders) -> String {
    said(&own(name, arguments), reminders).0
}

fn texts(reminders: &Reminders) -> Vec<&str> {
    reminders.notes().iter().map(|note| &*note.text).collect()
}

#[test]
fn each_tool_does_what_it_says() {
    let mut notes = Reminders::default();
    let calls = [
        own(ADD, r#"{"content":"one"}"#),
        own(ADD, r#"{"content":"two"}"#),
        own(UPDATE, r#"{"id":"r1","content":"first"}"#),
        own(DELETE, r#"{"id":"r2"}"#),
        own(CLEAR, r#"{"reminder_content":"last"}"#),
    ];
    let executed = execute_calls(Format::Chat, &calls, &mut notes);
    assert!(executed.clear);
    assert_eq!(texts(&notes), ["first", "last"]);
    assert_eq!(
        &*executed.results[0],
        r#"{"content":"Saved as r1. Go on with the work.","role":"tool","tool_call_id":"call_1"}"#
    );
    assert_eq!(executed.results.len(), 5);
    assert!(executed.results[4].contains("Saved as r3. A new course begins."));
}

#[test]
fn nothing_is_cleared_beside_a_call_that_failed() {
    let failing = [
        own(ADD, r#"{"content":" "}"#),
        own(UPDATE, r#"{"id":"r7","content":"x"}"#),
        own(DELETE, "{}"),
        own(ADD, "no JSON"),
        ProxyToolCall {
            overlong: true,
            ..own(ADD, "{}")
        },
    ];
    for failed in failing {
        for first in [true, false] {
            let mut notes = Reminders::default();
            let clear = own(CLEAR, r#"{"reminder_content":"last"}"#);
            let kept = own(ADD, r#"{"content":"kept"}"#);
            let calls = match first {
                true => [clear, kept, failed.clone()],
                false => [failed.clone(), kept, clear],
            };
            let executed = execute_calls(Format::Chat, &calls, &mut notes);
            assert!(!executed.clear);
            assert_eq!(texts(&notes), ["kept"], "what could be saved is");
            assert_eq!(executed.results.len(), 3);
            let told = |at: usize| executed.results[at].contains("clear_mind was not carried out");
            assert_eq!([told(0), told(1), told(2)], [first, false, !first]);
            let error = |at: usize| executed.results[at].contains("Error: ");
            assert_eq!([error(0), error(1), error(2)], [true, false, true]);
        }
    }
}

#[test]
fn a_legacy_call_is_answered_as_one() {
    let call = ProxyToolCall {
        legacy: true,
        id: "".into(),
        ..own(ADD, r#"{"content":"x"}"#)
    };
    let (answer, clear) = said(&call, &mut Reminders::default());
    assert_eq!(answer, "Saved as r1. Go on with the work.");
    assert!(!clear);
}

#[test]
fn arguments_are_understood_as_models_write_them() {
    for (arguments, kept) in [
        (r#"{"content":" a \n"}"#, "a"),
        (r#"{"text":"a","priority":"high"}"#, "a"),
        (r#"{"content":null,"note":"a"}"#, "a"),
        (r#"{"content":["a","b"]}"#, "a\nb"),
        (r#"{"content":{"next":1}}"#, r#"{"next":1}"#),
        (r#"{"content":7}"#, "7"),
        (r#""{\"content\":\"a\"}""#, "a"),
        ("\n{\"content\":\"a\"}", "a"),
    ] {
        let mut notes = Reminders::default();
        answer(ADD, arguments, &mut notes);
        assert_eq!(texts(&notes), [kept], "{arguments}");
    }
    for id in [
        r#""r1""#,
        r#""1""#,
        "1",
        "1.0",
        r#"" R1 ""#,
        r##""#1""##,
        r#""[r1]""#,
    ] {
        let mut notes = Reminders::default();
        notes.add_note("x").unwrap();
        let answer = answer(DELETE, &format!(r#"{{"id":{id}}}"#), &mut notes);
        assert_eq!(
            answer, "Reminder r1 was deleted. Go on with the work.",
            "{id}"
        );
    }
    for nothing in [
        "",
        " ",
        "null",
        "{}",
        r#"{"reminder_content":null}"#,
        r#"{"reminder_content":""}"#,
        "\"\"",
    ] {
        let mut notes = Reminders::default();
        let (answer, clear) = said(&own(CLEAR, nothing), &mut notes);
        assert!(clear && notes.is_empty(), "{nothing}");
        assert_eq!(answer, "A new course begins. Go on with the work.");
    }
}

#[test]
fn what_is_wrong_is_answered_with_what_to_do() {
    let mut notes = Reminders::default();
    notes.add_note("x").unwrap();
    notes.add_note("y").unwrap();
    let before = notes.clone();
    let empty = "Error: the reminder is empty. Write its text into content.";
    let unknown = "Error: there is no reminder of that id. There are r1, r2.";
    for (name, arguments, expected) in [
        (ADD, "", empty),
        (ADD, r#"{"content":" "}"#, empty),
        (UPDATE, r#"{"id":1}"#, empty),
        (UPDATE, r#"{"id":"r9","content":"z"}"#, unknown),
        (DELETE, r#"{"id":"all"}"#, unknown),
        (DELETE, r#"{"id":-1}"#, unknown),
        (DELETE, r#"{"id":1.5}"#, unknown),
        (DELETE, r#"{"id":1e300}"#, unknown),
        (DELETE, "{}", unknown),
        (
            ADD,
            r#"{"content":"a"#,
            "Error: the arguments are no JSON (line 1, column 13). Call again with a JSON object.",
        ),
        (
            CLEAR,
            "[1]",
            "Error: the arguments are no JSON object. Call again with one.",
        ),
        (
            "rm",
            "{}",
            "Error: there is no such tool; there are add_reminder, update_reminder, \
             delete_reminder, clear_mind.",
        ),
    ] {
        let (answer, clear) = said(&own(name, arguments), &mut notes);
        assert_eq!(answer, expected, "{name} {arguments}");
        assert!(!clear);
    }
    assert_eq!(notes, before);
    let none = answer(DELETE, r#"{"id":1}"#, &mut Reminders::default());
    assert!(none.ends_with("There are none yet; save one with add_reminder."));
}

#[test]
fn what_is_too_long_is_cut_or_refused() {
    let mut notes = Reminders::default();
    let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(5_000));
    let first = answer(ADD, &long, &mut notes);
    assert_eq!(
        first,
        "Saved as r1, cut to its first 4000 characters. Go on with the work."
    );
    for _ in 0..3 {
        answer(ADD, &long, &mut notes);
    }
    let full = answer(ADD, &long, &mut notes);
    assert!(full.starts_with("Error: all reminders together"), "{full}");
    assert!(full.contains("update or delete"), "{full}");
    assert!(full.ends_with("r1, r2, r3, r4."), "{full}");
    // What could not be saved must not be cleared away.
    let (kept, clear) = said(&own(CLEAR, r#"{"reminder_content":"x"}"#), &mut notes);
    assert!(
        !clear && kept.starts_with("Error: nothing was cleared"),
        "{kept}"
    );

    let overlong = ProxyToolCall {
        overlong: true,
        ..own(ADD, r#"{"content":"the beginning"#)
    };
    let (answer, _) = said(&overlong, &mut Reminders::default());
    assert!(answer.contains("at most 4000 characters"), "{answer}");
}

#[test]
fn adding_for_ever_ends_in_refusals() {
    let mut notes = Reminders::default();
    let calls: Vec<_> = (0..1_000)
        .map(|n| own(ADD, &format!(r#"{{"content":"{n}"}}"#)))
        .collect();
    let executed = execute_calls(Format::Chat, &calls, &mut notes);
    assert_eq!(executed.results.len(), 1_000);
    assert_eq!(notes.notes().len(), reminder::MAX_NOTES);
    assert!(executed.results[999].contains("Error: there are 32 reminders already"));
}

proptest! {
    #[test]
    fn whatever_is_called_gets_a_short_answer(
        calls in prop::collection::vec((prop::sample::select(TOOL_NAMES), arguments(), any::<bool>(), any::<bool>()), 0..40)
    ) {
        let calls: Vec<_> = calls.into_iter().map(|(name, arguments, legacy, overlong)| ProxyToolCall {
            legacy,
            overlong,
            ..own(name, &arguments)
        }).collect();
        let mut notes = Reminders::default();
        let executed = execute_calls(Format::Chat, &calls, &mut notes);
        prop_assert_eq!(executed.results.len(), calls.len());
        for result in executed.results {
            prop_assert!(serde_json::from_str::<Value>(&result).is_ok());
            prop_assert!(result.len() < 700, "{}", result);
        }
    }
}

fn arguments() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        (
            prop::sample::select(vec!["content", "id", "reminder_content", "x"]),
            any::<String>()
        )
            .prop_map(|(name, text)| serde_json::json!({ name: text, "id": 1 }).to_string()),
        any::<i64>().prop_map(|id| format!(r#"{{"id":{id},"content":"x"}}"#)),
        (1usize..300).prop_map(|depth| "[".repeat(depth)),
        Just(r#"{"content":"\ud800"}"#.to_owned()),
    ]
}
