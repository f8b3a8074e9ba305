//! A refusal in words that no table knows is tried once with a smaller request, where its length may be the reason.

use plimsoll::conversation::{FORMATS, Format};
use serde_json::{Value, json};

use super::{Talk, check, header, start_provider, write_error};
use crate::support::{
    Process, ProviderStep, ProxyBuilder, RunningProxy, ScriptedProvider, Settings, answer,
    model_with_window,
};

/// In the proxy's tokens, of which one is three bytes.
const CLAIMED: u32 = 120_000;
const WINDOW: u64 = 40_000;

/// Refusals that no table knows.
const WORDS: [(u16, &str); 4] = [
    (400, "E-4711: the engine declined this job"),
    (422, "Zu viel auf einmal"),
    (413, "too much for this deployment"),
    (400, "Something went wrong"),
];

/// Refuses what is longer than the window, in these words.
async fn refuse_long(status: u16, words: &'static str) -> ScriptedProvider {
    start_provider(move |body, tokens| {
        let format = if body["input"].is_array() {
            Format::Responses
        } else {
            Format::Chat
        };
        (tokens > WINDOW).then(|| write_error(format, status, "invalid_request_error", words))
    })
    .await
}

fn proxy_before(up: &ScriptedProvider) -> ProxyBuilder {
    up.proxy().model("m", model_with_window(CLAIMED))
}

async fn limit_of(came: &crate::support::ClientAnswer) -> u64 {
    header(came, "context-limit").parse().unwrap()
}

#[tokio::test]
async fn a_long_request_that_is_refused_in_unknown_words_heals_in_every_format() {
    for format in FORMATS {
        for (status, words) in WORDS {
            for streams in [false, true] {
                let context = format!("{format:?} {status} {words} {streams}");
                let up = refuse_long(status, words).await;
                let proxy = proxy_before(&up).start().await;
                let mut talk = Talk::new(format, "one");
                talk.streams = streams;
                let came = talk.grow(55_000).ask(&proxy).await;
                check(&came, 200, "2", &context);
                assert!(header(&came, "actions").contains("refitted=1"), "{context}");
                // What is learnt holds for this session.
                talk.say(json!("And now?"));
                let came = talk.ask(&proxy).await;
                check(&came, 200, "1", &context);
                // Another session is told nothing by it, until it was refused so, too.
                let mut other = Talk::new(format, "two");
                let came = other.grow(20_000).ask(&proxy).await;
                assert_eq!(limit_of(&came).await, u64::from(CLAIMED), "{context}");
                check(&other.grow(25_000).ask(&proxy).await, 200, "2", &context);
                let mut third = Talk::new(format, "three");
                check(&third.grow(55_000).ask(&proxy).await, 200, "1", &context);
            }
        }
    }
}

#[tokio::test]
async fn the_first_error_passes_and_nothing_is_learnt_where_a_smaller_request_is_refused_too() {
    for format in FORMATS {
        for (status, words) in WORDS {
            let count = std::sync::atomic::AtomicUsize::new(0);
            let up = start_provider(move |_, _| {
                let nth = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Some(write_error(
                    format,
                    status,
                    "invalid_request_error",
                    &format!("{words} {nth}"),
                ))
            })
            .await;
            let proxy = proxy_before(&up).start().await;
            let mut talk = Talk::new(format, "one");
            let came = talk.grow(55_000).ask(&proxy).await;
            assert_eq!(came.status, status, "{format:?} {words}");
            assert_eq!(header(&came, "context-limit"), "120000");
            if status != 413 {
                // A 413 is about bytes by its status: that is tried as well.
                check(&came, status, "2", words);
                assert!(
                    came.text().contains(&format!("{words} 0")),
                    "{}",
                    came.text()
                );
                assert!(!header(&came, "actions").contains("refitted"));
            }
        }
    }
}

#[tokio::test]
async fn a_short_request_is_tried_only_where_it_is_longer_than_what_was_answered() {
    for format in FORMATS {
        let refuse = |body: &Value, _: u64| {
            let text = body.to_string();
            let is_refused = text.contains("lamp") && text.contains("rope; ");
            is_refused.then(|| write_error(Format::Chat, 400, "invalid_request_error", "No."))
        };
        let up = start_provider(refuse).await;
        let proxy = proxy_before(&up).start().await;
        // Nothing was answered yet, and it is not half of the window.
        let mut talk = Talk::new(format, "one");
        talk.grow(20_000).say(json!("lamp"));
        check(&talk.ask(&proxy).await, 400, "1", "short");
        // Longer than what was answered.
        let mut talk = Talk::new(format, "two");
        check(&talk.grow(10_000).ask(&proxy).await, 200, "1", "answered");
        talk.grow(10_000).say(json!("lamp"));
        check(&talk.ask(&proxy).await, 400, "2", "longer");
    }
}

#[tokio::test]
async fn an_error_of_a_known_kind_is_passed_at_once() {
    for (status, kind, message) in [
        (
            400,
            "invalid_request_error",
            "Unsupported parameter: 'temperature'",
        ),
        (
            400,
            "invalid_request_error",
            "messages.3.content.1: roles must alternate",
        ),
        (400, "invalid_request_error", "Invalid API key provided"),
        (400, "content_policy_violation", "Something in it"),
        (400, "authentication_error", "No."),
        (400, "insufficient_quota", "No."),
        (
            422,
            "string_too_long",
            "String should have at most 64 characters",
        ),
        (
            400,
            "invalid_request_error",
            "your account is over its rate limit",
        ),
        (400, "bad", "余额不足，请充值"),
        (400, "bad", "输入内容包含敏感信息"),
    ] {
        let up = start_provider(move |_, _| Some(write_error(Format::Chat, status, kind, message)))
            .await;
        let proxy = proxy_before(&up).start().await;
        let came = Talk::new(Format::Chat, "one")
            .grow(55_000)
            .ask(&proxy)
            .await;
        check(&came, status, "1", message);
    }
    // A member that is named, and a place.
    for body in [
        json!({"error": {"message": "Bad.", "param": "stop"}}),
        json!({"detail": [{"loc": ["body", "messages", 3], "msg": "Bad.", "type": "value_error"}]}),
    ] {
        let up =
            start_provider(move |_, _| Some(vec![answer("422 Refused", "", body.to_string())]))
                .await;
        let proxy = proxy_before(&up).start().await;
        let came = Talk::new(Format::Chat, "one")
            .grow(55_000)
            .ask(&proxy)
            .await;
        check(&came, 422, "1", "named");
    }
}

#[tokio::test]
async fn a_bad_image_teaches_no_window_since_images_stay() {
    for format in FORMATS {
        let up = start_provider(|body, _| {
            let is_bad = body.to_string().contains("QUJDQUJD");
            is_bad.then(|| write_error(Format::Chat, 400, "invalid_request_error", "Nope."))
        })
        .await;
        let proxy = proxy_before(&up).start().await;
        let mut talk = Talk::new(format, "one");
        talk.grow(10_000);
        let data = "QUJD".repeat(400);
        let url = format!("data:image/png;base64,{data}");
        let image = match format {
            Format::Messages => json!({"type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": data}}),
            Format::Responses => json!({"type": "input_image", "image_url": url}),
            _ => json!({"type": "image_url", "image_url": {"url": url}}),
        };
        talk.say(json!([image]));
        let came = talk.grow(45_000).ask(&proxy).await;
        check(&came, 400, "2", "the image stayed");
        assert_eq!(header(&came, "context-limit"), "120000");
        assert!(String::from_utf8_lossy(&up.last_request().body).contains("QUJDQUJD"));
    }
}

#[tokio::test]
async fn the_try_counts_among_the_attempts() {
    let up = refuse_long(400, "No.").await;
    let proxy = proxy_before(&up).set(|config| config.retry.max_attempts = 1);
    let proxy = proxy.start().await;
    let came = Talk::new(Format::Chat, "one")
        .grow(55_000)
        .ask(&proxy)
        .await;
    check(&came, 400, "1", "no attempt left");
}

fn first_error(event: &Value) -> Vec<ProviderStep> {
    crate::support::stream_of([format!("data: {event}\n\n")])
}

#[tokio::test]
async fn an_error_event_in_unknown_words_heals_where_the_profile_reads_it() {
    let openrouter = plimsoll::guard::profile::find_profile("openrouter").unwrap();
    for event in [
        json!({"error": {"message": "Provider returned error", "code": 400}}),
        json!({"error": {"message": "Zu viel", "code": "E17"}}),
    ] {
        let up =
            start_provider(move |_, tokens| (tokens > WINDOW).then(|| first_error(&event))).await;
        let proxy = proxy_before(&up).providers(|it| it.profile = openrouter);
        let proxy: RunningProxy = proxy.start().await;
        let mut talk = Talk::new(Format::Chat, "one");
        talk.streams = true;
        let came = talk.grow(55_000).ask(&proxy).await;
        check(&came, 200, "2", "event");
        assert!(came.text().contains("Well."), "{}", came.text());
    }
}

/// The log tells the wording once, and neither the conversation nor a key that the provider repeats.
#[tokio::test]
async fn the_log_has_the_wording_once() {
    let up = start_provider(|_, _| {
        let words = "E-4711 declined: has planks of oak and a rope (bearer 0123456789abcdef0123)";
        Some(write_error(Format::Chat, 400, "bad", words))
    })
    .await;
    let settings = Settings::new(&up);
    settings.write("[models.m]\ncontext_length = 120000\n");
    let process = Process::start(&settings.file).await;
    let mut talk = Talk::new(Format::Chat, "one");
    talk.grow(55_000);
    for _ in 0..2 {
        let body = json!({"model": "m", "messages": talk.messages});
        let came = process.client().chat(body.to_string()).await;
        assert_eq!(came.status, 400);
    }
    process.signal("TERM");
    let (_, log) = process.wait_for_end().await;
    let told = log
        .lines()
        .filter(|line| line.contains("unknown error text"));
    let told: Vec<&str> = told.collect();
    assert_eq!(told.len(), 1, "{log}");
    assert!(told[0].contains("e-4711 declined"), "{}", told[0]);
    assert!(!log.contains("planks of oak"), "{log}");
    assert!(!log.contains("0123456789abcdef"), "{log}");
}
