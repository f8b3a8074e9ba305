use bytes::Bytes;
use serde_json::{Value, json};

use super::index_body;
use crate::conversation::{
    Arguments, Author, BlockKind, Content, Conversation, IndexError, Item, ItemPlace, Priority,
    edit::Edits,
    units::{self, UnitKind},
};
use crate::json::scan::{JsonString, Span};

mod edits;
mod request;
mod summaries;

const STEP: &str = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"I look."},{"type":"tool_use","id":"a","name":"read","input":{"path":"x.rs"}},{"type":"tool_use","id":"b","name":"read","input":{}}]}"#;
const RESULTS: &str = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"one"},{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"two"},{"type":"image","source":{"type":"url","url":"https://x/y.png"}}],"is_error":true},{"type":"text","text":"And now?"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}}]}"#;
const TASK: &str = r#"{"role":"user","content":"Do it."}"#;

fn request(messages: &[&str], members: &str) -> Conversation {
    let body = format!(r#"{{"messages":[{}]{members}}}"#, messages.join(","));
    index_body(Bytes::from(body)).unwrap()
}

fn authors(conversation: &Conversation) -> Vec<Author> {
    conversation.items.iter().map(|item| item.author).collect()
}

fn applied(conversation: &Conversation, edit: impl FnOnce(&mut Edits)) -> Value {
    let mut edits = Edits::default();
    edit(&mut edits);
    let body = edits.apply(&conversation.body).to_bytes();
    serde_json::from_slice(&body).unwrap()
}

#[test]
fn a_call_before_the_last_fallback_is_none_and_its_message_stays() {
    let call =
        |id: &str| format!(r#"{{"type":"tool_use","id":"{id}","name":"read","input":{{}}}}"#);
    let answer = |blocks: &[&str]| {
        let blocks = blocks.join(",");
        format!(r#"{{"role":"assistant","content":[{blocks}]}}"#)
    };
    let (one, two) = (call("one"), call("two"));
    let (one, two) = (&*one, &*two);
    let fallback = r#"{"type":"fallback"}"#;
    for (blocks, calls, stays) in [
        (&[one, fallback, two][..], 1, true),
        (&[one, fallback, fallback], 0, true),
        (&[fallback, one, two], 2, true),
        (&[r#"{"type":"mcp_tool_listing"}"#, one], 1, true),
        (&[one, two], 2, false),
    ] {
        let found = request(&[TASK, &answer(blocks)], "");
        let item = &found.items[1];
        assert_eq!((found.calls_of(item).len(), item.is_pinned), (calls, stays));
        if calls > 0 {
            let last = found.calls_of(item).last().unwrap().span;
            let expected = blocks.last().unwrap().as_bytes();
            assert_eq!(found.span_bytes(last), expected);
        }
    }
}

#[test]
fn an_entry_with_results_is_an_item_for_each_and_one_for_the_rest() {
    let found = request(&[TASK, STEP, RESULTS], "");
    assert_eq!(
        authors(&found),
        [
            Author::User,
            Author::Model,
            Author::Tool,
            Author::Tool,
            Author::User
        ]
    );
    let [task, step, one, two, rest] = &found.items[..] else {
        panic!("five items");
    };
    assert_eq!(
        (task.place, step.place),
        (ItemPlace::Whole, ItemPlace::Whole)
    );
    let text = |item: &Item| {
        let texts = found.texts_of(item).map(|text| found.decode_text(text));
        texts.collect::<String>()
    };
    assert_eq!(
        [text(task), text(step), text(one), text(two), text(rest)],
        ["Do it.", "I look.", "one", "two", "And now?"]
    );
    assert_eq!(found.raw_bytes(one.call_id.unwrap()), b"a");
    assert_eq!(found.blocks_of(two).len(), 2);
    let blocks = found.span_bytes(rest.span);
    assert!(blocks.starts_with(br#"{"type":"text""#) && blocks.ends_with(br#"aGk="}}"#));
    let ItemPlace::Part(entry) = rest.place else {
        panic!("a part");
    };
    assert_eq!(one.place, rest.place);
    assert_eq!(found.span_bytes(entry.span), RESULTS.as_bytes());
    let calls = found.calls_of(step);
    let Some(Arguments::Json(input)) = calls[0].arguments else {
        panic!("JSON");
    };
    assert_eq!(found.span_bytes(input), br#"{"path":"x.rs"}"#);
    let units = units::split_units(&found);
    let kinds: Vec<_> = units.iter().map(|unit| unit.kind).collect();
    assert_eq!(kinds, [UnitKind::User, UnitKind::Step, UnitKind::User]);
}

#[test]
fn results_come_first_and_answer_the_calls_directly_before_them() {
    let late = r#"{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a"},{"type":"tool_result","tool_use_id":"b"}]}"#;
    let other = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}"#;
    for messages in [
        &[TASK, STEP, late][..],
        &[TASK, STEP, other],
        &[TASK, STEP, TASK],
        &[TASK, STEP],
        &[TASK, other],
    ] {
        let units = units::split_units(&request(messages, ""));
        assert!(units.iter().any(|unit| unit.kind == UnitKind::Other));
    }
    // Server tools need no result, and an absent content is a result.
    let served = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}"#;
    let empty = r#"{"role":"user","content":[{"tool_use_id":"a","type":"tool_result"},{"content":[],"type":"tool_result","tool_use_id":"b"}]}"#;
    let found = request(&[TASK, served, TASK, STEP, empty], "");
    let units = units::split_units(&found);
    assert!(units.iter().all(|unit| unit.kind != UnitKind::Other));
    assert_eq!(found.items[4].content, Content::Absent);
    assert!(matches!(found.items[5].content, Content::Blocks(ref blocks, _) if blocks.is_empty()));
}

#[test]
fn the_top_level_system_is_the_first_item_wherever_it_stands() {
    for system in [
        r#""Be brief.""#,
        r#"[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}]"#,
    ] {
        let before = format!(r#"{{"system":{system},"messages":[{TASK}]}}"#);
        let after = format!(r#"{{"messages":[{TASK}],"system": {system}}}"#);
        let [before, after] = [before, after].map(|body| index_body(Bytes::from(body)).unwrap());
        for found in [&before, &after] {
            assert_eq!(authors(found), [Author::System, Author::User]);
            assert_eq!(found.items[0].place, ItemPlace::Outside);
            assert!(!found.items[0].is_bound);
            assert_eq!(found.span_bytes(found.items[0].span), system.as_bytes());
            assert_eq!(found.find_item_at(found.items[1].span.start), 1);
            assert_eq!(
                found.find_field("system").unwrap().value,
                found.items[0].span
            );
        }
        assert_eq!(before.items[0].digest, after.items[0].digest);
    }
    assert!(request(&[TASK], r#","system":null"#).items.len() == 1);
}

#[test]
fn annotations_are_found_in_both_orders() {
    let task =
        r#"{"role":"user","plimsoll":{"priority":"low"},"content":[{"type":"text","text":"x"}]}"#;
    let system = r#"[{"plimsoll":{"name":"rules","priority":"high"},"type":"text","text":"s"}]"#;
    for body in [
        format!(r#"{{"system":{system},"messages":[{task}]}}"#),
        format!(r#"{{"messages":[{task}],"system":{system}}}"#),
    ] {
        let found = index_body(Bytes::from(body)).unwrap();
        let [of_system] = found.annotations_of(0) else {
            panic!("one annotation");
        };
        assert_eq!(
            (of_system.priority, of_system.odd),
            (Some(Priority::High), false)
        );
        assert_eq!(found.annotations_of(1)[0].priority, Some(Priority::Low));
        for message in [0, 1] {
            let start = found.annotations_of(message)[0].span.start + 1;
            let span = Span { start, end: start };
            let (has_escapes, respelled) = (false, false);
            assert!(found.is_annotation_key(JsonString {
                span,
                has_escapes,
                respelled
            }));
        }
        let sent = applied(&found, |edits| found.take_out_annotations(edits));
        assert!(!sent.to_string().contains("plimsoll"));
        // The name of an annotation is no text of the model's.
        let sizes = found.measure_span(found.items[0].span);
        assert!(sizes.total_chars() < 30, "{}", sizes.total_chars());
    }
    // Of an entry with several items, an annotation belongs to the item beside it.
    let results = RESULTS.replace(
        r#"{"role":"user","#,
        r#"{"plimsoll":{"priority":"low"},"role":"user","#,
    );
    let marked = results.replace(r#"aGk="}}]"#, r#"aGk="}}],"plimsoll":{"priority":"high"}"#);
    let found = request(&[TASK, STEP, &marked], "");
    assert_eq!(
        found.annotations_of(2).len() + found.annotations_of(4).len(),
        2
    );
    let result = r#""plimsoll":{"priority":"medium"},"type":"tool_result","tool_use_id":"a""#;
    let marked = RESULTS.replace(r#""type":"tool_result","tool_use_id":"a""#, result);
    let found = request(&[TASK, STEP, &marked], "");
    assert_eq!(found.annotations_of(2)[0].priority, Some(Priority::Medium));
}

#[test]
fn a_system_entry_belongs_to_the_unit_before_it() {
    let system = r#"{"role":"system","content":"12 % of the window are left"}"#;
    let found = request(
        &[TASK, system, system, STEP, RESULTS, system],
        r#","system":"s""#,
    );
    assert_eq!(found.items.iter().filter(|item| item.is_bound).count(), 3);
    let units = units::split_units(&found);
    let ranges: Vec<_> = units
        .iter()
        .map(|unit| (unit.messages.clone(), unit.counted))
        .collect();
    assert_eq!(ranges, [(0..1, 0), (1..4, 1), (4..7, 3), (7..9, 1)]);
    let before: Vec<_> = units.iter().map(|unit| unit.messages_before).collect();
    assert_eq!(before, [0, 0, 1, 4]);
    let bound: Vec<_> = units.iter().map(units::Unit::bound_messages).collect();
    assert_eq!(bound, [1..1, 2..4, 7..7, 8..9]);
    // The first entry of the list follows nothing.
    assert!(!request(&[system, TASK], "").items[0].is_bound);
}

#[test]
fn blocks_that_the_model_wrote_are_never_text() {
    let answer = json!({"role": "assistant", "content": [
        {"type": "redacted_thinking", "data": "A".repeat(900)},
        {"type": "thinking", "thinking": "one two", "signature": "B".repeat(900)},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
            {"type": "web_search_result", "title": "t", "encrypted_content": "C".repeat(900)}]},
        {"type": "fallback"}, {"type": "text", "text": "Well."}]});
    let found = request(&[TASK, &answer.to_string()], "");
    let item = &found.items[1];
    let kinds: Vec<_> = found
        .blocks_of(item)
        .iter()
        .map(|block| block.kind)
        .collect();
    assert!(matches!(kinds[0], BlockKind::Reasoning(None)));
    assert!(matches!(kinds[1], BlockKind::Reasoning(Some(_))));
    assert_eq!(kinds[2..4], [BlockKind::Opaque; 2]);
    let chars = item.sizes.total_chars();
    assert!((100..300).contains(&chars), "{chars}");
    // A client that leaves thinking out continues the same conversation.
    let mut without = answer;
    without["content"].as_array_mut().unwrap().drain(..2);
    let without = request(&[TASK, &without.to_string()], "");
    assert_eq!(item.digest, without.items[1].digest);
}

#[test]
fn media_and_documents_are_told_apart() {
    let kind = |block: &str| {
        let entry = format!(r#"{{"role":"user","content":[{block}]}}"#);
        request(&[&entry], "").blocks[0].kind
    };
    let image = |source: &str| kind(&format!(r#"{{"type":"image","source":{source}}}"#));
    for (source, has_url) in [
        (
            r#"{"type":"base64","media_type":"image/png","data":"aGk="}"#,
            true,
        ),
        (r#"{"type":"url","url":"https://x/y.png"}"#, true),
        (r#"{"type":"file","file_id":"f"}"#, false),
    ] {
        assert!(
            matches!(image(source), BlockKind::Image { url, low: false } if url.is_some() == has_url)
        );
    }
    let document = |source: &str| kind(&format!(r#"{{"source":{source},"type":"document"}}"#));
    assert_eq!(
        document(r#"{"type":"base64","data":"aGk="}"#),
        BlockKind::Media
    );
    assert_eq!(
        document(r#"{"type":"text","data":"words"}"#),
        BlockKind::Opaque
    );
    for opaque in [
        r#"{"type":"search_result","content":[]}"#,
        r#"{"type":"new_kind"}"#,
        r#"{"type":"tool_use","id":"x"}"#,
    ] {
        assert_eq!(kind(opaque), BlockKind::Opaque);
    }
}

#[test]
fn digests_do_not_depend_on_spelling_and_markers() {
    let same = [
        r#"{"role":"user","content":"Do it."}"#,
        r#"{"content":[{"text":"Do it.","type":"text"}],"role":"user"}"#,
        r#"{"role":"user","content":[{"type":"text","text":"Do \u0069t.","cache_control":{"type":"ephemeral"}}]}"#,
    ];
    let digests = same.map(|entry| request(&[entry], "").items[0].digest);
    assert!(digests.iter().all(|digest| *digest == digests[0]));
    let other = STEP.replace(r#"{"path":"x.rs"}"#, r#"{"path":"y.rs"}"#);
    let [step, spelled, other] = [STEP, &STEP.replace(r#""x.rs""#, r#" "x\u002ers""#), &other]
        .map(|step| request(&[TASK, step], "").items[1].digest);
    assert!(step == spelled && step != other);
}

#[test]
fn what_is_not_understood_is_not_guarded() {
    let index = |body: &str| index_body(Bytes::from(body.to_owned()));
    for body in [
        "{}",
        r#"{"messages":"x"}"#,
        r#"{"messages":[1]}"#,
        r#"{"messages":[],"messages":[]}"#,
        r#"{"messages":[],"system":"a","system":"b"}"#,
        r#"{"messages":[{"role":"user","role":"user"}]}"#,
        r#"{"messages":[{"r\u006fle":"user"}]}"#,
        r#"{"messages":[{"role":"user","content":[{"type":"text","type":"text"}]}]}"#,
    ] {
        assert!(
            matches!(index(body), Err(IndexError::Unguardable(_))),
            "{body}"
        );
    }
    assert!(matches!(
        index(r#"{"messages":["#),
        Err(IndexError::NotJson(_))
    ));
    let found =
        index(r#"{"messages":[{"role":"tool","content":"x"},{"role":"user","content":[1]}]}"#)
            .unwrap();
    assert_eq!(authors(&found), [Author::Unknown, Author::User]);
    assert!(matches!(found.items[1].content, Content::Other(_)));
    // Results are not looked for in results.
    let deep =
        r#"{"type":"tool_result","tool_use_id":"a","content":["#.repeat(400) + &"]}".repeat(400);
    let entry = format!(r#"{{"role":"user","content":[{deep}]}}"#);
    assert_eq!(request(&[&entry], "").blocks.len(), 1);
}
