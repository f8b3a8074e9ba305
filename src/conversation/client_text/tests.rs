use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    conversation::{
        Format,
        units::{Unit, UnitKind, find_question_before, split_units},
    },
    json::text::{decode_text, escape_text},
};

const REMINDER: &str = "<system-reminder>Mind the mast.</system-reminder>";

/// A step of chat completions, the texts of users behind it, and so on.
fn in_chat(steps: &[&[&str]]) -> Conversation {
    let mut messages = vec![json!({"role": "user", "content": "Mend it"})];
    for (step, texts) in steps.iter().enumerate() {
        let id = format!("c{step}");
        let call =
            json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "r"}));
        messages.extend(
            texts
                .iter()
                .map(|text| json!({"role": "user", "content": text})),
        );
    }
    index(Format::Chat, &json!({"messages": messages}))
}

fn index(format: Format, body: &Value) -> Conversation {
    format.index_body(Bytes::from(body.to_string())).unwrap()
}

/// Of each user message but the first, whether it is the client's.
fn find_marks(conversation: &Conversation) -> Vec<bool> {
    let users = conversation.items.iter();
    let users = users.filter(|item| item.author == Author::User).skip(1);
    users.map(|item| item.by_client).collect()
}

fn is_of_client(text: &str) -> bool {
    find_marks(&in_chat(&[&[text]])) == [true]
}

#[test]
fn the_tables_name_each_element_once() {
    let names = [USER_ELEMENTS, CLIENT_ELEMENTS];
    let names: Vec<_> = names.iter().flat_map(|it| it.split(' ')).collect();
    let known: HashSet<_> = names.iter().collect();
    assert_eq!(known.len(), names.len());
    let is_normal = |name: &&str| {
        let mut bytes = name.bytes();
        !name.is_empty() && bytes.all(|it| it.is_ascii_lowercase() || it == b'_')
    };
    assert!(names.iter().all(is_normal), "{names:?}");
}

#[test]
fn a_text_of_the_clients_elements_alone_is_the_clients() {
    for text in [
        REMINDER,
        "\n <environment_details>\n# Time\n12:00\n</environment_details>\n",
        "<system-reminder>a</system-reminder>\n\n<environment_details>b</environment_details>",
        "<system-reminder>a <b> c</system-reminder>",
        "<system-reminder kind=\"a b\" x='1'>a</system-reminder >",
        "<System_Reminder>a</System_Reminder>",
        "<todo_list/>",
        "<todo-list total=\"3\" />",
        "<system-reminder></system-reminder>",
        "<system-reminder>a <system-reminder>b</system-reminder> c</system-reminder>",
        "<system-reminder>of <system-reminder> tags</system-reminder>",
        "<plan-reminder>a</plan-reminder>",
        "<system-reminder>a<task>b</task></system-reminder>",
        "<system-reminder>é 字 😀 \" \\ \t</system-reminder>\u{3000}",
    ] {
        assert!(is_of_client(text), "{text}");
    }
}

#[test]
fn in_doubt_a_text_is_the_users() {
    for text in [
        "",
        " \n",
        "Go on",
        "<",
        "<<>>",
        "<system-reminder>",
        "<system-reminder>not closed",
        "<system-reminder>a</system_reminder>",
        "<system-reminder>a</system-reminder",
        "</system-reminder>",
        "<system-reminder>a</system-reminder>\nand now do X",
        "do X\n<system-reminder>a</system-reminder>",
        "<system-reminder>a</system-reminder> do X <system-reminder>b</system-reminder>",
        "<system-reminder>a</system-reminder></system-reminder>",
        "<system-reminder>of <system-reminder> tags</system-reminder> do X",
        "<user_message>do X</user_message>",
        "<feedback>do X</feedback><environment_details>b</environment_details>",
        "<environment_details>b</environment_details><UserQuery>do X</UserQuery>",
        "<bash-input>ls</bash-input><bash-stdout>a</bash-stdout>",
        "<command-name>/x</command-name><command-args>do X</command-args>",
        "<user-prompt-submit-hook>do X</user-prompt-submit-hook>",
        "<files_of_mine>a</files_of_mine>",
        "<todo_list/ >",
        "<!-- a -->",
        "<?xml version=\"1.0\"?>",
        "< system-reminder>a</system-reminder>",
        "<1>a</1>",
    ] {
        assert!(!is_of_client(text), "{text}");
    }
}

#[test]
fn an_unknown_element_is_the_clients_once_its_name_stood_behind_results() {
    let note = "<ship_state a=\"1\">a</ship_state>";
    let steps: [&[&str]; 4] = [&[note], &[], &[note], &["<ship_state/>\n", "<ship_state/>"]];
    assert_eq!(find_marks(&in_chat(&steps)), [false, true, true, true]);
    // Names are learnt behind results, and of messages that are nothing but elements.
    let steps: [&[&str]; 2] = [&["Go on", note], &[note]];
    assert_eq!(find_marks(&in_chat(&steps)), [false, false, false]);
    let beside = format!("{note} is what I see");
    let steps: [&[&str]; 3] = [&[&beside], &[note], &[note]];
    assert_eq!(find_marks(&in_chat(&steps)), [false, false, true]);
    // Two of one message do not vouch for each other, nor does a known one for an unknown one.
    let both = format!("{note}{note}{REMINDER}");
    assert_eq!(find_marks(&in_chat(&[&[&both], &[&both]])), [false, true]);
    // What carries the user's words does so each time.
    let answer = "<answer>Yes</answer>";
    assert_eq!(
        find_marks(&in_chat(&[&[answer], &[answer]])),
        [false, false]
    );
    let other = "<Ship_State>a</Ship_State>";
    assert_eq!(find_marks(&in_chat(&[&[note], &[other]])), [false, false]);
}

#[test]
fn only_what_stands_directly_behind_results_is_the_clients() {
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer = json!({"role": "assistant", "content": "a"});
    let body = json!({"messages": [user(REMINDER), user(REMINDER), answer, user(REMINDER)]});
    assert_eq!(find_marks(&index(Format::Chat, &body)), [false, false]);
    let steps: [&[&str]; 2] = [&[REMINDER, REMINDER], &["Do X", REMINDER]];
    assert_eq!(find_marks(&in_chat(&steps)), [true, true, false, false]);
}

#[test]
fn any_spelling_is_read() {
    let raw = r#"{"messages":[{"role":"user","content":"a"},
        {"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":""}}]},
        {"role":"tool","tool_call_id":"c","content":"r"},
        {"content":"\u000a\u003csystem-\u0072eminder\u003e\\u003c a \\\u003C/system-reminder\u003E\t","role":"user"}]}"#;
    let found = Format::Chat.index_body(Bytes::from(raw)).unwrap();
    assert_eq!(find_marks(&found), [true]);
    let odd = raw.replace("u003C/system", "\u{75}003D/system");
    let found = Format::Chat.index_body(Bytes::from(odd)).unwrap();
    assert_eq!(find_marks(&found), [false]);
}

#[test]
fn other_blocks_are_the_users() {
    let content = |blocks: Value| {
        let mut found = serde_json::from_slice::<Value>(&in_chat(&[&["x"]]).body).unwrap();
        found["messages"][3]["content"] = blocks;
        find_marks(&index(Format::Chat, &found))
    };
    let text = |text: &str| json!({"type": "text", "text": text});
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}});
    assert_eq!(
        content(json!([text(REMINDER), text("\n"), text(REMINDER)])),
        [true]
    );
    // An element does not reach over two texts.
    assert_eq!(
        content(json!([
            text("<system-reminder>"),
            text("</system-reminder>")
        ])),
        [false]
    );
    assert_eq!(content(json!([text(REMINDER), image])), [false]);
    assert_eq!(content(json!([])), [false]);
    assert_eq!(content(json!([text("")])), [false]);
    assert_eq!(content(Value::Null), [false]);
    assert_eq!(content(json!([REMINDER])), [false]);
}

#[test]
fn it_belongs_to_the_unit_of_its_results() {
    use UnitKind::{Step, User};
    let kinds = |conversation: &Conversation| -> Vec<_> {
        let units = split_units(conversation).into_iter();
        units.map(|unit| (unit.kind, unit.counted)).collect()
    };
    let chat = in_chat(&[
        &[REMINDER],
        &[REMINDER, REMINDER, "Do X"],
        &["Do X", REMINDER],
    ]);
    let expected = [
        (User, 1),
        (Step, 3),
        (Step, 4),
        (User, 1),
        (Step, 2),
        (User, 1),
        (User, 1),
    ];
    assert_eq!(kinds(&chat), expected);

    let text = |text: &str| json!({"type": "text", "text": text});
    let result = json!({"type": "tool_result", "tool_use_id": "a", "content": "r"});
    let call = json!({"type": "tool_use", "id": "a", "name": "f", "input": {}});
    let user = |content: Value| json!({"role": "user", "content": content});
    let answer = json!({"role": "assistant", "content": [call]});
    let body = json!({"max_tokens": 9, "messages": [user(json!("Mend it")),
        answer, user(json!([result, text(REMINDER)])),
        answer, user(json!([result, text(REMINDER), text("Do X")])),
        answer, user(json!([result])), user(json!(REMINDER)), user(json!("Do Y")),
        answer, user(json!([result, text("Do X"), text(REMINDER)]))]});
    let messages = index(Format::Messages, &body);
    let expected = [
        (User, 1),
        (Step, 3),
        (Step, 2),
        (User, 1),
        (Step, 3),
        (User, 1),
        (Step, 2),
        (User, 1),
    ];
    assert_eq!(kinds(&messages), expected);

    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "r"});
    let body = json!({"input": [user(json!("Mend it")), call("a"), call("b"), output("a"), user(json!(REMINDER)),
        output("b"), user(json!([{"type": "input_text", "text": REMINDER}])), user(json!("Do X"))]});
    let responses = index(Format::Responses, &body);
    assert_eq!(kinds(&responses), [(User, 1), (Step, 5), (User, 1)]);
}

#[test]
fn results_that_a_text_parts_from_their_calls_do_not_pair() {
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "r"});
    let user = |text: &str| json!({"role": "user", "content": text});
    let answer =
        json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]});
    let body =
        json!({"messages": [user("Mend it"), answer, result("a"), user(REMINDER), result("b")]});
    let units = split_units(&index(Format::Chat, &body));
    let kinds: Vec<_> = units
        .iter()
        .map(|unit| (unit.kind, unit.is_pinned))
        .collect();
    assert_eq!(
        kinds,
        [
            (UnitKind::User, true),
            (UnitKind::Other, true),
            (UnitKind::Other, true)
        ]
    );
}

/// Clients also set texts behind the question, such as the text of a skill.
#[test]
fn a_text_without_words_of_the_user_takes_no_questions_place() {
    let chat = in_chat(&[&["Do X", "<skill>a</skill>"], &[], &[REMINDER]]);
    let units = split_units(&chat);
    let asking: Vec<_> = units.iter().map(Unit::is_question).collect();
    assert_eq!(asking, [true, false, true, false, false, false]);
    for (end, question) in [(2, None), (3, Some(2)), (4, Some(2)), (6, Some(2))] {
        assert_eq!(find_question_before(&units, end), question, "{end}");
    }
}

fn words(text: &str) -> Vec<String> {
    let raw = escape_text(text);
    let words = list_user_words(raw.as_bytes());
    let words = words.map(|words| decode_text(words).unwrap().trim().to_owned());
    words.filter(|words| !words.is_empty()).collect()
}

#[test]
fn the_users_words_are_what_is_not_the_clients() {
    for (text, expected) in [
        ("Do X", &["Do X"][..]),
        ("<system-reminder>a</system-reminder>\nDo X", &["Do X"]),
        (
            "Do X\n<system-reminder>a</system-reminder> and Y",
            &["Do X", "and Y"],
        ),
        (
            "<feedback>Do X</feedback>\n<environment_details>b</environment_details>",
            &["Do X"],
        ),
        ("<system-reminder>a</system-reminder>", &[]),
        ("Why <system-reminder>?", &["Why <system-reminder>?"]),
        (
            "Why <system-reminder>? <todos>a</todos>",
            &["Why <system-reminder>? <todos>a</todos>"],
        ),
        ("a <b>c</b> <i> d", &["a <b>c</b> <i> d"]),
        ("<x><todos>a</todos>b</x>", &["<x>", "b</x>"]),
        ("", &[]),
    ] {
        assert_eq!(words(text), expected, "{text}");
    }
}

#[test]
fn long_texts_take_linear_time() {
    for piece in [
        "<system-reminder>",
        "<system-reminder><system-reminder></system-reminder>",
        "<a",
        "<a ",
        "<a x=\"",
        "</a>",
        "<a/>",
        "<a></a>",
        "<a></b>",
        "\\\\",
        "&lt;",
    ] {
        let text = piece.repeat(20_000);
        for text in [
            text.clone(),
            format!("{REMINDER}{text}"),
            format!("<a>{text}"),
            format!("<todos>{text}"),
        ] {
            is_of_client(&text);
            words(&text);
        }
    }
    let names: String = (0..20_000).map(|at| format!("<user{at}>")).collect();
    is_of_client(&names);
    words(&names);
    let closed: String = (0..20_000).map(|at| format!("<n{at}/>")).collect();
    is_of_client(&closed);
}

proptest! {
    #[test]
    fn the_parts_of_a_text_are_all_of_it_in_order(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "<a>", "</a>", "<a/>", "<todos>", "</todos>", "<task>", "</task>", "<a b='é'>", "<", ">", "/", "é", "\\",
                "\n", " ", "😀", "x",
            ]),
            0..40,
        ),
        only_known in any::<bool>(),
    ) {
        let raw = escape_text(&pieces.concat());
        let mut end = 0;
        for part in TextParts::new(raw.as_bytes(), only_known) {
            for range in [Some(part.words), part.element.map(|it| it.inner)].into_iter().flatten() {
                prop_assert!(end <= range.start && range.start <= range.end && range.end <= raw.len());
                prop_assert!(decode_text(&raw.as_bytes()[range.clone()]).is_some());
                end = range.end;
            }
        }
        let escaped: String = pieces.concat().encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
        let spelt: Vec<_> = list_user_words(escaped.as_bytes()).map(|it| decode_text(it).unwrap()).collect();
        let plain: Vec<_> = list_user_words(raw.as_bytes()).map(|it| decode_text(it).unwrap()).collect();
        prop_assert_eq!(spelt, plain);
    }
}

/// A question, a spoken answer, a text in the user's place behind it, and another answer.
fn behind_an_answer(format: Format, texts: &[&str]) -> Conversation {
    let blocks: Vec<Value> = texts
        .iter()
        .map(|text| json!({"type": "text", "text": text}))
        .collect();
    let entries = json!([
        {"role": "user", "content": "Mend it"},
        {"role": "assistant", "content": "<read_file><path>a</path></read_file>"},
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": "Well."}]);
    index(
        format,
        &json!({"model": "m", "max_tokens": 9, "messages": entries}),
    )
}

#[test]
fn results_that_clients_write_as_texts_are_part_of_the_step() {
    let details = "<environment_details>\n12:00\n</environment_details>";
    for format in [Format::Chat, Format::Messages] {
        for (texts, expected) in [
            (
                &["[read_file for 'a.rs'] Result:", "fn a() {}", details][..],
                true,
            ),
            (
                &["[read_file for 'a.rs'] Result:\nfn a() {}\n<input> <message>b</message>"],
                true,
            ),
            (
                &["[execute_command for 'ls\n[a-z]*'] Result:\nTool", details],
                true,
            ),
            (&["[list_files] Result: (see image below)"], true),
            (
                &[
                    "[ERROR] You did not use a tool in your previous response! Go on.",
                    details,
                ],
                true,
            ),
            (&["EXECUTION RESULT of [execute_bash]:\n/workspace"], true),
            (&["OBSERVATION:\ntotal 3"], true),
            (
                &[
                    "<tool_response>\n{\"a\": 1}\n</tool_response>\n<tool_response>b</tool_response>",
                ],
                true,
            ),
            (&["<tool_result>a</tool_result>", details], true),
            // The user speaks, or may.
            (
                &[
                    "[attempt_completion] Result:",
                    "<feedback>\nAnd now the mast\n</feedback>",
                    details,
                ],
                false,
            ),
            (
                &["[ask_followup_question for 'Which?'] Result:\n<answer>\nThe mast\n</answer>"],
                false,
            ),
            (&["[1] Result: it failed. Why?"], false),
            (&["[test] Result: it failed. Why?"], false),
            (&["[Bug] It crashes, see [step 2] Result: a fault"], false),
            (&["[bug] It crashes, see [step 2] Result: a fault"], false),
            (&["[see a_b] Result: a fault"], false),
            (&["[] Result: none"], false),
            (&["[_] Result: none"], false),
            (&["[read_file for 'a.rs'] failed"], false),
            (&["Result: [read_file] Result:"], false),
            (&["<tool_response>a</tool_response> What is that?"], false),
            (&["<tool_response>a"], false),
            (&["Observation: the sail is torn"], false),
            (&[details], false),
            (&[""], false),
        ] {
            let conversation = behind_an_answer(format, texts);
            assert_eq!(
                find_marks(&conversation),
                [expected],
                "{format:?} {texts:?}"
            );
            let units = split_units(&conversation);
            let kinds: Vec<UnitKind> = units.iter().map(|unit| unit.kind).collect();
            use UnitKind::{Assistant, Step, User};
            if expected {
                assert_eq!(kinds, [User, Step, Assistant], "{texts:?}")
            } else {
                assert_eq!(kinds, [User, Assistant, User, Assistant], "{texts:?}")
            }
        }
    }
}

#[test]
fn the_head_of_a_result_ends_with_its_name() {
    for (text, head) in [
        (
            "[read_file for 'é'] Result:\nfn",
            Some("[read_file for 'é'] Result:"),
        ),
        ("\n [a_b] Result:", Some("\n [a_b] Result:")),
        (
            "EXECUTION RESULT of [f]:\nb",
            Some("EXECUTION RESULT of [f]:"),
        ),
        ("[a for '] Result: ", Some("[a for '] Result:")),
        ("EXECUTION RESULT of the mast", None),
        ("[a for ", None),
        ("", None),
    ] {
        let raw = escape_text(text);
        let end = find_result_head(raw.as_bytes());
        let told = end.map(|end| decode_text(&raw.as_bytes()[..end]).unwrap());
        assert_eq!(told.as_deref(), head, "{text}");
    }
}
