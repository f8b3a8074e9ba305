//! What the dry run says of windows that are not known.

use super::*;

#[tokio::test]
async fn the_dry_run_says_that_an_assumed_window_cuts_nothing() {
    let up = ScriptedProvider::start().await;
    let proxy = up.proxy().start().await;
    let mut talk = Talk::new("nobody-knows-me");
    for _ in 0..40 {
        talk.grow();
    }
    let fit = async |proxy: &RunningProxy, body: String| {
        let client = proxy.client();
        let request = client.request(Method::POST, "/plimsoll/api/fit");
        let got = client.send_with(request, body).await;
        assert_eq!(got.status, 200, "{}", got.text());
        got.json()["report"].clone()
    };
    let report = fit(&proxy, talk.body()).await;
    assert_eq!(
        report["window"],
        json!({"tokens": 96_000, "input_limit": null, "source": "assumed"})
    );
    assert_eq!(report["budget_tokens"], Value::Null);
    let why = report["uncut_because"].as_str().unwrap();
    assert!(
        why.contains("only guessed") && why.contains("refuses"),
        "{why}"
    );
    assert_eq!(report["actions"], "none");
    assert_eq!(report["as_it_goes"]["over"], 0);
    assert!(
        report["next"]["cleared"]["tokens"].as_u64() > Some(1_000),
        "{report}"
    );
    // Where the front is dropped in silence, it is cut.
    let proxy = up.proxy().providers(|provider| {
        provider.profile = find_profile("ollama").unwrap();
    });
    let report = fit(&proxy.start().await, talk.body()).await;
    assert!(report["budget_tokens"].as_u64() < Some(96_000));
    assert_eq!(report["uncut_because"], Value::Null);
    assert_ne!(report["actions"], "none");
    assert_eq!(up.count_requests(), 0);
}

/// Without any setting of a model, and without a network.
#[tokio::test]
async fn the_dry_run_knows_the_windows_of_the_models_of_today() {
    let up = ScriptedProvider::start().await;
    let providers = [
        "amazon-bedrock",
        "anthropic",
        "azure",
        "deepseek",
        "gemini",
        "google-vertex",
        "mistral",
        "moonshot",
        "openai",
        "openrouter",
        "xai",
        "zai",
    ];
    let builder = providers.iter().fold(ProxyBuilder::new(), |builder, name| {
        builder.provider(name, &up)
    });
    let proxy = builder.start().await;
    let client = proxy.client();
    let openai = [
        "gpt-5.6-sol",
        "gpt-5.6-terra",
        "gpt-5.6-luna",
        "gpt-6-astra",
        "gpt-6-sol",
        "gpt-6-luna",
        "gpt-6.1-sol",
        "gpt-6.1-terra",
        "gpt-6.2-astra",
        "gpt-6.2-sol",
    ];
    let openai = openai.map(|model| (format!("openai/{model}"), 1_050_000, "catalogue"));
    let claude = [
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-fable-5-1",
    ];
    let claude = claude.iter().flat_map(|model| {
        [
            format!("anthropic/{model}"),
            format!("google-vertex/{model}"),
            format!("amazon-bedrock/us.anthropic.{model}"),
            format!("azure/{model}"),
        ]
        .map(|model| (model, 1_000_000, "catalogue"))
    });
    let others = [
        (
            "openrouter/anthropic/claude-opus-5.5",
            1_000_000,
            "catalogue",
        ),
        ("openrouter/openai/gpt-6.2-sol", 1_050_000, "catalogue"),
        ("azure/gpt-6.1-sol", 1_050_000, "catalogue"),
        ("moonshot/kimi-k3", 1_048_576, "catalogue"),
        ("zai/glm-5.3", 1_000_000, "catalogue"),
        ("gemini/gemini-3.8-flash", 1_048_576, "catalogue"),
        ("gemini/gemini-4-argon", 1_048_576, "catalogue"),
        ("xai/grok-4.5", 500_000, "catalogue"),
        ("xai/grok-4.6", 500_000, "catalogue"),
        ("xai/grok-4.7", 500_000, "catalogue"),
        ("deepseek/deepseek-v4-pro", 1_000_000, "catalogue"),
        ("anthropic/claude-opus-5-7", 1_000_000, "family"),
        ("openai/gpt-6.4-sol", 1_050_000, "family"),
        ("gemini/gemini-4.1-pro", 1_048_576, "family"),
        ("zai/glm-5.4", 1_000_000, "family"),
        ("moonshot/kimi-k3.1", 1_048_576, "family"),
        ("xai/grok-4.8", 500_000, "family"),
        ("openai/gpt-6.4-sol-mini", 96_000, "assumed"),
        ("mistral/mistral-large-2512", 262_144, "catalogue"),
        ("mistral/mistral-large-2601", 96_000, "assumed"),
        ("mistral/mistral-large-2613", 96_000, "assumed"),
        ("moonshot/kimi-k2-1101", 96_000, "assumed"),
        ("moonshot/kimi-k2-1345", 96_000, "assumed"),
        ("openrouter/moonshotai/kimi-k2-1101", 131_072, "catalogue"),
    ];
    let others = others.map(|(model, tokens, source)| (model.to_owned(), tokens, source));
    for (model, tokens, source) in openai.into_iter().chain(claude).chain(others) {
        let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        let request = client.request(Method::POST, "/plimsoll/api/fit");
        let got = client.send_with(request, body.to_string()).await;
        let report = &got.json()["report"];
        assert_eq!(report["window"]["tokens"], tokens, "{model}: {report}");
        assert_eq!(report["window"]["source"], source, "{model}");
    }
    assert_eq!(up.count_requests(), 0);
}
