//! Tool rounds with a provider that misbehaves in them.

use plimsoll::config::AddTools;

use crate::support::{
    ClientAnswer, DONE, ProviderStep, ReceivedRequest, ScriptedProvider, answer, stream_of,
};

const OWN: &str = r#"{"index":0,"id":"own_1","type":"function","function":{"name":"add_reminder","arguments":"{\"content\":\"note\"}"}}"#;
const USAGE: &str = r#""usage":{"prompt_tokens":100,"completion_tokens":5,"total_tokens":105}"#;

/// An answer with only a call of a proxy tool.
fn own_call_answer(stream: bool, finish: &str) -> Vec<ProviderStep> {
    assistant_answer(stream, &format!(r#""tool_calls":[{OWN}]"#), finish)
}

fn normal_answer(stream: bool) -> Vec<ProviderStep> {
    assistant_answer(stream, r#""content":"fine""#, "stop")
}

fn assistant_answer(stream: bool, members: &str, finish: &str) -> Vec<ProviderStep> {
    let said = format!(r#"{{"role":"assistant",{members}}}"#);
    if !stream {
        let body = format!(
            r#"{{"id":"c","choices":[{{"index":0,"message":{said},"finish_reason":"{finish}"}}],{USAGE}}}"#
        );
        return vec![answer("200 OK", "", body)];
    }
    let events = format!(
        "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{said}}}]}}\n\n\
         data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"{finish}\"}}]}}\n\n\
         data: {{\"id\":\"c\",\"choices\":[],{USAGE}}}\n\n{DONE}"
    );
    stream_of([events])
}

fn fails(status: &str) -> Vec<ProviderStep> {
    vec![answer(
        status,
        "",
        r#"{"error":{"message":"slow down","code":"theirs"}}"#,
    )]
}

/// Whether the request continues a tool round.
fn is_round(seen: &ReceivedRequest) -> bool {
    String::from_utf8_lossy(&seen.body).contains(r#""tool_call_id""#)
}

/// The client's answer, and the number of upstream requests.
async fn ask(
    stream: bool,
    answers: impl Fn(&ReceivedRequest) -> Vec<ProviderStep> + Send + Sync + 'static,
) -> (ClientAnswer, usize) {
    let provider = ScriptedProvider::start_answering(answers).await;
    let proxy = provider.proxy();
    let proxy = proxy.set(|config| config.recovery.tools = AddTools::Always);
    let proxy = proxy.start().await;
    let body = serde_json::json!({
        "model": "up/m", "stream": stream, "messages": [{"role": "user", "content": "go"}],
        "tools": [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}],
    });
    let answer = proxy.chat(body.to_string()).await;
    (answer, provider.count_requests())
}

#[tokio::test]
async fn billed_tokens_count_every_provider_request() {
    let (answer, calls) = ask(false, |_| own_call_answer(false, "tool_calls")).await;
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "stop");
    let billed = &answer.headers["x-plimsoll-billed-tokens"];
    assert_eq!(billed.to_str().unwrap(), (calls * 105).to_string());
}

#[tokio::test]
async fn repeated_calls_of_tools_not_offered_end_the_rounds() {
    for stream in [false, true] {
        let (answer, calls) = ask(stream, move |seen| {
            if is_round(seen) {
                fails("500 Internal Server Error")
            } else {
                own_call_answer(stream, "tool_calls")
            }
        })
        .await;
        assert!(answer.whole && answer.status == 200, "{}", answer.text());
        assert_eq!(
            calls, 3,
            "the request, its round, and the request without us"
        );
    }
}

#[tokio::test]
async fn clear_mind_in_a_new_course_is_answered() {
    for stream in [false, true] {
        let clear = OWN.replace("add_reminder", "clear_mind");
        let clear = format!(r#""tool_calls":[{clear}]"#);
        let (answer, calls) = ask(stream, move |seen| {
            if is_round(seen) {
                normal_answer(stream)
            } else {
                assistant_answer(stream, &clear, "tool_calls")
            }
        })
        .await;
        assert_eq!(calls, 3, "the request, the new course, and a round in it");
        assert!(answer.text().contains("fine"), "{}", answer.text());
    }
}

#[tokio::test]
async fn tool_rounds_end_as_a_stream_where_they_began_as_one() {
    for came_as_stream in [false, true] {
        let asked = !came_as_stream;
        let (answer, _) = ask(asked, move |_| {
            own_call_answer(came_as_stream, "tool_calls")
        })
        .await;
        assert!(answer.whole && answer.status == 200, "{}", answer.text());
        assert_eq!(answer.text().ends_with(DONE), came_as_stream);
        assert!(answer.text().contains(r#""finish_reason":"stop""#));
    }
}

#[tokio::test]
async fn a_tool_round_with_another_content_type_falls_back_to_the_request() {
    for stream in [false, true] {
        for shape in ["other", "204 No Content", "302 Found"] {
            let odd = move || match shape {
                "other" => normal_answer(!stream),
                status => vec![answer(status, "", "")],
            };
            // The first request calls a proxy tool, the round gets an odd answer, later requests a
            // normal one.
            let asked = std::sync::atomic::AtomicUsize::new(0);
            let (answer, calls) = ask(stream, move |seen| {
                let nth = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                match (nth, is_round(seen)) {
                    (0, _) => own_call_answer(stream, "tool_calls"),
                    (_, true) => odd(),
                    (_, false) => normal_answer(stream),
                }
            })
            .await;
            assert!(
                answer.whole && answer.status == 200,
                "{shape} {}",
                answer.text()
            );
            assert!(answer.text().contains("fine"), "{shape} {}", answer.text());
            assert_eq!(calls, 3, "{shape}");
        }
    }
}

#[tokio::test]
async fn a_refusal_in_a_streamed_tool_round_keeps_the_providers_words() {
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let (answer, calls) = ask(true, move |_| {
        match asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
            0 => own_call_answer(true, "tool_calls"),
            _ => fails("429 Too Many Requests"),
        }
    })
    .await;
    assert_eq!(calls, 3);
    assert!(answer.text().contains("slow down"), "{}", answer.text());
    assert!(!answer.text().contains("finish_reason\":\"stop"));
}

#[tokio::test]
async fn an_unusual_finish_reason_does_not_end_tool_rounds() {
    for stream in [false, true] {
        for finish in ["TOOL_CALLS", "tool_use", "STOP", "end_turn", "eos"] {
            let (answer, calls) = ask(stream, move |seen| {
                if is_round(seen) {
                    normal_answer(stream)
                } else {
                    own_call_answer(stream, finish)
                }
            })
            .await;
            assert_eq!(calls, 2, "{finish}");
            assert!(answer.text().contains("fine"), "{finish} {}", answer.text());
        }
        let (_, calls) = ask(stream, move |_| own_call_answer(stream, "length")).await;
        assert_eq!(calls, 1, "what was cut off is not gone on with");
    }
}

#[tokio::test]
async fn an_incomplete_last_event_leaks_no_injected_text() {
    let (answer, _) = ask(true, |_| {
        let half = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"tool_calls\":[{}",
            &OWN[..90]
        );
        stream_of([half])
    })
    .await;
    assert!(!answer.text().contains("add_reminder"), "{}", answer.text());
    assert!(answer.text().contains("provider_bad_answer"));
    assert!(!answer.whole);
}
