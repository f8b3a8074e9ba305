//! How streams of Responses may end: with `response.done`, or with the marker alone. And the event that ends a broken one.

use plimsoll::conversation::Format;
use serde_json::{Value, json};

use super::{Talk, check, header};
use crate::support::{ClientAnswer, ScriptedProvider, model_with_window, stream_of};

fn event(data: &Value) -> String {
    let name = data["type"].as_str().unwrap();
    format!("event: {name}\ndata: {data}\n\n")
}

fn response(status: &str) -> Value {
    let text = json!([{"type": "output_text", "text": "Well.", "annotations": []}]);
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": text});
    let usage = json!({"input_tokens": 70, "output_tokens": 3, "total_tokens": 73});
    json!({"id": "resp_1", "object": "response", "status": status, "model": "m-2026",
        "output": [item], "usage": usage})
}

/// The events before the last one.
fn begin(names_model: bool) -> Vec<String> {
    let created = if names_model {
        json!({"id": "resp_1", "model": "m-2026", "status": "in_progress", "output": []})
    } else {
        json!({"status": "in_progress"})
    };
    let item = &response("completed")["output"][0];
    [
        json!({"type": "response.created", "sequence_number": 0, "response": created}),
        json!({"type": "response.output_item.added", "sequence_number": 1, "output_index": 0,
            "item": {"type": "message", "id": "msg_1", "role": "assistant", "content": []}}),
        json!({"type": "response.output_text.delta", "sequence_number": 2, "output_index": 0,
            "content_index": 0, "delta": "Well."}),
        json!({"type": "response.output_item.done", "sequence_number": 3, "output_index": 0,
            "item": item}),
    ]
    .iter()
    .map(event)
    .collect()
}

async fn ask(events: Vec<String>, format: Format) -> (ClientAnswer, ClientAnswer) {
    let up = ScriptedProvider::start().await;
    let proxy = up
        .proxy()
        .model("m", model_with_window(60_000))
        .start()
        .await;
    let mut talk = Talk::new(format, "one");
    talk.streams = true;
    up.script_next(stream_of(&events));
    let first = talk.ask(&proxy).await;
    up.script_next(stream_of(&events));
    talk.say(json!("And now?"));
    (first, talk.ask(&proxy).await)
}

/// The stream goes on as it came, and the session goes on.
#[track_caller]
fn check_answer(got: &(ClientAnswer, ClientAnswer), events: &[String]) {
    let (first, second) = got;
    check(first, 200, "1", "first");
    assert_eq!(first.text(), events.concat());
    let session = header(first, "session");
    assert!(!session.is_empty() && session == header(second, "session"));
}

#[tokio::test]
async fn responses_that_end_with_done_are_answers() {
    for last in [
        vec![event(
            &json!({"type": "response.done", "response": response("completed")}),
        )],
        vec!["data: [DONE]\n\n".to_owned()],
        vec![
            event(&json!({"type": "response.completed", "response": response("completed")})),
            "data: [DONE]\n\n".to_owned(),
        ],
        vec![
            event(&json!({"type": "response.done", "response": response("completed")})),
            "data: [DONE]\n\n".to_owned(),
        ],
    ] {
        let mut events = begin(true);
        events.extend(last);
        let got = ask(events.clone(), Format::Responses).await;
        check_answer(&got, &events);
        assert!(!got.0.text().contains("response.failed"));
    }
}

#[tokio::test]
async fn messages_that_end_with_the_marker_are_answers() {
    let events: Vec<String> = [
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 70, "output_tokens": 1}}}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Well."}}),
        json!({"type": "content_block_stop", "index": 0}),
    ]
    .iter()
    .map(event)
    .chain(["data: [DONE]\n\n".to_owned()])
    .collect();
    let got = ask(events.clone(), Format::Messages).await;
    check_answer(&got, &events);
}

#[tokio::test]
async fn the_event_of_a_broken_stream_names_the_model() {
    for (names_model, expected) in [(true, "m-2026"), (false, "m")] {
        let up = ScriptedProvider::start().await;
        let proxy = up
            .proxy()
            .model("m", model_with_window(60_000))
            .start()
            .await;
        up.script_next(stream_of(begin(names_model)));
        let mut talk = Talk::new(Format::Responses, "one");
        talk.streams = true;
        let came = talk.ask(&proxy).await;
        let text = came.text();
        let failed = text
            .split("\n\n")
            .find(|it| it.contains("response.failed"))
            .unwrap();
        let data = failed.split_once("data: ").unwrap().1;
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["response"]["model"], expected, "{text}");
        assert_eq!(data["response"]["status"], "failed");
        assert_eq!(data["sequence_number"], 4);
    }
}
