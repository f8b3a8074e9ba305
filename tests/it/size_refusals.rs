//! Requests whose bytes or images a provider refuses: they are sent again without the oldest images, as an overflow is
//! without the oldest messages.

use serde_json::{Value, json};
use tracing::Level;

use crate::support::{
    ClientAnswer, ReceivedRequest, RunningProxy, ScriptedProvider, answer, log::ThreadLog,
    model_with_window,
};

const GOOD: &str = r#"{"id":"1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":900,"completion_tokens":1,"total_tokens":901}}"#;
const GOOD_MESSAGE: &str = r#"{"id":"1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":900,"output_tokens":1}}"#;

/// Answers what `refuse` does not refuse; that gets the number of images in a request, and its body.
async fn provider(
    refuse: impl Fn(usize, &str) -> Option<(u16, &'static str)> + Send + Sync + 'static,
) -> ScriptedProvider {
    ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let body = String::from_utf8_lossy(&seen.body);
        let images = body.matches("base64,").count() + body.matches("\"base64\"").count();
        vec![match refuse(images, &body) {
            Some((status, message)) => {
                let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
                answer(&format!("{status} No"), "", error.to_string())
            }
            None if seen.line.contains("/messages") => answer("200 OK", "", GOOD_MESSAGE),
            None => answer("200 OK", "", GOOD),
        }]
    })
    .await
}

async fn proxy_before(up: &ScriptedProvider) -> RunningProxy {
    let proxy = up.proxy().model("m", model_with_window(200_000));
    proxy.start().await
}

/// A 413 without a word, as gateways send it, is about bytes, and says nothing of the window.
#[tokio::test]
async fn a_413_without_a_word_is_about_bytes() {
    let up = ScriptedProvider::start_answering(|seen: &ReceivedRequest| {
        vec![if seen.body.len() > 100_000 {
            answer("413 No", "", "")
        } else {
            answer("200 OK", "", GOOD)
        }]
    })
    .await;
    let proxy = proxy_before(&up).await;
    let mut messages: Vec<Value> = (0..30).flat_map(turn_in_chat).collect();
    messages.push(json!({"role": "user", "content": "And now?"}));
    let log = ThreadLog::begin(Level::WARN);
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!(
        (got.status.as_u16(), attempts(&got)),
        (200, "2"),
        "{}",
        got.text()
    );
    assert_eq!(log.lines_with("were cleared").len(), 1, "{}", log.text());
    let listed = proxy.client().get("/v1/models/m").await.json();
    assert_eq!(listed["max_input_tokens"], Value::Null, "{listed}");
}

/// A picture whose data begins with its number.
fn data(nth: usize, bytes: usize) -> String {
    format!("{nth:08}{}", "A".repeat(bytes))
}

/// A step with a screenshot.
fn step_in_messages(nth: usize) -> [Value; 2] {
    let id = format!("toolu_{nth}");
    let source = json!({"type": "base64", "media_type": "image/png", "data": data(nth, 8_000)});
    let result = json!([{"type": "image", "source": source}]);
    [
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "look", "input": {}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": result}]}),
    ]
}

/// A question with a picture, and its answer.
fn turn_in_chat(nth: usize) -> [Value; 2] {
    let url = format!("data:image/png;base64,{}", data(nth, 8_000));
    let parts = json!([{"type": "text", "text": format!("What is in picture {nth}?")},
        {"type": "image_url", "image_url": {"url": url}}]);
    [
        json!({"role": "user", "content": parts}),
        json!({"role": "assistant", "content": format!("A ship, number {nth}.")}),
    ]
}

async fn ask(proxy: &RunningProxy, path: &str, messages: &[Value]) -> ClientAnswer {
    let body = json!({"model": "m", "max_tokens": 100, "messages": messages}).to_string();
    let request = proxy.client().request(http::Method::POST, path);
    let request = request.header("content-type", "application/json");
    proxy.client().send_with(request, body).await
}

fn attempts(got: &ClientAnswer) -> &str {
    got.headers["x-plimsoll-attempts"].to_str().unwrap()
}

#[tokio::test]
async fn too_many_images_are_healed_by_leaving_out_the_oldest() {
    let up = provider(|images, _| {
        let message = "At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels";
        (images > 20).then_some((400, message))
    })
    .await;
    let proxy = proxy_before(&up).await;
    let mut messages = vec![json!({"role": "user", "content": "Watch the screen."})];
    messages.extend((0..21).flat_map(step_in_messages));
    let got = ask(&proxy, "/v1/messages", &messages).await;
    assert_eq!(
        (got.status.as_u16(), attempts(&got)),
        (200, "2"),
        "{}",
        got.text()
    );
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    assert!(
        actions.contains("cleared=") && actions.contains("refitted=1"),
        "{actions}"
    );
    let before = up.last_request().body;
    let text = String::from_utf8_lossy(&before).into_owned();
    assert!(text.contains("00000020AAA") && !text.contains("00000000AAA"));
    // It is remembered, and what was sent stays.
    messages.extend(step_in_messages(21));
    let got = ask(&proxy, "/v1/messages", &messages).await;
    assert_eq!((got.status.as_u16(), attempts(&got)), (200, "1"));
    let (before, after): (Value, Value) = (
        serde_json::from_slice(&before).unwrap(),
        serde_json::from_slice(&up.last_request().body).unwrap(),
    );
    let before = before["messages"].as_array().unwrap();
    assert!(after["messages"].as_array().unwrap().starts_with(before));
}

#[tokio::test]
async fn an_old_image_that_cannot_be_read_is_left_out_and_a_new_one_is_the_clients_error() {
    let up = provider(|_, body| {
        let is_bad = body.contains("00000027AAA");
        is_bad.then_some((400, "Could not process image"))
    })
    .await;
    let proxy = proxy_before(&up).await;
    let mut messages: Vec<Value> = (0..30).flat_map(turn_in_chat).collect();
    messages.push(json!({"role": "user", "content": "And now?"}));
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!(
        (got.status.as_u16(), attempts(&got)),
        (200, "3"),
        "{}",
        got.text()
    );
    let said = String::from_utf8_lossy(&up.last_request().body).into_owned();
    assert!(said.contains("A ship, number 0."), "texts stay");
    // Nothing helps where it is the newest.
    let messages = [turn_in_chat(27)[0].clone()];
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!((got.status.as_u16(), attempts(&got)), (400, "1"));
    assert!(got.text().contains("Could not process image"));
}

#[tokio::test]
async fn a_request_of_too_many_bytes_is_sent_again_without_images_and_then_shorter() {
    let up =
        provider(|_, body| (body.len() > 150_000).then_some((413, "Request Entity Too Large")))
            .await;
    let proxy = proxy_before(&up).await;
    let mut messages: Vec<Value> = (0..40).flat_map(turn_in_chat).collect();
    messages.push(json!({"role": "user", "content": "And now?"}));
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!(
        (got.status.as_u16(), attempts(&got)),
        (200, "2"),
        "{}",
        got.text()
    );
    let text = |nth: usize| {
        let said = format!("plank {nth} of oak; ").repeat(200);
        [
            json!({"role": "user", "content": said}),
            json!({"role": "assistant", "content": "Well."}),
        ]
    };
    let mut messages: Vec<Value> = (0..60).flat_map(text).collect();
    messages.push(json!({"role": "user", "content": "And now?"}));
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!(
        (got.status.as_u16(), attempts(&got)),
        (200, "2"),
        "{}",
        got.text()
    );
    // What was left out stays out.
    let before = up.last_request().body;
    messages.push(json!({"role": "assistant", "content": "Well."}));
    messages.push(json!({"role": "user", "content": "And then?"}));
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!((got.status.as_u16(), attempts(&got)), (200, "1"));
    let [before, after] = [before, up.last_request().body].map(|body| {
        let body: Value = serde_json::from_slice(&body).unwrap();
        body["messages"].as_array().unwrap().clone()
    });
    assert!(after.starts_with(&before));
    // A newest message that is too large is the client's.
    let messages = [json!({"role": "user", "content": "oak ".repeat(50_000)})];
    let got = ask(&proxy, "/v1/chat/completions", &messages).await;
    assert_eq!(got.status, 413);
}
