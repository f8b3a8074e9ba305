//! Streamed answers, in each wire format.

use plimsoll::conversation::Format;
use serde_json::{Value, json};

/// The events of an answer with a text in pieces.
pub(crate) fn write_events(format: Format, pieces: &[String]) -> Vec<String> {
    let named = |data: Value| {
        format!(
            "event: {}\ndata: {data}\n\n",
            data["type"].as_str().unwrap_or("")
        )
    };
    match format {
        Format::Messages => {
            let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                "stop_reason": null, "usage": {"input_tokens": 9, "output_tokens": 1}});
            let block = json!({"type": "text", "text": ""});
            let begin = [
                json!({"type": "message_start", "message": message}),
                json!({"type": "content_block_start", "index": 0, "content_block": block}),
            ];
            let deltas = pieces.iter().map(|text| {
                let delta = json!({"type": "text_delta", "text": text});
                json!({"type": "content_block_delta", "index": 0, "delta": delta})
            });
            let end = [
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
                json!({"type": "message_stop"}),
            ];
            begin
                .into_iter()
                .chain(deltas)
                .chain(end)
                .map(named)
                .collect()
        }
        Format::Responses => {
            let response = |status: &str, output: Value| {
                json!({"id": "resp_1", "object": "response", "status": status, "model": "m", "output": output,
                    "usage": {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}})
            };
            let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
            let item = |status: &str, content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content});
            let of_part = |kind: &str, key: &str, value: Value| {
                let mut event = json!({"type": format!("response.{kind}"), "item_id": "msg_1", "output_index": 0, "content_index": 0});
                event[key] = value;
                event
            };
            let text = pieces.concat();
            let whole = item("completed", json!([part(&text)]));
            let begin = [
                json!({"type": "response.created", "response": response("in_progress", json!([]))}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": item("in_progress", json!([]))}),
                of_part("content_part.added", "part", part("")),
            ];
            let deltas = pieces
                .iter()
                .map(|text| of_part("output_text.delta", "delta", text.as_str().into()));
            let end = [
                of_part("output_text.done", "text", text.as_str().into()),
                of_part("content_part.done", "part", part(&text)),
                json!({"type": "response.output_item.done", "output_index": 0, "item": whole.clone()}),
                json!({"type": "response.completed", "response": response("completed", json!([whole]))}),
            ];
            let all = begin.into_iter().chain(deltas).chain(end).enumerate();
            let numbered = all.map(|(number, mut event)| {
                event["sequence_number"] = number.into();
                event
            });
            numbered.map(named).collect()
        }
        _ => {
            let delta = |delta: Value, finish: Value| {
                let data = json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_741_569_952,
                    "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
                format!("data: {data}\n\n")
            };
            let deltas = pieces
                .iter()
                .map(|text| delta(json!({"content": text}), Value::Null));
            let end = [
                delta(json!({}), "stop".into()),
                "data: [DONE]\n\n".to_owned(),
            ];
            deltas.chain(end).collect()
        }
    }
}
