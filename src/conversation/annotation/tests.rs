use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{conversation::Author, format::chat::index_body};

fn read(body: &str) -> Conversation {
    index_body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn remove_annotations(conversation: &Conversation) -> String {
    let mut edits = Edits::default();
    conversation.take_out_annotations(&mut edits);
    let body = edits.apply(&conversation.body).to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn annotations_of_messages_and_parts_are_read_and_removed() {
    let found = read(
        r#"{"plimsoll":{"name":"x"},"messages":[
            {"plimsoll" : {"name":"rules","priority":"critical"} , "role":"system","content":"s"},
            {"role":"user","content":[{"type":"text","text":"a","plimsoll":{"priority":"low"}},
                {"type":"text","text":"b"}],"plimsoll":{"name":"all"}}]}"#,
    );
    let read = found.annotations.iter().map(|it| {
        let name = it.name.map(|name| found.decode_text(name).into_owned());
        (it.message, it.part, name, it.priority)
    });
    assert_eq!(
        read.collect::<Vec<_>>(),
        [
            (0, None, Some("rules".into()), Some(Priority::Critical)),
            (1, Some(0), None, Some(Priority::Low)),
            (1, None, Some("all".into()), None),
        ]
    );
    assert_eq!(found.odd_annotations(), 0);
    assert_eq!(found.annotations_of(1).len(), 2);
    assert_eq!(
        remove_annotations(&found),
        r#"{"plimsoll":{"name":"x"},"messages":[
            {"role":"system","content":"s"},
            {"role":"user","content":[{"type":"text","text":"a"},
                {"type":"text","text":"b"}]}]}"#
    );
}

#[test]
fn annotations_that_are_not_understood_are_removed_too() {
    for value in [
        "null",
        "\"low\"",
        "[{}]",
        r#"{"priority":"urgent"}"#,
        r#"{"name":7}"#,
        r#"{"name":"a","name":"b"}"#,
        r#"{"more":1}"#,
        r#"{"priority":null}"#,
    ] {
        let found = read(&format!(
            r#"{{"messages":[{{"role":"user","content":"u","plimsoll":{value}}}]}}"#
        ));
        assert_eq!(found.odd_annotations(), 1, "{value}");
        assert_eq!(
            remove_annotations(&found),
            r#"{"messages":[{"role":"user","content":"u"}]}"#
        );
    }
    let twice = read(
        r#"{"messages":[{"plimsoll":{"name":"a"},"plimsoll":{"name":"b"},"role":"user","plimsoll":{}}]}"#,
    );
    assert_eq!(twice.odd_annotations(), 2);
    assert!(twice.annotations[0].name.is_some() && twice.annotations[1].name.is_none());
    assert_eq!(
        remove_annotations(&twice),
        r#"{"messages":[{"role":"user"}]}"#
    );
    let alone = read(r#"{"messages":[{ "plimsoll":1 , "plimsoll":2 }]}"#);
    assert_eq!(remove_annotations(&alone), r#"{"messages":[{  }]}"#);
    // An array with an element that is not a part.
    let odd = read(r#"{"messages":[{"role":"user","content":[1,{"text":"t","plimsoll":{}}]}]}"#);
    assert_eq!(
        remove_annotations(&odd),
        r#"{"messages":[{"role":"user","content":[1,{"text":"t"}]}]}"#
    );
}

#[test]
fn the_same_key_elsewhere_is_not_touched() {
    let body = r#"{"plimsoll":1,"messages":[{"role":"user","content":"\"plimsoll\":1","Plimsoll":1,"x":{"plimsoll":1}},{"role":"assistant","content":null,"tool_calls":[{"id":"a","plimsoll":1,"function":{"name":"plimsoll","arguments":"{\"plimsoll\":1}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"file","file":{"plimsoll":1}}]}],"tools":[{"plimsoll":1}]}"#;
    let found = read(body);
    assert!(found.annotations.is_empty());
    assert_eq!(remove_annotations(&found), body);
}

#[test]
fn too_many_annotations_make_a_body_unguardable() {
    let many = r#","plimsoll":1"#.repeat(1 << 18);
    let body = format!(r#"{{"messages":[{{"role":"user"{many}}}]}}"#);
    assert!(index_body(Bytes::from(body)).is_err());
}

/// An object of these members, with white space around every key and value.
fn object(members: &[String], spaces: &[&str; 4]) -> String {
    let [a, b, c, d] = spaces;
    let members: Vec<_> = members
        .iter()
        .map(|member| {
            let (key, value) = member.split_once(':').unwrap();
            format!("{a}{key}{b}:{c}{value}{d}")
        })
        .collect();
    format!("{{{}}}", members.join(","))
}

/// A message or a part with annotations among its members, and without them.
fn annotated(
    mut members: Vec<String>,
    positions: &[prop::sample::Index],
    annotation: &str,
    spaces: &[&str; 4],
) -> (String, String) {
    let plain = object(&members, spaces);
    for position in positions {
        let at = position.index(members.len() + 1);
        members.insert(at, format!("\"plimsoll\":{annotation}"));
    }
    (object(&members, spaces), plain)
}

fn without_spaces(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

proptest! {
    #[test]
    fn a_body_without_its_annotations_is_the_plain_body(
        messages in prop::collection::vec((
            0usize..4,
            prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            prop::collection::vec((0usize..4, prop::collection::vec(any::<prop::sample::Index>(), 0..3)), 0..3),
        ), 1..6),
        annotation in prop::sample::select(vec!["{}", "null", r#"{"name":"a,}","priority":"low"}"#, r#"[{"plimsoll":1}]"#, "\"}\""]),
        spaces in prop::array::uniform4(prop::sample::select(vec!["", " ", "\n\t", " \r\n  "])),
    ) {
        let roles = ["system", "user", "assistant", "tool"];
        let kinds = [
            vec![r#""type":"text""#, r#""text":"t""#],
            vec![r#""type":"image_url""#, r#""image_url":{"url":"u","plimsoll":1}"#],
            vec![r#""type":"refusal""#, r#""refusal":"no,[]""#],
            vec![r#""type":"thinking""#, r#""thinking":{"plimsoll":{}}"#, r#""signature":"s""#],
        ];
        let (mut with, mut plain) = (Vec::new(), Vec::new());
        for (role, positions, parts) in messages {
            let parts: Vec<_> = parts.into_iter().map(|(kind, positions)| {
                let members = kinds[kind].iter().map(|member| (*member).to_owned()).collect();
                annotated(members, &positions, annotation, &spaces)
            }).collect();
            let list = |of: fn(&(String, String)) -> &str| {
                let parts: Vec<_> = parts.iter().map(of).collect();
                format!("\"content\":[{}]", parts.join(","))
            };
            let members = |content: String| vec![format!("\"role\":\"{}\"", roles[role]), content];
            let outer = annotated(members(list(|it| &it.0)), &positions, annotation, &spaces).0;
            with.push(outer);
            plain.push(object(&members(list(|it| &it.1)), &spaces));
        }
        let body = |messages: &[String]| format!(r#"{{"messages":[{}],"n":1}}"#, messages.join(" , "));
        let (with, plain) = (read(&body(&with)), read(&body(&plain)));
        let sent = remove_annotations(&with);
        serde_json::from_str::<Value>(&sent).unwrap();
        prop_assert_eq!(without_spaces(&sent), without_spaces(std::str::from_utf8(&plain.body).unwrap()));
        prop_assert!(read(&sent).annotations.is_empty());
        for (annotated, plain) in with.items.iter().zip(&plain.items) {
            prop_assert_eq!(annotated.digest, plain.digest);
            prop_assert_eq!(annotated.short_digest, plain.short_digest);
            prop_assert!(annotated.author != Author::Unknown);
        }
        // White space counts in an opaque part.
        if spaces.iter().all(|space| space.is_empty()) {
            for (annotated, plain) in with.items.iter().zip(&plain.items) {
                prop_assert_eq!(annotated.sizes, plain.sizes);
            }
        }
    }
}
