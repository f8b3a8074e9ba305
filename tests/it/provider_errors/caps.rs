//! A refusal of prompt and answer cap together: the cap goes down before anything is cut, and where nothing can be cut, to
//! what is left.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use plimsoll::conversation::{FORMATS, Format};
use serde_json::Value;

use super::{Talk, check, header, start_counting, write_error};
use crate::support::{
    ClientAnswer, ProviderStep, ProxyBuilder, ScriptedProvider, model_with_window,
};

const WINDOW: u64 = 32_768;

fn cap_of(body: &Value) -> u64 {
    let caps = ["max_tokens", "max_output_tokens", "max_completion_tokens"];
    caps.iter().find_map(|cap| body[cap].as_u64()).unwrap_or(0)
}

/// vLLM since 2026: the cap, and a lower bound of the prompt, which it does not count to its end.
fn with_bound(cap: u64, _: u64) -> String {
    let least = (WINDOW + 1).saturating_sub(cap).max(1);
    let total = least + cap;
    format!(
        "This model's maximum context length is {WINDOW} tokens. However, you requested {cap} output tokens and your prompt contains at least {least} input tokens, for a total of at least {total} tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value={least})"
    )
}

/// vLLM before, and Anthropic: both numbers.
fn with_count(cap: u64, tokens: u64) -> String {
    format!(
        "'max_tokens' or 'max_completion_tokens' is too large: {cap}. This model's maximum context length is {WINDOW} tokens and your request has {tokens} input tokens ({cap} > {WINDOW} - {tokens})."
    )
}

fn as_anthropic(cap: u64, tokens: u64) -> String {
    format!(
        "input length and `max_tokens` exceed context limit: {tokens} + {cap} > {WINDOW}, decrease input length or `max_tokens` and try again"
    )
}

type Words = fn(u64, u64) -> String;
const WORDS: [Words; 3] = [with_bound, with_count, as_anthropic];

/// Counts a token for `bytes` bytes; the proxy takes three for one.
async fn start(bytes: f64, words: Words, refused: &Arc<AtomicUsize>) -> ScriptedProvider {
    let refused = Arc::clone(refused);
    start_counting(bytes, move |body, tokens| {
        let cap = cap_of(body);
        let format = if body["input"].is_array() {
            Format::Responses
        } else {
            Format::Chat
        };
        (tokens + cap > WINDOW).then(|| -> Vec<ProviderStep> {
            refused.fetch_add(1, SeqCst);
            write_error(format, 400, "BadRequestError", &words(cap, tokens))
        })
    })
    .await
}

fn talk(format: Format, cap: u32) -> Talk {
    let mut talk = Talk::new(format, "one");
    talk.cap = Some(cap);
    talk
}

fn sent(up: &ScriptedProvider) -> Value {
    serde_json::from_slice(&up.last_request().body).unwrap()
}

fn is_cut(came: &ClientAnswer) -> bool {
    let words = ["truncated", "cleared", "dropped"];
    words
        .iter()
        .any(|word| header(came, "actions").contains(word))
}

#[tokio::test]
async fn the_cap_goes_down_before_anything_is_cut() {
    for format in FORMATS {
        for words in WORDS {
            for claimed in [Some(32_768), Some(131_072), None] {
                let refused = Arc::default();
                let up = start(2.4, words, &refused).await;
                let mut proxy: ProxyBuilder = up.proxy().set(|it| it.guard.reserve_tokens = None);
                if let Some(claimed) = claimed {
                    proxy = proxy.model("m", model_with_window(claimed));
                }
                let proxy = proxy.start().await;
                let mut talk = talk(format, 32_000);
                let mut cuts = 0;
                for nth in 0..20 {
                    let came = talk.grow(1_000).ask(&proxy).await;
                    let context = format!("{format:?} {claimed:?} {nth} {}", words(1, 2));
                    assert_eq!(came.status, 200, "{context}: {}", came.text());
                    cuts += usize::from(nth < 12 && is_cut(&came));
                    assert!(cap_of(&sent(&up)) >= 1_024, "{context}");
                }
                assert_eq!(cuts, 0, "{format:?} {claimed:?} {}", words(1, 2));
                assert!(
                    refused.load(SeqCst) <= 3,
                    "{format:?} {claimed:?}: {refused:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_cap_becomes_what_is_left_where_nothing_can_be_cut() {
    for format in FORMATS {
        for words in WORDS {
            let refused = Arc::default();
            let up = start(2.4, words, &refused).await;
            let proxy = up.proxy().set(|it| it.guard.reserve_tokens = None);
            let proxy = proxy
                .model("m", model_with_window(WINDOW as u32))
                .start()
                .await;
            // One message that leaves some 300 tokens.
            let mut talk = talk(format, 4_000);
            let text = "oak and rope; ".repeat(6_000);
            talk.messages[0]["content"] = text[..(32_400.0 * 2.4) as usize].into();
            let came = talk.ask(&proxy).await;
            let context = format!("{format:?} {}", words(1, 2));
            assert_eq!(came.status, 200, "{context}: {}", came.text());
            let cap = cap_of(&sent(&up));
            assert!((60..368).contains(&cap), "{context}: {cap}");
            assert!(!is_cut(&came), "{context}");
        }
    }
}

/// Row 002.3: a cap is reserved as it is.
#[tokio::test]
async fn no_cap_is_lowered_where_the_settings_say_so() {
    for format in FORMATS {
        for words in WORDS {
            let refused = Arc::default();
            let up = start(2.4, words, &refused).await;
            let proxy = up.proxy().set(|it| it.guard.clamp_max_tokens = false);
            let proxy = proxy
                .model("m", model_with_window(WINDOW as u32))
                .start()
                .await;
            for tokens in [3_000, 12_000] {
                let came = talk(format, 16_000).grow(tokens).ask(&proxy).await;
                assert_eq!(came.status, 200, "{}", came.text());
                assert_eq!(cap_of(&sent(&up)), 16_000);
            }
            let came = talk(format, 32_700).grow(3_000).ask(&proxy).await;
            assert_eq!(came.status, 400, "{}", came.text());
            let whole = came.headers.contains_key("x-plimsoll-session");
            assert!(whole && cap_of(&sent(&up)) == 32_700);
        }
    }
}

/// A thinking budget stays below the cap.
#[tokio::test]
async fn the_cap_stays_above_a_thinking_budget() {
    let refused = Arc::default();
    let up = start(2.4, with_bound, &refused).await;
    let proxy = up.proxy().set(|it| it.guard.reserve_tokens = None);
    let proxy = proxy
        .model("m", model_with_window(WINDOW as u32))
        .start()
        .await;
    let mut talk = talk(Format::Messages, 32_000);
    talk.thinking = Some(8_000);
    let came = talk.grow(4_000).ask(&proxy).await;
    check(&came, 200, "2", "thinking");
    assert!(cap_of(&sent(&up)) > 8_000);
}
