//! The suffix `[1m]` of a model's name: it asks for a window of 1,000,000 tokens. The provider gets the bare name, and the
//! beta where the model needs one.

use http::Method;
use plimsoll::conversation::{FORMATS, Format};
use serde_json::{Value, json};

use crate::support::{
    ClientAnswer, ProviderStep, ProxyBuilder, ReceivedRequest, RunningProxy, SECRET,
    ScriptedProvider, answer, answers::whole_answer, model_with_window,
};

const BETA: &str = "context-1m-2025-08-07";
const UNAVAILABLE: &str = "The long context beta is not yet available for this subscription.";
const EXTRA_USAGE: &str = "Extra usage is required for long context requests.";

/// A provider that answers every request, and counts tokens.
async fn start_host() -> ScriptedProvider {
    ScriptedProvider::start_answering(answer_all).await
}

fn answer_all(seen: &ReceivedRequest) -> Vec<ProviderStep> {
    if seen.line.contains("count_tokens") {
        return vec![answer("200 OK", "", r#"{"input_tokens":9}"#)];
    }
    let format = [
        ("/v1/messages", Format::Messages),
        ("/v1/responses", Format::Responses),
    ];
    let path = seen.line.split(' ').nth(1).unwrap();
    let found = format.iter().find(|(at, _)| path == *at);
    let format = found.map_or(Format::Chat, |(_, format)| *format);
    let body = whole_answer(format, "Well.", &[], (50, 3));
    vec![answer("200 OK", "", body)]
}

fn body(format: Format, model: &str, text: &str) -> String {
    let message = json!({"role": "user", "content": text});
    match format {
        Format::Messages => {
            json!({"max_tokens": 100, "messages": [message], "model": model, "seed": 1e0})
        }
        Format::Responses => json!({"input": [message], "model": model, "store": false}),
        _ => json!({"messages": [message], "model": model, "seed": 1e0}),
    }
    .to_string()
}

async fn ask(
    proxy: &RunningProxy,
    format: Format,
    model: &str,
    headers: &[(&str, &str)],
) -> ClientAnswer {
    ask_at(
        proxy,
        &format!("/v1{}", format.path()),
        format,
        model,
        headers,
    )
    .await
}

async fn ask_at(
    proxy: &RunningProxy,
    path: &str,
    format: Format,
    model: &str,
    headers: &[(&str, &str)],
) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client
        .request(Method::POST, path)
        .header("content-type", "application/json")
        .header("x-plimsoll-recovery", "off");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    client
        .send_with(request, body(format, model, "Well?"))
        .await
}

fn limit(came: &ClientAnswer) -> &str {
    assert_eq!(came.status, 200, "{}", came.text());
    let value = came.headers.get("x-plimsoll-context-limit");
    value.map_or("", |value| value.to_str().unwrap())
}

/// All values of the header.
fn betas(seen: &ReceivedRequest) -> Vec<&str> {
    let named = seen
        .headers
        .iter()
        .filter(|(name, _)| name == "anthropic-beta");
    named.map(|(_, value)| value.as_str()).collect()
}

#[tokio::test]
async fn the_provider_gets_the_bare_name_with_the_beta_where_the_model_needs_it() {
    let up = start_host().await;
    let proxy = ProxyBuilder::new()
        .provider("anthropic", &up)
        .model("anthropic/local-model", model_with_window(32_000))
        .start()
        .await;
    let both = format!("files-api-2025-04-14,{BETA}");
    let (sonnet, newer) = ("claude-sonnet-4-5-20250929", "claude-sonnet-4-6");
    for (model, sent, given, expected, window) in [
        (
            "claude-sonnet-4-5-20250929[1m]",
            sonnet,
            None,
            Some(BETA),
            "1000000",
        ),
        (
            "anthropic/claude-sonnet-4-5-20250929[1M]",
            sonnet,
            None,
            Some(BETA),
            "1000000",
        ),
        // Joined to the client's own, and never twice.
        (
            "claude-sonnet-4-5-20250929[1m]",
            sonnet,
            Some("files-api-2025-04-14"),
            Some(&*both),
            "1000000",
        ),
        (
            "claude-sonnet-4-5-20250929[1m]",
            sonnet,
            Some(&*both),
            Some(&*both),
            "1000000",
        ),
        (
            "claude-sonnet-4-5-20250929[1m]",
            sonnet,
            Some(BETA),
            Some(BETA),
            "1000000",
        ),
        ("claude-sonnet-4-5-20250929", sonnet, None, None, "200000"),
        // They have that window without it, or never.
        ("claude-sonnet-4-6[1m]", newer, None, None, "1000000"),
        (
            "claude-haiku-4-5[1m]",
            "claude-haiku-4-5",
            None,
            None,
            "200000",
        ),
        ("local-model[1m]", "local-model", None, None, "32000"),
    ] {
        let given = given.map(|given| ("anthropic-beta", given));
        let given = given.as_slice();
        let came = ask(&proxy, Format::Messages, model, given).await;
        assert_eq!(limit(&came), window, "{model}");
        let seen = up.last_request();
        let bare = body(Format::Messages, sent, "Well?");
        assert_eq!(String::from_utf8_lossy(&seen.body), bare, "{model}");
        assert_eq!(betas(&seen), expected.as_slice(), "{model} {given:?}");
        let counted = ask_at(
            &proxy,
            "/v1/messages/count_tokens",
            Format::Messages,
            model,
            given,
        );
        assert_eq!(counted.await.status, 200, "{model}");
        let seen = up.last_request();
        assert_eq!(String::from_utf8_lossy(&seen.body), bare, "{model}");
        assert_eq!(betas(&seen), expected.as_slice(), "{model} {given:?}");
    }
}

/// The header is one of Messages: other formats have the window of the bare name.
#[tokio::test]
async fn other_formats_send_the_bare_name_alone() {
    let up = start_host().await;
    let proxy = ProxyBuilder::new().provider("anthropic", &up).start().await;
    for format in [Format::Chat, Format::Responses] {
        for (model, window) in [
            ("claude-sonnet-4-5", "200000"),
            ("claude-opus-5-5", "1000000"),
        ] {
            let came = ask(&proxy, format, &format!("{model}[1m]"), &[]).await;
            assert_eq!(limit(&came), window, "{format:?} {model}");
            let seen = up.last_request();
            assert_eq!(
                String::from_utf8_lossy(&seen.body),
                body(format, model, "Well?")
            );
            assert_eq!(betas(&seen), Vec::<&str>::new());
        }
    }
}

#[tokio::test]
async fn a_name_of_the_settings_with_the_suffix_is_a_name() {
    let up = start_host().await;
    let proxy = up
        .proxy()
        .model("up/set[1m]", model_with_window(40_000))
        .set(|config| {
            let aliases = [
                ("short[1m]", "up/m"),
                ("sonnet", "up/claude-sonnet-4-5"),
                ("named", "up/named[1m]"),
            ];
            let aliases = aliases.map(|(name, to)| (name.to_owned(), to.to_owned()));
            config.aliases.extend(aliases);
            let provider = config.providers.get_mut("up").unwrap();
            provider.models.push("own[1m]".to_owned());
        })
        .start()
        .await;
    for (model, sent, beta) in [
        ("up/set[1m]", "set[1m]", false),
        ("own[1m]", "own[1m]", false),
        ("short[1m]", "m", false),
        ("up/other[1m]", "other", false),
        ("named", "named[1m]", false),
        ("up/named[1m]", "named[1m]", false),
        ("sonnet", "claude-sonnet-4-5", false),
        ("sonnet[1m]", "claude-sonnet-4-5", true),
    ] {
        for format in FORMATS {
            let came = ask(&proxy, format, model, &[]).await;
            assert_eq!(came.status, 200, "{}", came.text());
            let seen = up.last_request();
            let got: Value = serde_json::from_slice(&seen.body).unwrap();
            assert_eq!(got["model"], sent, "{model}");
            let has_beta = beta && format == Format::Messages;
            let expected: &[&str] = if has_beta { &[BETA] } else { &[] };
            assert_eq!(betas(&seen), expected, "{model}");
        }
    }
}

/// A key that allows a name allows it with the suffix, and nothing more.
#[tokio::test]
async fn the_suffix_opens_no_other_model() {
    let up = start_host().await;
    let key = format!("{SECRET}-theirs");
    let proxy = up
        .proxy()
        .client("alice", &key, &["up/claude-haiku-4-5", "sonnet", "up/set"])
        .model("up/set[1m]", model_with_window(40_000))
        .set(|config| {
            let sonnet = ("sonnet".to_owned(), "up/claude-sonnet-4-5".to_owned());
            config.aliases.extend([sonnet]);
        })
        .start()
        .await;
    for (model, status) in [
        ("up/claude-haiku-4-5[1m]", 200),
        ("sonnet[1m]", 200),
        ("up/claude-sonnet-4-5[1m]", 404),
        ("up/claude-opus-5-5[1m]", 404),
        ("up/set[1m]", 404),
    ] {
        let headers = [("x-api-key", &*key)];
        for path in ["/v1/chat/completions", "/v1/embeddings"] {
            let came = ask_at(&proxy, path, Format::Chat, model, &headers).await;
            assert_eq!(came.status, status, "{path} {model}: {}", came.text());
        }
    }
}

/// The request goes out without the beta then, and later ones of the account at once.
#[tokio::test]
async fn a_refused_beta_leaves_the_plain_window_to_its_account() {
    for (status, words) in [
        ("400 Bad Request", UNAVAILABLE),
        ("429 Too Many Requests", EXTRA_USAGE),
    ] {
        let up = ScriptedProvider::start_answering(move |seen| {
            let is_poor = seen.header("x-api-key") == Some("sk-poor-account");
            if is_poor && betas(seen).iter().any(|it| it.contains(BETA)) {
                let error = json!({"type": "invalid_request_error", "message": words});
                let error = json!({"type": "error", "error": error});
                return vec![answer(status, "", error.to_string())];
            }
            answer_all(seen)
        });
        let up = up.await;
        let proxy = ProxyBuilder::new().provider("anthropic", &up).start().await;
        let model = "claude-sonnet-4-5[1m]";
        let own = ("anthropic-beta", "files-api-2025-04-14");
        for count in [2, 3] {
            let headers = [("x-api-key", "sk-poor-account"), own];
            let came = ask(&proxy, Format::Messages, model, &headers).await;
            assert_eq!(limit(&came), "200000", "{words}");
            assert_eq!(up.count_requests(), count, "{words}");
            assert_eq!(betas(&up.last_request()), ["files-api-2025-04-14"]);
        }
        let headers = [("x-api-key", "sk-rich-account"), own];
        let came = ask(&proxy, Format::Messages, model, &headers).await;
        assert_eq!(limit(&came), "1000000", "{words}");
        let both = format!("files-api-2025-04-14,{BETA}");
        assert_eq!(betas(&up.last_request()), [&*both]);
        // Its own header is the client's to take back.
        let headers = [("x-api-key", "sk-poor-account"), ("anthropic-beta", BETA)];
        let came = ask(&proxy, Format::Messages, model, &headers).await;
        assert!(came.status.is_client_error(), "{}", came.text());
        assert!(came.text().contains(words), "{}", came.text());
    }
}
