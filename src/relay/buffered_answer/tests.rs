use async_trait::async_trait;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::{BufferedAnswer, buffer_filtered_answer};
use crate::{
    json::text::digest_text,
    relay::{
        AnswerDriver, AnswerFilter, BadAnswer, Format, ModelAnswer, PrecedingText, ResponseSummary,
        StreamFooter,
    },
    wire::{Body, whole_body},
};

mod messages;
mod responses;

const FILTER: AnswerFilter = AnswerFilter {
    tools: &["clear_mind", "add_reminder"],
    package: true,
};

struct Scripted {
    answers: Vec<Response<Body>>,
    turns: Vec<ModelAnswer>,
}

#[async_trait]
impl AnswerDriver for Scripted {
    async fn next_answer(&mut self, turn: ModelAnswer) -> Option<Response<Body>> {
        self.turns.push(turn);
        (!self.answers.is_empty()).then(|| self.answers.remove(0))
    }

    async fn end_answer(
        self: Box<Self>,
        _: ResponseSummary,
        _: ModelAnswer,
        _: PrecedingText,
    ) -> StreamFooter {
        StreamFooter::default()
    }
}

type Read = Result<(BufferedAnswer, ModelAnswer, PrecedingText), BadAnswer>;

async fn read(first: Response<Body>, answers: Vec<Response<Body>>) -> (Read, Vec<ModelAnswer>) {
    let mut driver = Scripted {
        answers,
        turns: Vec::new(),
    };
    let read = on_any_thread(buffer_filtered_answer(
        Format::Chat,
        first,
        FILTER,
        &mut driver,
        "p",
        |_| true,
    ))
    .await;
    (read, driver.turns)
}

/// The server's tasks move between threads.
fn on_any_thread<F: Future + Send>(future: F) -> F {
    future
}

fn complete(read: Read) -> (String, ResponseSummary, ModelAnswer, PrecedingText) {
    match read.unwrap() {
        (BufferedAnswer::Complete { body, summary, .. }, turn, preceding) => (
            String::from_utf8(body.to_vec()).unwrap(),
            summary,
            turn,
            preceding,
        ),
        _ => panic!("too long"),
    }
}

fn answer(message: &str, finish: &str, completion: u32) -> String {
    format!(
        r#"{{"id":"x", "choices":[ {{"index":0,"message":{message},"finish_reason":"{finish}"}}],"usage":{{"prompt_tokens":9,"completion_tokens":{completion},"total_tokens":{}}}}}"#,
        9 + completion
    )
}

fn call(id: &str, name: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"function", "function":{{"name":"{name}","arguments":"{{}}"}}}}"#
    )
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn ok(body: impl Into<String>) -> Response<Body> {
    Response::new(whole_body(body.into()))
}

#[tokio::test]
async fn an_answer_for_the_client_only_is_untouched() {
    let message = format!(
        r#"{{"role":"assistant","content":"a \u003c b","tool_calls":[{}]}}"#,
        call("t", "get")
    );
    for body in [
        answer(&message, "tool_calls", 3),
        answer(r#"{"role":"assistant","content":null}"#, "stop", 3),
        r#"{"error":{"message":"m"}}"#.to_owned(),
        r#"{"choices":[],"x":NaN}"#.to_owned(),
    ] {
        let (read, _) = read(ok(&*body), vec![]).await;
        assert_eq!(complete(read).0, body);
    }
    let mut refused = ok("no json");
    *refused.status_mut() = StatusCode::BAD_REQUEST;
    assert_eq!(complete(read(refused, vec![]).await.0).0, "no json");
}

#[tokio::test]
async fn only_proxy_calls_are_removed() {
    let (proxy, get) = (call("o", "clear_mind"), call("t", "get"));
    let (second, other) = (call("p", "add_reminder"), call("u", "get"));
    let message = |calls: &str| {
        format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{calls}], "reasoning":"r\u00e9"}}"#
        )
    };
    for (before, after, preceding) in [
        (format!("{proxy}, {get}"), get.clone(), 0),
        (format!("{get} ,{proxy}"), get.clone(), 1),
        (
            format!("{proxy},{get},{second},{other}"),
            format!("{get},{other}"),
            0,
        ),
    ] {
        let body = answer(&message(&before), "tool_calls", 3);
        let (text, summary, turn, _) = complete(read(ok(&*body), vec![]).await.0);
        assert_eq!(text, answer(&message(&after), "tool_calls", 3));
        assert_eq!(summary.call_ids.len(), after.matches("get").count());
        assert_eq!(turn.proxy_calls[0].before, preceding);
        assert_eq!(json_of(&turn.proxy_calls[0].json), json_of(&proxy));
        let expected = message(&before).replace(r#""content":null,"#, "");
        assert_eq!(json_of(&turn.message), json_of(&expected));
    }
    let body = answer(&message(&proxy), "length", 3);
    let (text, ..) = complete(read(ok(body), vec![]).await.0);
    assert_eq!(
        text,
        answer(&message("").replace(r#","tool_calls":[]"#, ""), "length", 3)
    );
}

#[tokio::test]
async fn texts_and_usage_of_all_answers_are_joined() {
    let proxy_turn = format!(
        r#"{{"content":"One.","annotations":[],"tool_calls":[{}]}}"#,
        call("o", "add_reminder")
    );
    let block = r#"{"content":" <continuation_package>x</continuation_package>"}"#;
    let first = || ok(answer(&proxy_turn, "stop", 10));
    for (last, content) in [
        (r#"{"content":"Two."}"#, json!("One.\n\n Two.")),
        (r#"{"content":null}"#, json!("One.\n\n ")),
        (r#"{"content":""}"#, json!("One.\n\n ")),
        ("{}", json!("One.\n\n ")),
        (r#"{"role":"assistant"}"#, json!("One.\n\n ")),
        (
            r#"{"content":[{"type":"thinking"}]}"#,
            json!([{"type": "text", "text": "One.\n\n "}, {"type": "thinking"}]),
        ),
        (
            r#"{"content":[{"type":"text","text":"Two."}]}"#,
            json!([{"type": "text", "text": "One.\n\n Two."}]),
        ),
    ] {
        let answers = vec![ok(answer(block, "stop", 5)), ok(answer(last, "stop", 1))];
        let (read, turns) = read(first(), answers).await;
        let (text, summary, _, preceding) = complete(read);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["choices"][0]["message"]["content"], content, "{last}");
        assert_eq!(
            json["usage"],
            json!({"prompt_tokens": 9, "completion_tokens": 16, "total_tokens": 25})
        );
        assert_eq!(summary.usage.unwrap().completion_tokens, Some(16));
        assert_eq!(
            (preceding.chars, preceding.digest),
            (7, digest_text(br"One.\n\n "))
        );
        let expected = proxy_turn.replacen('{', "{\"role\":\"assistant\",", 1);
        let expected = expected.replace(r#""annotations":[],"#, "");
        assert_eq!(json_of(&turns[0].message), json_of(&expected));
        assert!(turns[1].package.as_ref().unwrap().alone);
    }
}

#[tokio::test]
async fn without_a_next_answer_it_fails() {
    let proxy_turn = || {
        ok(answer(
            &format!(r#"{{"tool_calls":[{}]}}"#, call("o", "clear_mind")),
            "tool_calls",
            1,
        ))
    };
    let (none, turns) = read(proxy_turn(), vec![]).await;
    assert_eq!(turns.len(), 1);
    assert!(matches!(none, Err(BadAnswer::Broken { .. })));
    // The client reads the provider's error.
    let mut refused = ok("{}");
    *refused.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let (refused, turns) = read(proxy_turn(), vec![refused]).await;
    assert_eq!(turns.len(), 1);
    assert!(
        matches!(refused, Ok((BufferedAnswer::Complete { head, .. }, ..)) if head.status == StatusCode::SERVICE_UNAVAILABLE)
    );
    let (read, _) = read(proxy_turn(), vec![ok("<html>")]).await;
    assert!(matches!(read, Err(BadAnswer::NotJson { .. })));
}
