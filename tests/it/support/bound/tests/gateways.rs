//! Thinking in chat completions.

use serde_json::{Value, json};

use super::{BoundApi, BoundModel, Talk, to_events};

fn chat_talk(api: BoundApi) -> Talk {
    let body = json!({"model": "anthropic/claude-opus-5.5", "messages": [
        {"role": "system", "content": "You help."}, {"role": "user", "content": "Begin."}],
        "tools": [{"type": "function", "function": {"name": "read"}}]});
    let mut talk = Talk {
        model: BoundModel::default(),
        api,
        body,
        betas: "",
        calls: 0,
    };
    for at in 0..3 {
        let blocks = [
            json!({"type": "thinking", "thinking": format!("thought {at}")}),
            json!({"type": "text", "text": "Looking."}),
            json!({"type": "redacted_thinking"}),
            json!({"type": "tool_use", "id": format!("a{at}"), "name": "read", "input": {"path": "x"}}),
            json!({"type": "tool_use", "id": format!("b{at}"), "name": "read", "input": {"path": "y"}}),
        ];
        let answer = talk.ask(&blocks);
        for call in answer["choices"][0]["message"]["tool_calls"]
            .as_array()
            .unwrap()
        {
            talk.messages()
                .push(json!({"role": "tool", "tool_call_id": call["id"], "content": "result"}));
        }
    }
    talk
}

#[test]
fn thinking_is_checked_behind_a_gateway_too() {
    for (api, key) in [
        (BoundApi::ReasoningDetails, "reasoning_details"),
        (BoundApi::ThinkingBlocks, "thinking_blocks"),
    ] {
        let mut talk = chat_talk(api);
        talk.assert_valid();
        assert_eq!(talk.judge().read.len(), 6);
        talk.messages()[3]["content"] = "cleared".into();
        let refusal = talk.judge().refusal.unwrap();
        assert_eq!(refusal["error"]["message"], "Provider returned error");
        assert_eq!(refusal["error"]["code"], 400);
        let raw: Value =
            serde_json::from_str(refusal["error"]["metadata"]["raw"].as_str().unwrap()).unwrap();
        let message = raw["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(
            "messages.3.content.0: Invalid `signature` in `thinking` block. The block is bound"
        ));
        for message in talk.messages() {
            message.as_object_mut().unwrap().remove(key);
        }
        talk.assert_valid();
    }
}

#[test]
fn a_stream_has_the_signatures() {
    let mut talk = chat_talk(BoundApi::ReasoningDetails);
    let answer = talk.ask(&[
        json!({"type": "thinking", "thinking": "so"}),
        json!({"type": "text", "text": "Done."}),
    ]);
    let signature = answer["choices"][0]["message"]["reasoning_details"][0]["signature"]
        .as_str()
        .unwrap();
    assert!(to_events(talk.api, &answer).contains(signature));
}
