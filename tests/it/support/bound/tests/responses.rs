//! Reasoning of OpenAI's Responses.

use serde_json::{Value, json};

use super::{BoundApi, BoundModel, Talk, to_events};

fn responses_talk(name: &str) -> Talk {
    let body = json!({"model": name, "instructions": "You help.", "input": [{"role": "user", "content": "Begin."}],
        "tools": [{"type": "function", "name": "read"}]});
    let mut talk = Talk {
        model: BoundModel::default(),
        api: BoundApi::Responses,
        body,
        betas: "",
        calls: 0,
    };
    for at in 0..3 {
        talk.ask(&[
            json!({"type": "thinking", "thinking": format!("thought {at}")}),
            json!({"type": "text", "text": "Looking."}),
            json!({"type": "redacted_thinking"}),
            json!({"type": "tool_use", "id": format!("call_{at}"), "name": "read", "input": {"path": "x"}}),
        ]);
        items(&mut talk).push(json!({"type": "function_call_output", "call_id": format!("call_{at}"), "output": "result"}));
    }
    talk
}

fn items(talk: &mut Talk) -> &mut Vec<Value> {
    talk.body["input"].as_array_mut().unwrap()
}

#[test]
fn stale_reasoning_is_dropped_and_told() {
    let mut talk = responses_talk("gpt-6.2-sol");
    talk.assert_valid();
    talk.body["instructions"] = "Another.".into();
    talk.body["reasoning"] = json!({"effort": "low"});
    for item in items(&mut talk) {
        item.as_object_mut().unwrap().remove("id");
        item.as_object_mut().unwrap().remove("status");
    }
    talk.assert_valid();
    items(&mut talk)[5]["output"] = "cleared".into();
    let stale = talk.judge();
    assert_eq!(
        (stale.refusal, stale.read.len(), stale.failing.len()),
        (None, 2, 4)
    );
    let answer = talk.ask(&[
        json!({"type": "thinking", "thinking": "again"}),
        json!({"type": "text", "text": "Yes."}),
    ]);
    let told = answer["input_transformations"].as_array().unwrap();
    assert_eq!(
        (told.len(), &told[0]["reason"]),
        (4, &json!("prefix_mismatch"))
    );
    assert!(told[0]["id"].as_str().unwrap().starts_with("rs_"));
    assert!(to_events(talk.api, &answer).contains("input_transformations"));
    assert_eq!(talk.judge().read.len(), 3);
    items(&mut talk).push(json!({"type": "additional_tools", "role": "developer", "tools": []}));
    assert_eq!(talk.judge().read.len(), 3);
    for (key, value) in [
        ("tools", json!([])),
        ("text", json!({"format": {"type": "json_object"}})),
    ] {
        let mut talk = talk.clone();
        talk.body[key] = value;
        assert_eq!(talk.judge().read.len(), 0);
    }
}

#[test]
fn older_models_forget_reasoning_of_earlier_turns_and_say_so_each_time() {
    let mut talk = responses_talk("gpt-6.1-sol");
    let ask = |talk: &mut Talk| {
        items(talk).push(json!({"role": "user", "content": "Go on."}));
        let judged = talk.judge();
        let read = (judged.read.len(), judged.list_forgotten().count());
        let answer = talk.ask(&[
            json!({"type": "thinking", "thinking": "more"}),
            json!({"type": "text", "text": "Yes."}),
        ]);
        let told = answer["input_transformations"].as_array().cloned();
        let told = told.unwrap_or_default();
        assert!(told.iter().all(|it| it["reason"] == "turn_boundary"));
        let ids: Vec<Value> = told.iter().map(|it| it["id"].clone()).collect();
        (read, ids)
    };
    let (read, first) = ask(&mut talk);
    assert_eq!((read, first.len()), ((0, 6), 6));
    let (read, second) = ask(&mut talk);
    assert_eq!((read, &second[..6]), ((0, 7), &first[..]));
    talk.body["reasoning"] = json!({"context": "all_turns"});
    let (read, told) = ask(&mut talk);
    assert_eq!((read, told.len()), ((8, 0), 0));
    talk.body["model"] = "gpt-6.2-sol".into();
    talk.body["reasoning"] = json!({"context": "current_turn"});
    assert_eq!(talk.judge().list_forgotten().count(), 8);
}

#[test]
fn older_models_read_all_reasoning() {
    let mut talk = responses_talk("gpt-5.6-sol");
    talk.body["tools"] = json!([]);
    talk.assert_valid();
    assert_eq!(talk.judge().read.len(), 6);
}

#[test]
fn reasoning_and_what_followed_it_stay_together() {
    let talk = responses_talk("gpt-6.2-sol");
    let mut alone = talk.clone();
    let id = items(&mut alone)[1]["id"].as_str().unwrap().to_owned();
    items(&mut alone).remove(2);
    assert_eq!(
        alone.judge().message(),
        format!(
            "Item '{id}' of type 'reasoning' was provided without its required following item."
        )
    );

    let mut bare = talk.clone();
    let call = items(&mut bare)[4]["id"].as_str().unwrap().to_owned();
    let id = items(&mut bare).remove(3)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        bare.judge().message(),
        format!(
            "Item '{call}' of type 'function_call' was provided without its required 'reasoning' item: '{id}'."
        )
    );

    let mut foreign = talk;
    items(&mut foreign)[1]["encrypted_content"] = "c2ln".into();
    assert_eq!(
        foreign.judge().refusal.unwrap()["error"]["code"],
        "invalid_encrypted_content"
    );
}
