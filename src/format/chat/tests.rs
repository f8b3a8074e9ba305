use bytes::Bytes;

use super::*;
use crate::{
    conversation::{Author, BlockKind, Conversation, IndexError, answer_digest, edit::Edits},
    json::text,
};

fn read(body: &str) -> Conversation {
    index_body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

#[test]
fn items_calls_and_blocks_of_a_request_are_found() {
    let body = r#" {"model" : "m", "messages":[
        {"role":"system","content":"be brief"},
        {"content":[{"type":"text","text":"look"},{"type":"image_url","image_url":{"url":"http://x/y.png","detail":"low"}}],"role":"user"},
        {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"read","arguments":"{\"p\":1}"}},{"id":"c2","type":"function","function":{"name":"run","arguments":""}}]},
        {"role":"tool","tool_call_id":"c1","content":"ok"},
        {"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"fine","cache_control":{"type":"ephemeral"}}]}
      ],"max_tokens":1e2,"stream":true} "#;
    let found = read(body);
    assert_eq!(found.model().as_deref(), Some("m"));
    assert!(found.asks_for_stream());
    assert_eq!(found.max_answer_tokens(), Some(100));
    let roles: Vec<_> = found.items.iter().map(|message| message.author).collect();
    use Author::{Model, System, Tool, User};
    assert_eq!(roles, [System, User, Model, Tool, Tool]);
    let call = &found.calls_of(&found.items[2])[0];
    assert_eq!(
        found.span_bytes(call.arguments.unwrap().span()),
        br#"{\"p\":1}"#
    );
    assert_eq!(found.raw_bytes(found.items[3].call_id.unwrap()), b"c1");
    assert!(matches!(
        found.blocks_of(&found.items[1])[1].kind,
        BlockKind::Image { low: true, .. }
    ));
    assert!(found.blocks_of(&found.items[4])[0].marked);
    for message in &found.items {
        let text = std::str::from_utf8(found.span_bytes(message.span)).unwrap();
        serde_json::from_str::<serde_json::Value>(text).unwrap();
    }
}

#[test]
fn other_json_is_told_apart_from_malformed_json() {
    for body in [
        "{}",
        "[]",
        "null",
        r#"{"messages":null}"#,
        r#"{"messages":{}}"#,
        r#"{"messages":[1]}"#,
        r#"{"messages":[],"messages":[]}"#,
        r#"{"messages":[],"model":"a","model":"b"}"#,
        r#"{"messages":[],"m\u006fdel":"b"}"#,
        r#"{"messages":[{"role":"user","role":"system"}]}"#,
    ] {
        let got = index_body(Bytes::from_static(body.as_bytes()));
        assert!(matches!(got, Err(IndexError::Unguardable(_))), "{body}");
    }
    for body in [
        "",
        "{",
        "hello",
        r#"{"messages":[}"#,
        r#"{"messages":[]} x"#,
        r#"{"messages":[{"role":"user"]}"#,
    ] {
        let got = index_body(Bytes::from_static(body.as_bytes()));
        assert!(matches!(got, Err(IndexError::NotJson(_))), "{body}");
    }
    let deep = format!(
        r#"{{"messages":[],"x":{}{}}}"#,
        "[".repeat(2000),
        "]".repeat(2000)
    );
    assert!(matches!(
        index_body(Bytes::from(deep)),
        Err(IndexError::Unguardable(_))
    ));
}

#[test]
fn a_repeated_key_is_named_with_its_object() {
    for (message, reason) in [
        (r#"{"role":"user","role":"system"}"#, "role occurs twice"),
        (
            r#"{"role":"user","content":[{"type":"text","type":"text"}]}"#,
            "type of a part occurs twice",
        ),
    ] {
        let body = format!(r#"{{"messages":[{message}]}}"#);
        let Err(IndexError::Unguardable(found)) = index_body(Bytes::from(body)) else {
            panic!("{message} was indexed");
        };
        assert_eq!(found, reason);
    }
}

#[test]
fn unusual_but_valid_bodies_are_indexed() {
    let with_mark = format!(
        "\u{feff}{}",
        r#"{"messages":[{"role":"user","content":"x"}]}"#
    );
    assert_eq!(read(&with_mark).items.len(), 1);
    assert!(read(r#"{"messages":[]}"#).items.is_empty());
    let huge = format!(r#"{{"seed":{},"messages":[]}}"#, "9".repeat(5000));
    assert_eq!(read(&huge).fields.len(), 2);
    let lone = read(r#"{"messages":[{"role":"user","content":"a\ud800b"}]}"#);
    assert_eq!(lone.items[0].sizes.total_chars(), 3);
}

#[test]
fn the_digest_depends_on_content_but_not_on_spelling() {
    let digest = |message: &str| read(&format!(r#"{{"messages":[{message}]}}"#)).items[0].digest;
    let plain = digest(r#"{"role":"user","content":"caf\u00e9/\n"}"#);
    for same in [
        r#"{"content" : "café\/\u000a" , "role":"user"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"café/\n"}]}"#,
        r#"{"role":"user","content":[{"text":"café/\n","cache_control":{"type":"ephemeral"},"type":"text"}]}"#,
    ] {
        assert_eq!(digest(same), plain, "{same}");
    }
    for other in [
        r#"{"role":"user","content":"cafe/\n"}"#,
        r#"{"role":"assistant","content":"café/\n"}"#,
        r#"{"role":"user","name":"bob","content":"café/\n"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"café/\n"},{"type":"text","text":"x"}]}"#,
    ] {
        assert_ne!(digest(other), plain, "{other}");
    }
    let reasoned = r#"{"role":"assistant","content":"a","reasoning_content":"thinking"}"#;
    assert_eq!(
        digest(reasoned),
        digest(r#"{"role":"assistant","content":"a"}"#)
    );
    let file = |inner: &str| {
        digest(&format!(
            r#"{{"role":"user","content":[{{"type":"file",{inner}}}]}}"#
        ))
    };
    assert_eq!(
        file(r#""file":{"a":"1","b":2}"#),
        file(r#""file":{ "b":2,"a":"\u0031"}"#)
    );
    assert_ne!(file(r#""file":{"a":"1"}"#), file(r#""file":{"a":"2"}"#));
}

#[test]
fn an_answer_sent_back_has_the_digest_of_its_stream() {
    let message = r#"{"role":"assistant","content":"h\u00e9llo","tool_calls":[{"id":"c1","function":{"name":"f","arguments":"{}"}}]}"#;
    let found = read(&format!(r#"{{"messages":[{message}]}}"#));
    let mut text = text::TextDigester::new();
    text.push("hé".as_bytes());
    text.push(b"llo");
    assert_eq!(
        found.items[0].short_digest,
        answer_digest(text.finish(), &[text::digest_text(b"c1")])
    );
    let silent = read(
        r#"{"messages":[{"role":"assistant","content":null},{"role":"assistant","content":""},{"role":"assistant","content":[]}]}"#,
    );
    for message in &silent.items {
        assert_eq!(message.short_digest, answer_digest(0, &[]));
    }
}

#[test]
fn usage_is_asked_for_only_if_the_client_leaves_it_open() {
    let asked = |body: &str| {
        let conversation = read(body);
        let mut edits = Edits::default();
        let asked = conversation.ask_usage(&mut edits);
        let body = edits.apply(&conversation.body).to_bytes();
        (asked, String::from_utf8(body.to_vec()).unwrap())
    };
    for (body, expected) in [
        (
            r#"{"messages":[],"stream":true }"#,
            r#"{"messages":[],"stream":true ,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options":null}"#,
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options":{ }}"#,
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true }}"#,
        ),
        (
            r#"{"messages":[],"stream":true,"stream_options":{"x":1}}"#,
            r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
        ),
    ] {
        assert_eq!(asked(body), (true, expected.to_owned()));
    }
    for body in [
        r#"{"messages":[]}"#,
        r#"{"messages":[],"stream":false}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":false}}"#,
        r#"{"messages":[],"stream":true,"stream_options":{"include_usage":true}}"#,
    ] {
        assert_eq!(asked(body), (false, body.to_owned()));
    }
}

/// The index of the smallest messages is many times as large as the body.
#[test]
fn too_many_messages_calls_or_parts_are_unguardable() {
    let bodies = |count: usize| {
        let many = vec!["{}"; count].join(",");
        [
            format!(r#"{{"messages":[{many}]}}"#),
            format!(r#"{{"messages":[{{"role":"user","content":[{many}]}}]}}"#),
            format!(r#"{{"messages":[{{"role":"assistant","tool_calls":[{many}]}}]}}"#),
        ]
    };
    for body in bodies(200_000) {
        assert!(index_body(Bytes::from(body)).is_ok());
    }
    for body in bodies(300_000) {
        let got = index_body(Bytes::from(body));
        assert!(matches!(got, Err(IndexError::Unguardable(_))));
    }
}

#[test]
fn digests_of_every_role_are_those_by_which_sessions_were_stored() {
    let body = r#"{"messages":[{"role":"system","content":"s"},{"role":"developer","content":"s"},{"role":"user","content":[{"type":"text","text":"u"},{"type":"image_url","image_url":{"url":"data:,"}}]},{"role":"assistant","content":"a","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","name":"f","content":"r"},{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},{"role":"function","tool_call_id":"c1","name":"f","content":"r"},{"role":"critic","content":"x"}]}"#;
    let read = read(body);
    let digests: Vec<_> = read
        .items
        .iter()
        .map(|item| (item.digest, item.short_digest))
        .collect();
    // Computed by the last release with chat completions only.
    let stored = [
        (
            0xa02f923abea0747c9831d13df758898e,
            0x0b0325c963a6329580709d6aa9ef7134,
        ),
        (
            0x2c5a5b926b6db08d75565acc22e2fbd2,
            0x0b0325c963a6329580709d6aa9ef7134,
        ),
        (
            0xec78810dc492cac19f7b4b4c7d9b2ea2,
            0x99aa06d3014798d86001c324468d497f,
        ),
        (
            0x5b7f795ef7ea0da4b72272f856e35193,
            0xbd3a7967ba17f56e642000d3a5cc2eb4,
        ),
        (
            0x6424b60357c1157b6883b6a59c8e211a,
            0x318cd19a56d40bdb15bc2126baeec0cb,
        ),
        (
            0xa0a1a799144596cd3a62d4c2bc70d2c9,
            0x99aa06d3014798d86001c324468d497f,
        ),
        (
            0xc7e74c7fde2e56435d91ed024a1fd490,
            0x318cd19a56d40bdb15bc2126baeec0cb,
        ),
        (
            0x7890b42789b04fe830d1e490c6515f76,
            0x779b9856fcc28c629223156d7b03c548,
        ),
    ];
    assert_eq!(digests, stored);
    let listed: Vec<_> = read.calls.iter().map(|call| call.listed).collect();
    assert_eq!(listed, [true, false]);
    assert_eq!(read.items[6].call_id, None);
}

#[test]
fn empty_lists_of_tools_count_as_none() {
    for (tools, names, lists) in [
        ("null", false, false),
        ("[]", false, false),
        ("[ ]", false, false),
        ("{}", false, true),
        ("false", false, true),
        ("[{}]", true, true),
    ] {
        for list in ["tools", "functions"] {
            let read = read(&format!(
                r#"{{"max_tokens":16,"{list}":{tools},"messages":[]}}"#
            ));
            assert_eq!(
                (read.names_tools(), read.lists_tools()),
                (names, lists),
                "{tools}"
            );
            assert_eq!(read.is_auxiliary(), !names, "{tools}");
        }
    }
}

#[test]
fn tasks_of_a_chat_app_are_auxiliary() {
    let words = r"### Task:\nName it.\n<chat_history>\nUSER: hi\n</chat_history>\n";
    let ask = |more: &str, messages: &str| {
        let body = format!(r#"{{{more}"messages":[{messages}]}}"#);
        read(&body).is_auxiliary()
    };
    let user = |content: &str| format!(r#"{{"role":"user","content":{content}}}"#);
    let task = user(&format!("\"{words}\""));
    let system = r#"{"role":"system","content":"s"}"#;
    assert!(ask(r#""stream":false,"#, &task));
    assert!(ask("", &format!("{system},{task}")));
    let parts = format!(r#"[{{"type":"text","text":"{words}"}}]"#);
    assert!(ask("", &user(&parts)));
    // Anything else may be a conversation.
    assert!(!ask(r#""stream":true,"#, &task));
    assert!(!ask(r#""tools":[{}],"#, &task));
    assert!(!ask("", &format!("{task},{task}")));
    assert!(!ask("", &user("\"### Task:\\nName it.\"")));
    assert!(!ask("", &user(&format!("\"Say: {words}\""))));
    assert!(!ask("", &task.replace("user", "assistant")));
}
