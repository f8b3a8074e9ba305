//! Windows smaller than configured: overflows are fitted and retried before the client sees them.
//!
//! A strict provider has a smaller window than the 128,000 tokens of the settings, and refuses in
//! many wordings. All transcripts, step by step: no error reaches the client, streaming or not,
//! except where no cut could help.

use crate::support::{
    ClientAnswer, DONE, ModelReply, ModelSetup, ProviderStep, RefusalWriter, RunningModel,
    RunningProxy,
    count::TokenCounter,
    data,
    drive::{GuardedSession, TokenMeter, make_policy, settings},
    generate::{ConversationSize, Recipe, SHAPES, Session},
    refuse, refuse_as_openai, stream_head,
};
use bytes::Bytes;
use plimsoll::{
    config::{Config, ModelConfig},
    format::chat,
    guard::{self, SessionKnowledge, profile::find_profile},
};
use serde_json::{Value, json};

/// The window of the settings.
const CLAIMED: u32 = 128_000;

/// Requests of one session, evenly thinned where not all are needed.
const MOST_REQUESTS: usize = 60;

/// Wordings of refusals, by what they contain.
const WAYS: [(&str, RefusalWriter); 5] = [
    ("window and tokens", refuse_as_openai),
    ("an answer counted in", asked_in_all),
    ("no numbers", wordy_refusal),
    ("a wrong window", wrong_refusal),
    ("nothing at all", wordless_refusal),
];

fn asked_in_all(window: u32, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "This endpoint's maximum context length is {window} tokens. However, you requested about \
         {tokens} tokens ({tokens} of text input). Please reduce the length of either one."
    );
    refuse(400, "400", &message)
}

fn wordy_refusal(_: u32, _: u64) -> Vec<ProviderStep> {
    refuse(400, "invalid_request", "context window exceeds limit")
}

/// A server that reports the room beside the answer as its window.
fn wrong_refusal(_: u32, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "This model's maximum context length is 3 tokens. However, you requested {tokens} tokens \
         ({tokens} in the messages, 0 in the completion). Please reduce the length."
    );
    refuse(400, "400", &message)
}

fn wordless_refusal(_: u32, _: u64) -> Vec<ProviderStep> {
    let empty = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    vec![ProviderStep::Send(empty.into())]
}

/// An error as the first event of a stream with status 200.
fn refusal_in_stream(window: u32, tokens: u64) -> Vec<ProviderStep> {
    let message = format!(
        "The input ({tokens} tokens) is longer than the model's context length ({window} tokens)."
    );
    let event = json!({"error": {"object": "error", "message": message, "type": "BadRequestError",
        "param": null, "code": 400}});
    let events = format!("data: {event}\n\n{DONE}");
    vec![
        stream_head(),
        ProviderStep::Drip(events.into()),
        ProviderStep::Close,
    ]
}

struct Tale {
    name: String,
    model: String,
    steps: Vec<Vec<u8>>,
}

/// All recorded sessions, or generated ones, with at most `most` requests each.
fn tales(most: usize) -> Vec<Tale> {
    let recorded = data::requests().into_iter();
    let recorded =
        recorded.filter_map(|file| Some((file.name, Session::from_recorded(&file.body)?)));
    let mut sessions: Vec<_> = recorded.collect();
    if sessions.is_empty() {
        sessions = SHAPES
            .iter()
            .map(|&shape| {
                let session = Session::new(7, Recipe::new(shape), ConversationSize::Bytes(300_000));
                (format!("{shape:?}"), session)
            })
            .collect();
    }
    let tales = sessions.into_iter().map(|(name, session)| {
        let steps: Vec<_> = session.thinned(most).steps().collect();
        let body: Value = crate::support::parse::parse_value(&steps[0]).unwrap();
        Tale {
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            name,
            steps,
        }
    });
    tales.collect()
}

fn claim_windows(config: &mut Config, tales: &[Tale]) {
    for tale in tales {
        let model = ModelConfig {
            context_length: Some(CLAIMED),
            provider: Some("up".into()),
            ..ModelConfig::default()
        };
        config.models.insert(tale.model.clone(), model);
    }
    config.default_provider = Some("up".into());
    config.providers.remove("simulated");
    config.guard.when_unsure = None;
}

/// The body with `stream` as wanted, unless the body has it.
fn streaming(body: &[u8], streams: bool) -> Vec<u8> {
    if crate::support::parse::parse_value(body)
        .unwrap()
        .get("stream")
        .is_some()
    {
        return body.to_vec();
    }
    let mut out = format!("{{\"stream\":{streams},").into_bytes();
    let start = body.iter().position(|&byte| byte == b'{').unwrap();
    out.extend_from_slice(&body[start + 1..]);
    out
}

#[derive(Debug, Default)]
struct Tally {
    requests: usize,
    refits: usize,
    hopeless: usize,
}

impl Tally {
    /// Whether it is an answer; an error is allowed only where no cut could help.
    fn is_answered(&mut self, tale: &Tale, body: &[u8], window: u32, got: &ClientAnswer) {
        self.requests += 1;
        if got.status == 200 {
            assert!(
                got.whole && !got.text().contains("\"error\""),
                "{}",
                tale.name
            );
            let actions = got.headers.get("x-plimsoll-actions");
            let actions = actions.expect(&tale.name).to_str().unwrap();
            let refitted = actions
                .split(", ")
                .find_map(|word| word.strip_prefix("refitted="));
            self.refits += refitted.map_or(0, |count| count.parse::<usize>().unwrap());
            return;
        }
        assert!(
            is_hopeless(body, window),
            "{}: {} {:?}",
            tale.name,
            got.text(),
            got.headers
        );
        if !got.body.is_empty() {
            assert_eq!(got.json()["error"]["code"], "context_length_exceeded");
            assert!(got.text().contains("maximum context length"));
        }
        self.hopeless += 1;
    }
}

fn is_hopeless(body: &[u8], window: u32) -> bool {
    let conversation = chat::index_body(Bytes::copy_from_slice(body)).unwrap();
    let (settings, counter) = (settings(), TokenCounter::o200k());
    let drive = GuardedSession {
        policy: make_policy(find_profile("openai").unwrap(), window, &settings),
        meter: TokenMeter::Foreign(&counter),
        counter: &counter,
        keeps: true,
    };
    let asked = conversation.max_answer_tokens().unwrap_or(0);
    let limit = u64::from(window).saturating_sub(asked);
    drive.is_hopeless(&conversation, limit)
}

async fn proxy_before(
    window: u32,
    profile: &str,
    refusal: RefusalWriter,
    tales: &[Tale],
) -> (RunningModel, RunningProxy) {
    let profile = find_profile(profile).unwrap();
    let mut model = ModelSetup::new(window).profile(profile);
    model.refusal = refusal;
    let up = model.start(|_| ModelReply::text("Well.")).await;
    let proxy = up.provider.proxy();
    let proxy = proxy.providers(|provider| provider.profile = profile);
    let proxy = proxy.set(|config| claim_windows(config, tales));
    let proxy = proxy.start().await;
    (up, proxy)
}

/// Every session through its own proxy, window and wording.
async fn check_healed(
    window: u32,
    streams: bool,
    way: (&str, RefusalWriter),
    tales: &[Tale],
) -> Tally {
    let (up, proxy) = proxy_before(window, "openai", way.1, tales).await;
    let client = proxy.client();
    let mut tally = Tally::default();
    for tale in tales {
        for body in &tale.steps {
            let body = streaming(body, streams);
            let got = client.chat(body.clone()).await;
            tally.is_answered(tale, &body, window, &got);
        }
    }
    let streams = if streams { "streamed" } else { "whole" };
    eprintln!("{window:>6} {streams:<8} {:<20} {tally:?}", way.0);
    assert!(tally.hopeless * 10 < tally.requests, "{tally:?}");
    assert!(up.overflows() > 0, "the real window was met");
    up.assert_no_faults();
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_overflow_reaches_a_client() {
    // Every step of it.
    let tales = tales(usize::MAX);
    for window in [8_192, 16_384, 32_768] {
        for streams in [false, true] {
            let tally = check_healed(window, streams, WAYS[0], &tales).await;
            assert!(tally.refits > 0);
            // The window learnt from one refusal holds for all later requests.
            assert!(tally.refits * 10 < tally.requests, "{tally:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overflow_of_any_wording_is_fitted_and_retried() {
    let tales = tales(MOST_REQUESTS);
    for way in &WAYS[1..] {
        check_healed(16_384, false, *way, &tales).await;
    }
}

/// Two sessions that are valid for every template.
fn strict_tales() -> Vec<Tale> {
    let recipe = |shape| Recipe {
        strict: true,
        ..Recipe::new(shape)
    };
    let sessions = SHAPES.iter().take(2);
    let tales = sessions.map(|&shape| {
        let session = Session::new(11, recipe(shape), ConversationSize::Bytes(200_000));
        let steps: Vec<_> = session.thinned(MOST_REQUESTS).steps().collect();
        let body: Value = serde_json::from_slice(&steps[0]).unwrap();
        Tale {
            name: format!("{shape:?}"),
            model: body["model"].as_str().unwrap_or_default().to_owned(),
            steps,
        }
    });
    tales.collect()
}

#[tokio::test]
async fn an_overflow_in_the_first_event_of_a_stream_is_retried() {
    let tales = strict_tales();
    let (up, proxy) = proxy_before(16_384, "template", refusal_in_stream, &tales).await;
    let client = proxy.client();
    let mut tally = Tally::default();
    for tale in &tales {
        for body in &tale.steps {
            let body = streaming(body, true);
            let got = client.chat(body.clone()).await;
            tally.is_answered(tale, &body, 16_384, &got);
        }
    }
    eprintln!("inside a stream: {tally:?}");
    assert!(tally.refits > 0 && up.overflows() > 0);
    up.assert_no_faults();
}

/// A long conversation, and a model that refuses all of it.
fn long_conversation() -> String {
    let text = "some words to fill the window ".repeat(4_000);
    let turns: Vec<_> = (0..8)
        .flat_map(|n| {
            [
                json!({"role": "user", "content": format!("{n} {}", &text[..20_000])}),
                json!({"role": "assistant", "content": "Well."}),
            ]
        })
        .chain([json!({"role": "user", "content": "And now?"})])
        .collect();
    json!({"model": "up/m", "messages": turns}).to_string()
}

/// The window is known, and the first request is just beyond it by the estimate: it is sent, refused without a
/// number, and cut.
#[tokio::test]
async fn a_request_that_may_be_too_long_is_sent_first() {
    let conversation = chat::index_body(long_conversation().into()).unwrap();
    let profile = find_profile("openai").unwrap();
    let tokens = guard::plan(
        &conversation,
        &make_policy(profile, 200_000, &settings()),
        &SessionKnowledge::default(),
    )
    .report
    .raw_before;
    // The reserve and the margin of the budget take 1,024 tokens and a 64th.
    let window = tokens + 1_024 + tokens / 100;
    for (accepted, asked, refits) in [(200_000, 1, false), (tokens / 2, 3, true)] {
        let mut model = ModelSetup::new(accepted).profile(profile);
        model.refusal = wordy_refusal;
        let up = model.start(|_| ModelReply::text("Well.")).await;
        let proxy = up.provider.proxy();
        let proxy = proxy.providers(|provider| provider.profile = profile);
        let proxy = proxy.set(|config| {
            claim_windows(config, &[]);
            config.guard.chars_per_token = None;
            config.guard.reserve_tokens = None;
            let model = ModelConfig {
                context_length: Some(window),
                ..ModelConfig::default()
            };
            config.models.insert("up/m".to_owned(), model);
        });
        let proxy = proxy.start().await;
        let got = proxy.chat(long_conversation()).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
        assert_eq!(actions.contains("refitted="), refits, "{actions}");
        assert_eq!(actions.contains("dropped="), refits, "{actions}");
        assert_eq!(up.count(), asked);
    }
}

#[tokio::test]
async fn an_overflow_that_cannot_be_fitted_is_context_length_exceeded() {
    let pinned = "words that must stay ".repeat(9_000);
    let body = json!({"model": "up/m", "messages": [
        {"role": "system", "content": pinned},
        {"role": "user", "content": "Hello"},
    ]});
    for (name, refusal) in WAYS {
        let (up, proxy) = proxy_before(8_192, "openai", refusal, &[]).await;
        let got = proxy.chat(body.to_string()).await;
        assert_eq!(got.status, 400, "{name}");
        assert!(up.count() <= 3, "{name}: asked {} times", up.count());
        if name == "nothing at all" {
            // The error may have had another cause.
            assert!(got.body.is_empty());
            let metrics = proxy.client().get("/metrics").await;
            for result in ["healed", "unhealed"] {
                let none =
                    format!("plimsoll_overflows_total{{provider=\"up\",result=\"{result}\"}} 0");
                assert!(metrics.text().contains(&none), "{}", metrics.text());
            }
            continue;
        }
        let error = &got.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded", "{name}");
        assert_eq!(error["type"], "invalid_request_error", "{name}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("maximum context length"),
            "{name}: {message}"
        );
    }
}

#[tokio::test]
async fn an_unguarded_request_gets_the_overflow_unchanged() {
    for wish in ["off", "dry-run"] {
        let (up, proxy) = proxy_before(8_192, "openai", wordy_refusal, &[]).await;
        let client = proxy.client();
        let mut request = client.chat_request(long_conversation());
        let headers = request.headers_mut();
        headers.insert("x-plimsoll-guard", wish.parse().unwrap());
        let got = client.send(request).await;
        assert_eq!(got.status, 400);
        assert_eq!(got.json()["error"]["code"], "invalid_request");
        assert!(got.headers.get("x-plimsoll-error").is_none());
        assert_eq!(up.count(), 1);
    }
}

#[tokio::test]
async fn an_overflow_is_fitted_once_and_the_learnt_window_is_kept() {
    let (up, proxy) = proxy_before(8_192, "openai", refuse_as_openai, &[]).await;
    let client = proxy.client();
    let got = client.chat(long_conversation()).await;
    assert_eq!(got.status, 200);
    let actions = got.headers["x-plimsoll-actions"].to_str().unwrap();
    assert!(actions.contains("refitted=1"), "{actions}");
    assert_eq!(got.headers["x-plimsoll-attempts"], "2");
    assert_eq!(got.headers["x-plimsoll-context-limit"], "8192");
    // The next one fits at the first attempt.
    let got = client.chat(long_conversation()).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.headers["x-plimsoll-attempts"], "1");
    assert_eq!(up.count(), 3);
}

#[tokio::test]
async fn a_rate_limit_is_no_overflow() {
    let limit = |_: u32, _: u64| {
        let message =
            "Rate limit reached on tokens per min (TPM): Limit 30000, Used 25000, Requested 9000.";
        refuse(429, "rate_limit_exceeded", message)
    };
    let (up, proxy) = proxy_before(8_192, "openai", limit, &[]).await;
    let got = proxy.chat(long_conversation()).await;
    assert_eq!(got.status, 429);
    assert_eq!(got.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(up.count(), 1);
}
