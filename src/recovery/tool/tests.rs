use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn call(name: &str, arguments: &str) -> ProxyToolCall {
    ProxyToolCall {
        id: "call_1".into(),
        name: name.into(),
        arguments: arguments.into(),
        ..ProxyToolCall::default()
    }
}

/// The tool result of one call, and whether it asks for a new course.
fn execute(call: &ProxyToolCall, reminders: &mut Reminders) -> (String, bool) {
    let executed = execute_calls(
        Format::Chat,
        std::slice::from_ref(call),
        reminders,
        false,
        None,
    );
    let [message] = &executed.results[..] else {
        panic!("{} tool results", executed.results.len());
    };
    let message: Value = serde_json::from_str(message).unwrap();
    if call.legacy {
        assert_eq!(message["role"], "function");
        assert_eq!(message["name"], &*call.name);
    } else {
        assert_eq!(message["role"], "tool");
        assert_eq!(message["tool_call_id"], &*call.id);
    }
    let text = message["content"].as_str().unwrap();
    (text.to_owned(), executed.clear)
}

fn result(name: &str, arguments: &str, reminders: &mut Reminders) -> String {
    execute(&call(name, arguments), reminders).0
}

fn texts(reminders: &Reminders) -> Vec<&str> {
    reminders.notes().iter().map(|note| &*note.text).collect()
}

#[test]
fn each_tool_changes_the_reminders() {
    let mut notes = Reminders::default();
    let calls = [
        call(ADD, r#"{"content":"one"}"#),
        call(ADD, r#"{"content":"two"}"#),
        call(UPDATE, r#"{"id":"r1","content":"first"}"#),
        call(DELETE, r#"{"id":"r2"}"#),
        call(CLEAR, r#"{"reminder_content":"last"}"#),
    ];
    let executed = execute_calls(Format::Chat, &calls, &mut notes, false, None);
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
        call(ADD, r#"{"content":" "}"#),
        call(UPDATE, r#"{"id":"r7","content":"x"}"#),
        call(DELETE, "{}"),
        call(ADD, "no JSON"),
        ProxyToolCall {
            overlong: true,
            ..call(ADD, "{}")
        },
    ];
    for failed in failing {
        for first in [true, false] {
            let mut notes = Reminders::default();
            let clear = call(CLEAR, r#"{"reminder_content":"last"}"#);
            let kept = call(ADD, r#"{"content":"kept"}"#);
            let calls = if first {
                [clear, kept, failed.clone()]
            } else {
                [failed.clone(), kept, clear]
            };
            let executed = execute_calls(Format::Chat, &calls, &mut notes, false, None);
            assert!(!executed.clear);
            assert_eq!(texts(&notes), ["kept"], "what could be saved is");
            assert_eq!(executed.results.len(), 3);
            let with = |text: &str| -> Vec<bool> {
                let results = executed.results.iter();
                results.map(|result| result.contains(text)).collect()
            };
            assert_eq!(
                with("clear_mind was not carried out"),
                [first, false, !first]
            );
            assert_eq!(with("Error: "), [true, false, true]);
        }
    }
}

#[test]
fn a_legacy_call_gets_a_legacy_result() {
    let call = ProxyToolCall {
        legacy: true,
        id: "".into(),
        ..call(ADD, r#"{"content":"x"}"#)
    };
    let (result, clear) = execute(&call, &mut Reminders::default());
    assert_eq!(result, "Saved as r1. Go on with the work.");
    assert!(!clear);
}

#[test]
fn arguments_are_read_as_models_write_them() {
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
        result(ADD, arguments, &mut notes);
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
        let deleted = result(DELETE, &format!(r#"{{"id":{id}}}"#), &mut notes);
        let expected = "Reminder r1 was deleted. Go on with the work.";
        assert_eq!(deleted, expected, "{id}");
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
        let (result, clear) = execute(&call(CLEAR, nothing), &mut notes);
        assert!(clear && notes.is_empty(), "{nothing}");
        assert_eq!(result, "A new course begins. Go on with the work.");
    }
}

#[test]
fn errors_tell_the_model_what_to_do() {
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
             delete_reminder, clear_mind, recall.",
        ),
    ] {
        let (result, clear) = execute(&call(name, arguments), &mut notes);
        assert_eq!(result, expected, "{name} {arguments}");
        assert!(!clear);
    }
    assert_eq!(notes, before);
    let none = result(DELETE, r#"{"id":1}"#, &mut Reminders::default());
    assert!(none.ends_with("There are none yet; save one with add_reminder."));
}

#[test]
fn long_reminders_are_cut_or_refused() {
    let mut notes = Reminders::default();
    let long = format!(r#"{{"content":"{}"}}"#, "x".repeat(5_000));
    let first = result(ADD, &long, &mut notes);
    let expected = "Saved as r1, cut to its first 4000 characters. Go on with the work.";
    assert_eq!(first, expected);
    for _ in 0..3 {
        result(ADD, &long, &mut notes);
    }
    let full = result(ADD, &long, &mut notes);
    assert!(full.starts_with("Error: all reminders together"), "{full}");
    assert!(full.contains("update or delete"), "{full}");
    assert!(full.ends_with("r1, r2, r3, r4."), "{full}");
    // Nothing is cleared if the reminder cannot be saved.
    let (refused, clear) = execute(&call(CLEAR, r#"{"reminder_content":"x"}"#), &mut notes);
    assert!(!clear);
    assert!(
        refused.starts_with("Error: nothing was cleared"),
        "{refused}"
    );
    let overlong = ProxyToolCall {
        overlong: true,
        ..call(ADD, r#"{"content":"the beginning"#)
    };
    let (result, _) = execute(&overlong, &mut Reminders::default());
    assert!(result.contains("at most 4000 characters"), "{result}");
}

#[test]
fn the_number_of_reminders_is_bounded() {
    let mut notes = Reminders::default();
    let calls: Vec<_> = (0..1_000)
        .map(|n| call(ADD, &format!(r#"{{"content":"{n}"}}"#)))
        .collect();
    let executed = execute_calls(Format::Chat, &calls, &mut notes, false, None);
    assert_eq!(executed.results.len(), 1_000);
    assert_eq!(notes.notes().len(), reminder::MAX_NOTES);
    assert!(executed.results[999].contains("Error: there are 32 reminders already"));
}

proptest! {
    #[test]
    fn any_call_gets_a_short_result(
        calls in prop::collection::vec((prop::sample::select(TOOL_NAMES), arguments(), any::<bool>(), any::<bool>()), 0..40)
    ) {
        let calls: Vec<_> = calls.into_iter().map(|(name, arguments, legacy, overlong)| ProxyToolCall {
            legacy,
            overlong,
            ..call(name, &arguments)
        }).collect();
        let mut notes = Reminders::default();
        let executed = execute_calls(Format::Chat, &calls, &mut notes, false, None);
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
