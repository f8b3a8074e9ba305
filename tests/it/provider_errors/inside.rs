//! Errors inside a 200: while the client has nothing, they are errors, and a fallback is asked.

use plimsoll::conversation::{FORMATS, Format};
use serde_json::{Value, json};

use super::{Talk, check, give_answer, header, start_provider};
use crate::support::{
    ProviderStep, RunningProxy, ScriptedProvider, answer, model_with_window, send_bytes,
    stream_head, stream_of,
};

fn event(data: &Value) -> String {
    let name = data["type"]
        .as_str()
        .filter(|name| !name.contains("_error"));
    let name = name.map_or(String::new(), |name| format!("event: {name}\n"));
    format!("{name}data: {data}\n\n")
}

/// The event that begins an answer, and has nothing of it.
fn begin(format: Format) -> String {
    event(&match format {
        Format::Messages => {
            json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "m", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}})
        }
        Format::Responses => json!({"type": "response.created",
            "response": {"id": "resp_1", "status": "in_progress", "model": "m", "output": []}}),
        _ => {
            json!({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]})
        }
    })
}

fn failure(format: Format, code: &str) -> Value {
    let error = json!({"type": code, "code": code, "message": "It did not work."});
    match format {
        Format::Messages => json!({"type": "error", "error": error}),
        Format::Responses => {
            json!({"type": "response.failed", "response": {"status": "failed", "error": error}})
        }
        _ => json!({ "error": error }),
    }
}

/// Errors inside a 200, each in every format.
fn shapes(format: Format, streams: bool) -> Vec<(&'static str, Vec<ProviderStep>)> {
    let failed = |code: &str| event(&failure(format, code));
    let page = "<html><body>Bad gateway</body></html>";
    let html = |body: &str| {
        let length = body.len();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html";
        vec![send_bytes(format!(
            "{head}\r\ncontent-length: {length}\r\n\r\n{body}"
        ))]
    };
    if streams {
        return vec![
            ("first", stream_of([failed("server_error")])),
            ("overloaded", stream_of([failed("overloaded_error")])),
            ("quota", stream_of([failed("insufficient_quota")])),
            ("rate", stream_of([failed("rate_limit_exceeded")])),
            (
                "comment",
                stream_of([": wait\n\n".to_owned(), failed("server_error")]),
            ),
            ("begun", stream_of([begin(format), failed("server_error")])),
            (
                "begun twice",
                stream_of([begin(format), begin(format), failed("api_error")]),
            ),
            ("nothing", stream_of([""])),
            ("only comments", stream_of([": wait\n\n"])),
            ("only begun", stream_of([begin(format)])),
            ("only the end marker", stream_of(["data: [DONE]\n\n"])),
            (
                "begun, then the end marker",
                stream_of([begin(format), "data: [DONE]\n\n".to_owned()]),
            ),
            ("broken", broken("")),
            ("broken begun", broken(&begin(format))),
            ("html", html(page)),
        ];
    }
    let body = failure(format, "server_error").to_string();
    vec![
        ("json", vec![answer("200 OK", "", body)]),
        (
            "plain error",
            vec![answer("200 OK", "", r#"{"error":"overloaded"}"#)],
        ),
        (
            "no choices",
            vec![answer(
                "200 OK",
                "",
                r#"{"object":"chat.completion","choices":[]}"#,
            )],
        ),
        (
            "base_resp",
            vec![answer(
                "200 OK",
                "",
                r#"{"base_resp":{"status_code":1002,"status_msg":"busy"},"choices":null}"#,
            )],
        ),
        ("empty", vec![answer("200 OK", "", "")]),
        ("html", html(page)),
    ]
}

/// A stream that breaks off behind these events.
fn broken(events: &str) -> Vec<ProviderStep> {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let size = events.len();
    let chunk = match size {
        0 => String::new(),
        _ => format!("{size:x}\r\n{events}\r\n"),
    };
    vec![send_bytes(format!("{head}{chunk}")), ProviderStep::Close]
}

/// A proxy before `first`, with `second` as the fallback.
async fn start(first: &ScriptedProvider, second: &ScriptedProvider) -> RunningProxy {
    let mut settings = model_with_window(60_000);
    settings.provider = Some("up".into());
    settings.fallback = vec!["second/m".into()];
    let proxy = first
        .proxy()
        .provider("second", second)
        .model("m", settings);
    let proxy = proxy.providers(|it| it.auth = plimsoll::config::Auth::None);
    proxy.start().await
}

#[tokio::test]
async fn an_error_inside_a_success_asks_the_fallback() {
    for format in FORMATS {
        for streams in [false, true] {
            for (shape, steps) in shapes(format, streams) {
                let first = start_provider(move |_, _| Some(steps.clone())).await;
                let second = start_provider(|_, _| None).await;
                let proxy = start(&first, &second).await;
                let mut talk = Talk::new(format, "one");
                talk.streams = streams;
                let context = format!("{format:?} {streams} {shape}");
                let came = talk.ask(&proxy).await;
                check(&came, 200, "2", &context);
                assert!(came.text().contains("Well."), "{context}: {}", came.text());
                assert_eq!(header(&came, "provider"), "second", "{context}");
                let metrics = proxy.client().get("/metrics").await;
                let failed =
                    r#"plimsoll_provider_attempts_total{outcome="failed",provider="up"} 1"#;
                let busy = r#"plimsoll_provider_attempts_total{outcome="busy",provider="up"} 1"#;
                let is_busy = ["quota", "rate"].contains(&shape);
                let line = if is_busy { busy } else { failed };
                assert!(
                    metrics.text().contains(line),
                    "{context}: {}",
                    metrics.text()
                );
            }
        }
    }
}

#[tokio::test]
async fn what_the_client_caused_passes_as_it_came() {
    for format in FORMATS {
        let steps = stream_of([
            begin(format),
            event(&failure(format, "invalid_request_error")),
        ]);
        let first = start_provider(move |_, _| Some(steps.clone())).await;
        let second = start_provider(|_, _| None).await;
        let proxy = start(&first, &second).await;
        let mut talk = Talk::new(format, "one");
        talk.streams = true;
        let came = talk.ask(&proxy).await;
        assert_eq!(header(&came, "attempts"), "1", "{format:?}");
        let expected = begin(format) + &event(&failure(format, "invalid_request_error"));
        assert!(came.text().starts_with(&expected), "{}", came.text());
        assert_eq!(second.count_requests(), 0);
    }
}

#[tokio::test]
async fn an_answer_passes_as_it_came_where_a_fallback_is_configured() {
    for format in FORMATS {
        for streams in [false, true] {
            let first = start_provider(|_, _| None).await;
            let second = start_provider(|_, _| None).await;
            let proxy = start(&first, &second).await;
            let mut talk = Talk::new(format, "one");
            talk.streams = streams;
            let came = talk.ask(&proxy).await;
            check(&came, 200, "1", "answer");
            let seen = first.last_request();
            let asked: Value = serde_json::from_slice(&seen.body).unwrap();
            let steps = give_answer(format, &asked, seen.body.len() as u64 / 4);
            let sent: Vec<u8> = steps
                .iter()
                .skip(usize::from(streams))
                .flat_map(bytes_of)
                .collect();
            let sent = String::from_utf8(sent).unwrap();
            let sent = sent.split_once("\r\n\r\n").map_or(&*sent, |(_, body)| body);
            // A usage chunk that the client did not ask for is removed.
            if !(streams && format == Format::Chat) {
                assert_eq!(came.text(), sent, "{format:?} {streams}");
            }
        }
    }
}

fn bytes_of(step: &ProviderStep) -> Vec<u8> {
    match step {
        ProviderStep::Send(bytes) => bytes.clone(),
        _ => Vec::new(),
    }
}

/// Without a fallback nothing is held: the client has the beginning while the provider stalls.
#[tokio::test]
async fn nothing_is_held_without_a_fallback() {
    for format in FORMATS {
        let up = ScriptedProvider::start().await;
        let proxy = up
            .proxy()
            .model("m", model_with_window(60_000))
            .start()
            .await;
        let text = event(&failure(format, "server_error"));
        up.script_next([
            stream_head(),
            send_bytes(begin(format)),
            ProviderStep::Stall,
            send_bytes(&text),
            ProviderStep::Close,
        ]);
        let mut talk = Talk::new(format, "one");
        talk.streams = true;
        let begun = begin(format);
        let ask = talk.ask(&proxy);
        tokio::pin!(ask);
        // The head goes out while the provider stalls; the client's reader gets the rest once it is released.
        let released = async {
            up.requests(1).await;
            up.release_stalled();
        };
        let (came, ()) = tokio::join!(ask, released);
        assert!(came.text().starts_with(&begun), "{}", came.text());
        assert_eq!(header(&came, "attempts"), "1");
    }
}

/// A fallback that breaks off: log and metric say so, and the stream ends with an error.
#[tokio::test]
async fn a_fallback_that_breaks_off_ends_with_an_error_and_counts() {
    for format in FORMATS {
        let first = start_provider(move |_, _| Some(vec![answer("503 No", "", "{}")])).await;
        let half = match format {
            Format::Messages => event(&json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": "We"}})),
            Format::Responses => event(
                &json!({"type": "response.output_text.delta", "output_index": 0, "delta": "We"}),
            ),
            _ => event(&json!({"choices": [{"index": 0, "delta": {"content": "We"}}]})),
        };
        let second =
            start_provider(move |_, _| Some(stream_of([begin(format), half.clone()]))).await;
        let proxy = start(&first, &second).await;
        let mut talk = Talk::new(format, "one");
        talk.streams = true;
        for _ in 0..5 {
            let came = talk.ask(&proxy).await;
            assert!(
                came.text().contains("provider_bad_answer") || came.text().contains("broke off"),
                "{}",
                came.text()
            );
        }
        let metrics = proxy.client().get("/metrics").await;
        let failed = r#"plimsoll_provider_attempts_total{outcome="failed",provider="second"} 5"#;
        assert!(metrics.text().contains(failed), "{}", metrics.text());
        let open = r#"plimsoll_breaker_state{provider="second"}"#;
        let line = metrics
            .text()
            .lines()
            .find(|line| line.starts_with(open))
            .map(str::to_owned);
        assert!(
            line.is_none_or(|line| !line.ends_with(" 0")),
            "the circuit is open"
        );
    }
}
