use bytes::Bytes;
use serde_json::{Value, json};

use super::{index_body, write};
use crate::{
    conversation::{
        Arguments, Author, BlockKind, Content, Conversation, Format, IndexError, Item, ItemPlace,
        NewItems, Priority,
        edit::Edits,
        units::{self, UnitKind},
    },
    format::{AnswerLimit, AssistantTurn, ProxyToolCall, TextRequest, ToolForm},
};

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
    let units = units::split_units(&found).unwrap();
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
        assert!(units::split_units(&request(messages, "")).is_err());
    }
    // Server tools need no result, and an absent content is a result.
    let served = r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s","name":"web_search","input":{}}]}"#;
    let empty = r#"{"role":"user","content":[{"tool_use_id":"a","type":"tool_result"},{"content":[],"type":"tool_result","tool_use_id":"b"}]}"#;
    let found = request(&[TASK, served, TASK, STEP, empty], "");
    assert!(units::split_units(&found).is_ok());
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
    let units = units::split_units(&found).unwrap();
    let ranges: Vec<_> = units
        .iter()
        .map(|unit| (unit.messages.clone(), unit.counted))
        .collect();
    assert_eq!(ranges, [(0..1, 0), (1..4, 1), (4..7, 3), (7..9, 1)]);
    let before: Vec<_> = units.iter().map(|unit| unit.messages_before).collect();
    assert_eq!(before, [0, 0, 1, 4]);
    let mut removed = vec![false; 9];
    removed[4..7].fill(true);
    units::remove_stranded_messages(&found, &mut removed);
    assert_eq!(removed[2..4], [true, true]);
    assert!(!removed[8]);
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

#[test]
fn items_are_removed_with_their_entries_or_from_them() {
    let found = request(&[TASK, STEP, RESULTS, TASK], r#","system":"s""#);
    let left = |removed: &[usize]| {
        let body = applied(&found, |edits| {
            found.remove_items(|at| removed.contains(&at), edits)
        });
        let entries = body["messages"].as_array().unwrap().clone();
        let kinds = entries
            .iter()
            .map(|entry| match entry["content"].as_array() {
                None => "text".to_owned(),
                Some(blocks) => {
                    let kinds = blocks.iter().map(|block| block["type"].as_str().unwrap());
                    kinds.collect::<Vec<_>>().join(" ")
                }
            });
        kinds.collect::<Vec<_>>()
    };
    let step = "thinking text tool_use tool_use";
    // The items are the system prompt, the task, the step, two results, the user's text, and a task.
    assert_eq!(left(&[2, 3, 4]), ["text", "text image", "text"]);
    assert_eq!(left(&[2, 3, 4, 5]), ["text", "text"]);
    assert_eq!(
        left(&[5]),
        ["text", step, "tool_result tool_result", "text"]
    );
    assert_eq!(left(&[1, 2, 3]), ["tool_result text image", "text"]);
    assert_eq!(left(&[1, 4, 6]), [step, "tool_result text image"]);
    assert_eq!(left(&[0]).len(), 4);
    assert_eq!(left(&[1, 2, 3, 4, 5, 6]).len(), 4);
}

#[test]
fn new_items_stand_behind_an_item_in_the_list_or_in_its_entry() {
    let found = request(&[TASK, STEP, RESULTS], r#","system":"s""#);
    let new = |blocks| NewItems {
        entries: TASK,
        blocks,
    };
    let block = r#"{"type":"text","text":"new"}"#;
    let after = |at: usize| {
        applied(&found, |edits| {
            assert!(found.insert_after(at, &new(Some(block)), edits))
        })
    };
    assert_eq!(after(1)["messages"][1]["content"], "Do it.");
    assert_eq!(after(5)["messages"][3]["content"], "Do it.");
    assert_eq!(after(4)["messages"][2]["content"][2]["text"], "new");
    let mut edits = Edits::default();
    assert!(!found.insert_after(4, &new(None), &mut edits));
    assert!(!found.insert_after(0, &new(Some(block)), &mut edits));
    assert!(!found.insert_before(0, TASK, &mut edits) && edits.is_empty());
    let before = applied(&found, |edits| assert!(found.insert_before(4, TASK, edits)));
    assert_eq!(before["messages"][2]["content"], "Do it.");
    let result = r#"{"type":"tool_result","tool_use_id":"c"}"#;
    let added = applied(&found, |edits| {
        found.insert_results(2, &[result.into()], edits)
    });
    assert_eq!(added["messages"][2]["content"][2]["tool_use_id"], "c");
    let said = applied(&found, |edits| found.append_text(5, "more", edits));
    assert_eq!(said["messages"][2]["content"][4]["text"], "more");
}

#[test]
fn a_list_is_cut_off_between_entries_and_inside_one() {
    let found = request(&[TASK, STEP, RESULTS, TASK], r#","system":"s""#);
    let cut = |first: usize| {
        applied(&found, |edits| {
            edits.insert(found.items[6].span.end, r#","behind""#);
            assert!(found.truncate_list(first, edits));
        })
    };
    assert_eq!(cut(2)["messages"].as_array().unwrap().len(), 1);
    assert_eq!(cut(6)["messages"].as_array().unwrap().len(), 3);
    let inside = cut(5);
    assert_eq!(inside["messages"].as_array().unwrap().len(), 3);
    assert_eq!(
        inside["messages"][2]["content"].as_array().unwrap().len(),
        2
    );
    assert!(!found.truncate_list(1, &mut Edits::default()));
}

#[test]
fn written_items_are_read_back() {
    let call = ProxyToolCall {
        id: "p".into(),
        name: "recall".into(),
        json: r#"{"type":"tool_use","id":"p","name":"recall","input":{"id":"m1"}}"#.into(),
        arguments: r#"{"id":"m1"}"#.into(),
        ..ProxyToolCall::default()
    };
    let format = Format::Messages;
    let answer = format.calls_item(&[
        &call.json,
        &format.write_call(&call, 3).replace("\"p\"", "\"q\""),
    ]);
    let other = ProxyToolCall {
        id: "q".into(),
        ..call.clone()
    };
    let results = [
        format.result_item(&call, "a\nb"),
        format.result_item(&other, "c"),
    ];
    let text = format.text_item(Author::User, "Go on.");
    let items = [&*answer, &*results[0], &*results[1], &*text];
    let found = format.index_items(&items).unwrap();
    assert_eq!(
        authors(&found),
        [Author::Model, Author::Tool, Author::Tool, Author::User]
    );
    assert!(units::split_units(&found).is_ok());
    let list: Value = serde_json::from_str(&format!("[{}]", write::write_entries(&items))).unwrap();
    assert_eq!(list[1]["content"].as_array().unwrap().len(), 2);
    let turn = AssistantTurn {
        message: answer.into(),
        proxy_calls: vec![call],
        ..AssistantTurn::default()
    };
    let written = |turn: &AssistantTurn, max_bytes, max_argument_bytes| {
        let item = format.answer_item(turn, max_bytes, max_argument_bytes);
        item.map(String::from)
    };
    assert_eq!(
        written(&turn, 1 << 20, 1 << 20).as_deref(),
        Some(&*turn.message)
    );
    assert_eq!(written(&turn, 5, 1 << 20), None);
    // Thinking goes back unchanged with its call, or the answer does not.
    let thinking = r#"{"thinking":"hm \u00e9","type":"thinking","signature":"c2ln"}"#;
    let call_json = turn.proxy_calls[0].json.clone();
    let long = "x".repeat(500);
    let message = format!(
        r#"{{"role":"assistant","content":[{thinking},{{"type":"text","text":"{long}"}},{call_json}]}}"#
    );
    let turn = AssistantTurn {
        message: message.into(),
        ..turn
    };
    let reduced = format!(r#"{{"role":"assistant","content":[{thinking},{call_json}]}}"#);
    assert_eq!(written(&turn, 400, 1 << 20), Some(reduced.clone()));
    assert_eq!(written(&turn, reduced.len() - 1, 1 << 20), None);
    let emptied = written(&turn, 1 << 20, 0).unwrap();
    assert!(emptied.contains(thinking) && emptied.contains(r#""input":{}"#));
    let lost = AssistantTurn {
        message: "".into(),
        ..turn
    };
    assert_eq!(written(&lost, 1 << 20, 1 << 20), None);
    let limit = AnswerLimit {
        tokens: 90,
        is_openai: false,
    };
    let asked = TextRequest {
        model: "m",
        text: "\"",
        limit,
    };
    let body: Value = serde_json::from_slice(&format.text_request(&asked)).unwrap();
    assert_eq!(
        (&body["max_tokens"], &body["messages"][0]["content"]),
        (&json!(90), &json!("\""))
    );
}

#[test]
fn fields_beside_the_items_are_read() {
    let with = |members: &str| request(&[TASK], members);
    let plain = with(r#","max_tokens":800"#);
    assert_eq!(
        (plain.max_answer_tokens(), plain.largest_answer_cap()),
        (Some(800), Some(800))
    );
    assert!(plain.takes_plain_text() && plain.may_call_tools() && !plain.is_auxiliary());
    assert_eq!(plain.include_usage(), Some(true));
    let lowered = applied(&plain, |edits| plain.lower_answer_caps(90, edits));
    assert_eq!(lowered["max_tokens"], 90);
    let thinks = with(r#","thinking":{"type":"enabled","budget_tokens":4000}"#);
    assert_eq!(thinks.thinking_budget(), Some(4_000));
    assert_eq!(
        with(r#","thinking":{"type":"adaptive"}"#).thinking_budget(),
        None
    );
    for (members, auxiliary) in [
        (r#","max_tokens":1"#, true),
        (r#","max_tokens":0,"tools":[{"name":"f"}]"#, true),
        (r#","max_tokens":32"#, true),
        (r#","max_tokens":32,"tools":[{"name":"f"}]"#, false),
        ("", false),
    ] {
        assert_eq!(with(members).is_auxiliary(), auxiliary, "{members}");
    }
    for (choice, may) in [
        ("null", true),
        (r#"{"type":"auto"}"#, true),
        (r#"{"type":"any"}"#, true),
        (r#"{"type":"none"}"#, false),
        (r#"{"type":"tool","name":"f"}"#, false),
        ("1", false),
    ] {
        assert_eq!(
            with(&format!(r#","tool_choice":{choice}"#)).may_call_tools(),
            may
        );
    }
    let formatted =
        with(r#","output_config":{"effort":"low","format":{"type":"json_schema"}},"tools":[]"#);
    assert!(!formatted.takes_plain_text() && !formatted.lists_tools());
    assert_eq!(formatted.beside_items().count(), 2);
    assert!(!with(r#","stop_sequences":["x"]"#).takes_plain_text());
    assert!(with(r#","output_config":{"effort":"low"}"#).takes_plain_text());
    assert!(request(&[TASK, r#"{"role":"assistant","content":"Well,"}"#], "").begins_answer());
}

#[test]
fn the_guard_stands_back_where_the_provider_fits_the_conversation() {
    let edits = |kind: &str| {
        let members = format!(r#","context_management":{{"edits":[{{"type":"{kind}"}}]}}"#);
        request(&[TASK], &members).managed_by_provider()
    };
    assert_eq!(edits("clear_thinking_20251015"), None);
    assert_eq!(edits("compact_20260112"), Some("context_management"));
    assert_eq!(
        edits("clear_tool_uses_20250919"),
        Some("context_management")
    );
    for (name, value) in [
        ("thread", r#"{"type":"create"}"#),
        ("compaction", r#"{"type":"summarize"}"#),
    ] {
        let members = format!(r#","{name}":{value}"#);
        assert_eq!(request(&[TASK], &members).managed_by_provider(), Some(name));
    }
    let compacted = r#"{"role":"assistant","content":[{"type":"compaction","content":"s"}]}"#;
    assert_eq!(
        request(&[TASK, compacted], "").managed_by_provider(),
        Some("compaction")
    );
    assert_eq!(
        request(&[TASK, STEP, RESULTS], "").managed_by_provider(),
        None
    );
}

#[test]
fn tools_are_read_and_added_in_their_shape() {
    let tools = r#","tools":[{"name":"recall","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}]"#;
    let found = request(&[TASK], tools);
    let client = found
        .read_client_tools(["recall", "clear_mind"].into_iter())
        .unwrap();
    assert_eq!(
        (client.form, &client.taken[..]),
        (ToolForm::MessagesTools, &["recall"][..])
    );
    for members in ["", r#","tools":null"#, r#","tools":[]"#, r#","tools":[1]"#] {
        assert!(
            request(&[TASK], members)
                .read_client_tools(std::iter::empty())
                .is_none()
        );
    }
}

#[test]
fn a_summary_is_asked_for_with_the_tools_that_the_calls_need() {
    let members = r#","model":"a","tools":[{"name":"f"}],"tool_choice":{"type":"any"},"stream":true,"stop_sequences":["x"],"thinking":{"type":"enabled","budget_tokens":4000},"output_config":{"format":{}}"#;
    let found = request(&[TASK], members);
    let limit = AnswerLimit {
        tokens: 900,
        is_openai: false,
    };
    let body = applied(&found, |edits| found.ask_for_text("b", limit, edits));
    let expected = json!({"messages": [{"role": "user", "content": "Do it."}], "model": "b",
        "tools": [{"name": "f"}], "tool_choice": {"type": "none"}, "stream": false, "max_tokens": 900});
    assert_eq!(body, expected);
}
