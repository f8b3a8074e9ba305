//! Items removed, added and written.

use serde_json::{Value, json};

use super::{RESULTS, STEP, TASK, applied, authors, request};
use crate::{
    conversation::{Author, Format, NewItems, edit::Edits, units},
    format::{AnswerLimit, ModelAnswer, ProxyToolCall, TextRequest, messages::write},
};

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
    assert_eq!(units::split_units(&found).len(), 2);
    let list: Value = serde_json::from_str(&format!("[{}]", write::write_entries(&items))).unwrap();
    assert_eq!(list[1]["content"].as_array().unwrap().len(), 2);
    let turn = ModelAnswer {
        message: answer.into(),
        proxy_calls: vec![call],
        ..ModelAnswer::default()
    };
    let written = |turn: &ModelAnswer, max_bytes, max_argument_bytes| {
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
    let turn = ModelAnswer {
        message: message.into(),
        ..turn
    };
    let reduced = format!(r#"{{"role":"assistant","content":[{thinking},{call_json}]}}"#);
    assert_eq!(written(&turn, 400, 1 << 20), Some(reduced.clone()));
    assert_eq!(written(&turn, reduced.len() - 1, 1 << 20), None);
    let emptied = written(&turn, 1 << 20, 0).unwrap();
    assert!(emptied.contains(thinking) && emptied.contains(r#""input":{}"#));
    let lost = ModelAnswer {
        message: "".into(),
        ..turn
    };
    assert_eq!(written(&lost, 1 << 20, 1 << 20), None);
    let limit = AnswerLimit {
        tokens: 90,
        names_completion_cap: false,
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
