use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{conversation::Author, format::chat::index_body};

fn read(body: &str) -> Conversation {
    index_body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
}

fn without(conversation: &Conversation) -> String {
    let mut edits = Edits::default();
    conversation.take_out_annotations(&mut edits);
    let body = edits.apply(&conversation.body).to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

#[test]
fn they_are_read_where_they_stand() {
    let found = read(
        r#"{"plimsoll":{"name":"x"},"messages":[
            {"plimsoll" : {"name":"rules","priority":"critical"} , "role":"system","content":"s"},
            {"role":"user","content":[{"type":"text","text":"a","plimsoll":{"priority":"low"}},
                {"type":"text","text":"b"}],"plimsoll":{"name":"all"}}]}"#,
    );
    let said: Vec<_> = found
        .annotations
        .iter()
        .map(|it| {
            let name = it.name.map(|name| found.decode_text(name).into_owned());
            (it.message, it.part, name, it.priority)
        })
        .collect();
    assert_eq!(
        said,
        [
            (0, None, Some("rules".into()), Some(Priority::Critical)),
            (1, Some(0), None, Some(Priority::Low)),
            (1, None, Some("all".into()), None),
        ]
    );
    assert_eq!(found.odd_annotations(), 0);
    assert_eq!(found.annotations_of(1).len(), 2);
    assert_eq!(
        without(&found),
        r#"{"plimsoll":{"name":"x"},"messages":[
            {"role":"system","content":"s"},
            {"role":"user","content":[{"type":"text","text":"a"},
                {"type":"text","text":"b"}]}]}"#
    );
}

#[test]
fn what_cannot_be_read_goes_all_the_same() {
    for said in [
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
            r#"{{"messages":[{{"role":"user","content":"u","plimsoll":{said}}}]}}"#
        ));
        assert_eq!(found.odd_annotations(), 1, "{said}");
        assert_eq!(
            without(&found),
            r#"{"messages":[{"role":"user","content":"u"}]}"#
        );
    }
    let twice = read(
        r#"{"messages":[{"plimsoll":{"name":"a"},"plimsoll":{"name":"b"},"role":"user","plimsoll":{}}]}"#,
    );
    assert_eq!(twice.odd_annotations(), 2);
    assert!(twice.annotations[0].name.is_some() && twice.annotations[1].name.is_none());
    assert_eq!(without(&twice), r#"{"messages":[{"role":"user"}]}"#);
    let alone = read(r#"{"messages":[{ "plimsoll":1 , "plimsoll":2 }]}"#);
    assert_eq!(without(&alone), r#"{"messages":[{  }]}"#);
    // An array with something that is no part.
    let odd = read(r#"{"messages":[{"role":"user","content":[1,{"text":"t","plimsoll":{}}]}]}"#);
    assert_eq!(
        without(&odd),
        r#"{"messages":[{"role":"user","content":[1,{"text":"t"}]}]}"#
    );
}

#[test]
fn nothing_else_of_that_name_is_touched() {
    let body = r#"{"plimsoll":1,"messages":[{"role":"user","content":"\"plimsoll\":1","Plimsoll":1,"x":{"plimsoll":1}},{"role":"assistant","content":null,"tool_calls":[{"id":"a","plimsoll":1,"function":{"name":"plimsoll","arguments":"{\"plimsoll\":1}"}}]},{"role":"tool","tool_call_id":"a","content":[{"type":"file","file":{"plimsoll":1}}]}],"tools":[{"plimsoll":1}]}"#;
    let found = read(body);
    assert!(found.annotations.is_empty());
    assert_eq!(without(&found), body);
}

#[test]
fn so_many_are_no_conversation() {
    let many = r#","plimsoll":1"#.repeat(1 << 18);
    let body = format!(r#"{{"messages":[{{"role":"user"{many}}}]}}"#);
    assert!(index_body(Bytes::from(body)).is_err());
}

/// An object by its members, one of which may be an annotation, with white space anywhere.
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
    places: &[prop::sample::Index],
    said: &str,
    spaces: &[&str; 4],
) -> (String, String) {
    let plain = object(&members, spaces);
    for place in places {
        let at = place.index(members.len() + 1);
        members.insert(at, format!("\"plimsoll\":{said}"));
    }
    (object(&members, spaces), plain)
}

fn tight(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

proptest! {
    #[test]
    fn taking_them_out_leaves_what_was_there_without(
        messages in prop::collection::vec((
            0usize..4,
            prop::collection::vec(any::<prop::sample::Index>(), 0..3),
            prop::collection::vec((0usize..4, prop::collection::vec(any::<prop::sample::Index>(), 0..3)), 0..3),
        ), 1..6),
        said in prop::sample::select(vec!["{}", "null", r#"{"name":"a,}","priority":"low"}"#, r#"[{"plimsoll":1}]"#, "\"}\""]),
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
        for (role, places, parts) in messages {
            let parts: Vec<_> = parts.into_iter().map(|(kind, places)| {
                let members = kinds[kind].iter().map(|member| (*member).to_owned()).collect();
                annotated(members, &places, said, &spaces)
            }).collect();
            let list = |of: fn(&(String, String)) -> &str| {
                let parts: Vec<_> = parts.iter().map(of).collect();
                format!("\"content\":[{}]", parts.join(","))
            };
            let members = |content: String| vec![format!("\"role\":\"{}\"", roles[role]), content];
            let outer = annotated(members(list(|it| &it.0)), &places, said, &spaces).0;
            with.push(outer);
            plain.push(object(&members(list(|it| &it.1)), &spaces));
        }
        let body = |messages: &[String]| format!(r#"{{"messages":[{}],"n":1}}"#, messages.join(" , "));
        let (with, plain) = (read(&body(&with)), read(&body(&plain)));
        let sent = without(&with);
        serde_json::from_str::<Value>(&sent).unwrap();
        prop_assert_eq!(tight(&sent), tight(std::str::from_utf8(&plain.body).unwrap()));
        prop_assert!(read(&sent).annotations.is_empty());
        for (annotated, plain) in with.items.iter().zip(&plain.items) {
            prop_assert_eq!(annotated.digest, plain.digest);
            prop_assert_eq!(annotated.short_digest, plain.short_digest);
            prop_assert!(annotated.author != Author::Unknown);
        }
        // White space counts with a part that is measured as it is spelled.
        if spaces.iter().all(|space| space.is_empty()) {
            for (annotated, plain) in with.items.iter().zip(&plain.items) {
                prop_assert_eq!(annotated.sizes, plain.sizes);
            }
        }
    }
}
