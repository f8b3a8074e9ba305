//! Large conversations hold up nobody: a proxy with a single worker answers `/healthz` while it plans, refits, looks up and
//! fits 20 MB with thousands of results.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use http::Method;
use plimsoll::conversation::Format;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    ScriptedProvider, TestClient, answer,
    answers::{WAYS, client_tool, whole_answer},
    process::{Process, Settings},
};

const RESULTS: usize = 4_000;
const LOOKUPS: usize = 8;

/// A conversation of 20 MB. In Responses, all outputs come after all calls.
fn large_body(format: Format, list: &str) -> String {
    let text = |at: usize| {
        format!(
            "result {at}\n{}",
            "a plank \"of oak\"\tis sound\n".repeat(180)
        )
    };
    let mut items = vec![json!({"role": "user", "content": "Mend the ship."})];
    let ids = || (0..RESULTS).map(|at| (at, format!("call_{at}")));
    match format {
        Format::Chat => {
            for (at, id) in ids() {
                let function = json!({"name": "read_file", "arguments": "{\"path\":\"a\"}"});
                let call = json!({"id": id, "type": "function", "function": function});
                items.extend([
                    json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                    json!({"role": "tool", "tool_call_id": id, "content": text(at)}),
                ]);
            }
        }
        Format::Messages => {
            for (at, id) in ids() {
                let call = json!({"type": "tool_use", "id": id, "name": "read_file", "input": {}});
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": text(at)});
                items.extend([
                    json!({"role": "assistant", "content": [call]}),
                    json!({"role": "user", "content": [result]}),
                ]);
            }
        }
        Format::Responses => {
            let call = |id| {
                json!({"type": "function_call", "call_id": id, "name": "read_file",
                "arguments": "{}"})
            };
            items.extend(ids().map(|(_, id)| call(id)));
            let output = |(at, id)| {
                json!({"type": "function_call_output", "call_id": id,
                "output": text(at)})
            };
            items.extend(ids().map(output));
        }
    }
    items.extend([
        json!({"role": "assistant", "content": "Seen."}),
        json!({"role": "user", "content": "And now?"}),
    ]);
    json!({"model": "up/m", "max_tokens": 1_000, "store": false, "tools": [client_tool(format)], list: items})
        .to_string()
}

/// Ids that placeholders of the request name; the last of them again, until there are enough.
fn lookups(body: &str) -> Vec<(&'static str, Value)> {
    let ids = body.split("recall id ").skip(1).map(|rest| {
        let id = rest.chars().take_while(char::is_ascii_alphanumeric);
        id.collect::<String>()
    });
    let ids: Vec<String> = ids.take(LOOKUPS).collect();
    let again = ids.last().cloned();
    let ids = ids
        .into_iter()
        .chain(std::iter::repeat_n(again, LOOKUPS).flatten());
    ids.take(LOOKUPS)
        .map(|id| ("recall", json!({"id": id, "pattern": "nothing like it"})))
        .collect()
}

/// Refuses the first request as too long, has eight lookups made in the second, and answers the third.
async fn start_provider(format: Format) -> ScriptedProvider {
    let count = AtomicUsize::new(0);
    ScriptedProvider::start_answering(move |request| {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error",
            "code": "context_length_exceeded",
            "message": "prompt is too long: 150000 tokens > 100000 maximum"}});
        let made = match count.fetch_add(1, Ordering::Relaxed) {
            0 => return vec![answer("400 Bad Request", "", error.to_string())],
            // A refit of late outputs leaves out all of them, and names no id.
            1 if format != Format::Responses => {
                let calls = lookups(&String::from_utf8_lossy(&request.body));
                assert_eq!(calls.len(), LOOKUPS, "there is nothing to look up");
                whole_answer(format, "", &calls, (500, 90))
            }
            _ => whole_answer(format, "Done.", &[], (600, 10)),
        };
        vec![answer("200 OK", "", made)]
    })
    .await
}

/// The longest of so many calls of `/healthz`, or of those until the other work is done.
async fn poll_health(client: &TestClient, mut done: impl FnMut(usize) -> bool) -> Duration {
    let mut longest = Duration::ZERO;
    for count in 0.. {
        if done(count) {
            break;
        }
        let begun = Instant::now();
        assert_eq!(client.get("/healthz").await.status, 200);
        longest = longest.max(begun.elapsed());
    }
    longest
}

/// How long a request of the large conversation takes, and the longest that `/healthz` takes meanwhile.
async fn time_request(process: &Process, path: &str, body: &str) -> (Duration, Duration) {
    let (client, other) = (process.client(), process.client());
    let request = client.request(Method::POST, path);
    let begun = Instant::now();
    let body = body.to_owned();
    let (mut sent, mut ended) = (JoinSet::new(), None);
    sent.spawn(async move { client.send_with(request, body).await });
    let has_ended = |_| {
        ended = ended.take().or_else(|| sent.try_join_next());
        ended.is_some()
    };
    let longest = poll_health(&other, has_ended).await;
    let got = ended.unwrap().unwrap();
    assert_eq!(got.status, 200, "{path} {}", got.text());
    (begun.elapsed(), longest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_told_while_large_conversations_are_planned() {
    for (format, path, list, profile) in WAYS {
        let up = start_provider(format).await;
        let settings = Settings::new(&up);
        let model = "[models.m]\ncontext_length = 200000";
        settings.write(&format!("profile = {profile:?}\n{model}"));
        let process = Process::run(|command| {
            let command = command.env("TOKIO_WORKER_THREADS", "1");
            command.arg("--config").arg(&settings.file)
        })
        .await;
        let idle = poll_health(&process.client(), |count| count == 50).await;
        let body = large_body(format, list);
        assert!(body.len() > 20 << 20);
        let fit = format!("/plimsoll/api/fit?format={}", format.name());
        for path in [path, fit.as_str()] {
            let (took, longest) = time_request(&process, path, &body).await;
            // Where all is slow, so is the request. One stage on the worker takes more of it than that.
            let bound = (took / 4).max(20 * idle);
            assert!(
                longest < bound,
                "{path}: {longest:?} of {took:?}, idle {idle:?}"
            );
        }
        let lookups = usize::from(format != Format::Responses);
        assert_eq!(up.count_requests(), 2 + lookups, "{format:?}");
    }
}
