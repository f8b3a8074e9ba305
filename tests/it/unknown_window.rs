//! Models of which nobody knows the window: nothing is cut by an assumed one, or by one guessed from the name, where the
//! provider refuses what is too long.

mod dry_run;
mod refusals;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use http::Method;
use plimsoll::{config::Config, guard::profile::find_profile};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, DONE, FINISH, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy,
    ScriptedProvider, TEXT, answer, model_with_window, refuse, refuse_as_openai, stream_of,
};

/// A provider that counts a token for four bytes.
struct Counting {
    up: ScriptedProvider,
    refused: Arc<AtomicUsize>,
    /// Tokens of the largest request that was answered.
    largest: Arc<AtomicU64>,
}

/// `refusal` is written for a prompt beyond the window.
async fn counting(window: u32, refusal: fn(u32, u64) -> Vec<ProviderStep>) -> Counting {
    let (refused, largest) = (Arc::default(), Arc::default());
    let (refusals, most): (Arc<AtomicUsize>, Arc<AtomicU64>) =
        (Arc::clone(&refused), Arc::clone(&largest));
    let up = ScriptedProvider::start_answering(move |seen: &ReceivedRequest| {
        let tokens = seen.body.len() as u64 / 4;
        let asked: Value = serde_json::from_slice(&seen.body).unwrap();
        if tokens > u64::from(window) {
            refusals.fetch_add(1, SeqCst);
            return refusal(window, tokens);
        }
        most.fetch_max(tokens, SeqCst);
        let usage = json!({"prompt_tokens": tokens, "completion_tokens": 3});
        if asked["stream"] == true {
            let usage = format!("data: {}\n\n", json!({"choices": [], "usage": usage}));
            return stream_of([TEXT, FINISH, &usage, DONE]);
        }
        let message = json!({"role": "assistant", "content": "Well."});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let body = json!({"object": "chat.completion", "choices": [choice], "usage": usage});
        vec![answer("200 OK", "", body.to_string())]
    })
    .await;
    Counting {
        up,
        refused,
        largest,
    }
}

fn refuse_without_numbers(_: u32, _: u64) -> Vec<ProviderStep> {
    refuse(400, "invalid_request", "context window exceeds limit")
}

fn refuse_without_words(_: u32, _: u64) -> Vec<ProviderStep> {
    vec![answer("400 Bad Request", "", "")]
}

fn refuse_in_stream(window: u32, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "The input ({tokens} tokens) is longer than the model's context length ({window} tokens)."
    );
    let error = json!({"error": {"message": message, "type": "BadRequestError", "code": 400}});
    stream_of([format!("data: {error}\n\n{DONE}")])
}

/// A conversation that grows by a question and a result with each step.
struct Talk {
    model: &'static str,
    streams: bool,
    /// About ten tokens each.
    lines: usize,
    messages: Vec<Value>,
}

impl Talk {
    fn new(model: &'static str) -> Self {
        let messages = vec![json!({"role": "user", "content": "Read all files of the ship."})];
        Self {
            model,
            streams: false,
            lines: 500,
            messages,
        }
    }

    fn grow(&mut self) {
        let nth = self.messages.len();
        let (id, arguments) = (format!("c{nth}"), format!("{{\"file\":\"deck-{nth}\"}}"));
        let function = json!({"name": "read_file", "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        let said = format!("deck {nth} has planks of oak and a rope; ").repeat(self.lines);
        self.messages
            .push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        self.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": said}));
    }

    fn body(&self) -> String {
        let tool = json!({"type": "function", "function": {"name": "read_file"}});
        let options = json!({"include_usage": true});
        let mut body = json!({"model": self.model, "messages": self.messages, "tools": [tool],
            "stream": self.streams});
        if self.streams {
            body["stream_options"] = options;
        }
        body.to_string()
    }

    async fn ask(&self, proxy: &RunningProxy, recovery: &str) -> ClientAnswer {
        let client = proxy.client();
        let request = client
            .request(Method::POST, "/v1/chat/completions")
            .header("content-type", "application/json")
            .header("x-plimsoll-recovery", recovery);
        client.send_with(request, self.body()).await
    }
}

fn header<'a>(came: &'a ClientAnswer, name: &str) -> &'a str {
    let value = came.headers.get(format!("x-plimsoll-{name}"));
    value.map_or("", |value| value.to_str().unwrap())
}

/// Whether anything was left out, shortened or sent again.
fn is_cut(came: &ClientAnswer) -> bool {
    let words = ["truncated", "cleared", "dropped", "clamped", "refitted"];
    let actions = header(came, "actions");
    words.iter().any(|word| actions.contains(word))
}

#[tokio::test]
async fn a_long_conversation_with_an_unknown_model_is_never_cut_where_it_fits() {
    for (streams, profile) in [(false, "openai"), (true, "template")] {
        let provider = counting(1_000_000, refuse_as_openai).await;
        let proxy = provider.up.proxy().providers(|provider| {
            provider.profile = find_profile(profile).unwrap();
        });
        let proxy = proxy.start().await;
        let mut talk = Talk {
            streams,
            ..Talk::new("nobody-knows-me")
        };
        for nth in 0..66 {
            talk.grow();
            // Every third time, so that it takes less long.
            if nth % 3 == 0 || nth > 62 {
                let came = talk.ask(&proxy, "off").await;
                assert_eq!(came.status, 200, "{}", came.text());
                assert_eq!(header(&came, "actions"), "none");
                assert_eq!(header(&came, "attempts"), "1");
                assert_eq!(header(&came, "context-limit"), "unknown");
                let sent = provider.up.last_request().body;
                assert!(sent == talk.body().as_bytes(), "request {nth}");
            }
        }
        assert!(provider.largest.load(SeqCst) > 300_000);
        // Recovery does nothing either: caution says that the prompt is long, and not that the window fills up.
        for _ in 0..3 {
            talk.grow();
            let came = talk.ask(&proxy, "on").await;
            assert_eq!(header(&came, "actions"), "none");
            assert_eq!(header(&came, "health"), "caution");
        }
    }
}

/// The windows of these names are those of shorter names and older versions.
#[tokio::test]
async fn nothing_is_cut_by_a_window_guessed_from_the_name() {
    for (model, guess) in [("gpt-4-prod", "8192"), ("deepseek-v5", "128000")] {
        let provider = counting(1_000_000, refuse_as_openai).await;
        let proxy = provider.up.proxy().start().await;
        let mut talk = Talk::new(model);
        let mut limits = Vec::new();
        for _ in 0..36 {
            talk.grow();
            let came = talk.ask(&proxy, "on").await;
            assert_eq!(came.status, 200, "{}", came.text());
            assert_eq!(header(&came, "attempts"), "1");
            assert!(!is_cut(&came), "{model}: {}", header(&came, "actions"));
            let limit = header(&came, "context-limit");
            let is_critical = header(&came, "health") == "critical";
            assert!(
                !is_critical || limit != "unknown",
                "{model}: {:?}",
                came.headers
            );
            limits.push(limit.to_owned());
        }
        limits.dedup();
        // A longer prompt that was answered shows that the guess is wrong.
        assert_eq!(limits, [guess, "unknown"]);
    }
}

/// The largest prompt of a similar model is no part of the guess.
#[tokio::test]
async fn nothing_is_cut_by_the_input_limit_of_a_similar_model() {
    let provider = counting(2_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().start().await;
    let mut talk = Talk::new("gpt-6.2-sol-eu");
    talk.lines = 1_200;
    for _ in 0..82 {
        talk.grow();
    }
    let came = talk.ask(&proxy, "on").await;
    assert_eq!(header(&came, "context-limit"), "1050000");
    assert_eq!(header(&came, "attempts"), "1");
    assert!(!is_cut(&came), "{}", header(&came, "actions"));
    assert!(provider.largest.load(SeqCst) > 930_000);
}

/// A session may stay for long where a guess is nearly full.
#[tokio::test]
async fn no_course_begins_by_a_window_guessed_from_the_name() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().start().await;
    let mut talk = Talk::new("gpt-4-prod");
    talk.grow();
    talk.lines = 8;
    let mut levels = Vec::new();
    for _ in 0..40 {
        talk.grow();
        let came = talk.ask(&proxy, "on").await;
        let actions = header(&came, "actions");
        assert!(!is_cut(&came) && !actions.contains("course"), "{actions}");
        levels.push(header(&came, "health").to_owned());
    }
    assert!(levels.iter().filter(|level| *level == "critical").count() > 8);
}

#[tokio::test]
async fn what_drops_the_front_in_silence_is_cut_by_the_assumed_window() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().providers(|provider| {
        provider.profile = find_profile("ollama").unwrap();
    });
    let proxy = proxy.start().await;
    let mut talk = Talk::new("nobody-knows-me");
    let mut cut = 0;
    for _ in 0..40 {
        talk.grow();
        let came = talk.ask(&proxy, "off").await;
        assert_eq!(came.status, 200, "{}", came.text());
        cut += usize::from(is_cut(&came));
    }
    assert!(cut > 10, "{cut}");
    let largest = provider.largest.load(SeqCst);
    assert!((60_000..96_000).contains(&largest), "{largest}");
}

#[tokio::test]
async fn an_answer_cap_is_not_lowered_by_an_assumed_window() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().start().await;
    let body = r#"{"model":"nobody-knows-me","max_tokens":200000,"messages":[{"role":"user","content":"hi"}]}"#;
    let came = proxy.chat(body).await;
    assert_eq!(header(&came, "actions"), "none");
    assert_eq!(provider.up.last_request().body, body.as_bytes());
}

#[tokio::test]
async fn a_cap_on_prompts_and_limits_of_results_hold_all_the_same() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().set(|config| {
        config.guard.max_prompt_tokens = Some(120_000);
        config.guard.max_tool_result_chars = Some(10_000);
    });
    let proxy = proxy.start().await;
    let mut talk = Talk::new("nobody-knows-me");
    talk.grow();
    let came = talk.ask(&proxy, "off").await;
    assert_eq!(header(&came, "actions"), "truncated=1");
    drop(proxy);
    let proxy = provider
        .up
        .proxy()
        .set(|config| config.guard.max_prompt_tokens = Some(120_000));
    let proxy = proxy.start().await;
    let mut cut = 0;
    for _ in 0..40 {
        talk.grow();
        cut += usize::from(is_cut(&talk.ask(&proxy, "off").await));
    }
    let largest = provider.largest.load(SeqCst);
    // More than is assumed, and not more than the cap.
    assert!(
        cut > 5 && (96_000..120_000).contains(&largest),
        "{cut}, {largest}"
    );
}

#[tokio::test]
async fn a_refusal_corrects_the_floor_of_a_family() {
    let provider = counting(32_768, refuse_as_openai).await;
    let proxy = provider.up.proxy().start().await;
    let mut talk = Talk::new("gpt-6.4-sol");
    let mut limits = Vec::new();
    for _ in 0..12 {
        talk.grow();
        let came = talk.ask(&proxy, "off").await;
        assert_eq!(came.status, 200, "{}", came.text());
        limits.push(header(&came, "context-limit").to_owned());
    }
    limits.dedup();
    assert_eq!(limits, ["1050000", "32768"]);
    assert_eq!(provider.refused.load(SeqCst), 1);
    let listed = proxy
        .client()
        .get("/v1/models/up%2Fclaude-opus-5-7")
        .await
        .json();
    assert_eq!(listed["context_length"], 1_000_000);
    assert_eq!(listed["window_from"], "family");
}

/// A session that was cut by an assumed window keeps these cuts, and gets no more.
#[tokio::test]
async fn earlier_cuts_by_an_assumed_window_stay() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let proxy = provider.up.proxy().providers(|provider| {
        provider.profile = find_profile("ollama").unwrap();
    });
    let proxy = proxy.start().await;
    let mut talk = Talk::new("nobody-knows-me");
    let mut dropped = String::new();
    while !dropped.contains("cleared=") && !dropped.contains("dropped=") {
        talk.grow();
        dropped = header(&talk.ask(&proxy, "off").await, "actions").to_owned();
    }
    let before = provider.up.last_request().body;
    proxy.reload(|config| {
        for provider in config.providers.values_mut() {
            provider.profile = find_profile("openai").unwrap();
        }
    });
    for _ in 0..30 {
        talk.grow();
        let came = talk.ask(&proxy, "off").await;
        assert_eq!(header(&came, "actions"), dropped);
    }
    let after = provider.up.last_request().body;
    let messages = |body: &[u8]| {
        let body: Value = serde_json::from_slice(body).unwrap();
        body["messages"].as_array().unwrap().clone()
    };
    let (before, after) = (messages(&before), messages(&after));
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 60);
}

/// A configured window is cut by before anything is refused.
#[tokio::test]
async fn a_configured_window_is_no_assumption() {
    let provider = counting(1_000_000, refuse_as_openai).await;
    let set =
        |config: &mut Config| drop(config.models.insert("m".into(), model_with_window(96_000)));
    let proxy = provider.up.proxy().set(set).start().await;
    let mut talk = Talk::new("m");
    for _ in 0..24 {
        talk.grow();
        let _ = talk.ask(&proxy, "off").await;
    }
    assert!(provider.largest.load(SeqCst) < 96_000);
}
