//! `?window=` and `?tokenizer=`: a request for a model that the proxy does not know, as a gateway asks for it.

use serde_json::{Value, json};

use super::split_fitted;
use crate::{
    api::{ADMIN, Api, keyed},
    support::ProxyBuilder,
};

const FORMATS: [(&str, &str); 3] = [
    ("chat", "messages"),
    ("messages", "messages"),
    ("responses", "input"),
];

/// A conversation of short turns that ends with a question.
fn body(list: &str, model: &str, text: &str) -> String {
    let turns = (0..40).flat_map(|turn| {
        [
            json!({"role": "user", "content": format!("{turn}: {}", text.repeat(120))}),
            json!({"role": "assistant", "content": format!("{turn}: {}", text.repeat(120))}),
        ]
    });
    let question = json!({"role": "user", "content": "And now?"});
    let turns: Vec<Value> = turns.chain([question]).collect();
    json!({"model": model, "max_tokens": 500, list: turns}).to_string()
}

async fn fit(api: &Api, path: &str, body: String) -> (Vec<u8>, Value) {
    let got = api.post(path, body).await;
    assert_eq!(got.status, 200, "{path}: {}", got.text());
    let (request, report) = split_fitted(&got.body);
    (request.to_vec(), report)
}

#[tokio::test]
async fn a_model_that_nobody_serves_is_fitted_to_the_window_that_is_given() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    for (format, list) in FORMATS {
        let body = body(list, "our-qwen", "a few words ");
        let path = format!("fit?format={format}&window=16384&tokenizer=qwen");
        let (request, report) = fit(&api, &path, body.clone()).await;
        let tokens = &report["tokens"];
        let (before, after) = (tokens["before"].as_u64(), tokens["after"].as_u64());
        assert!(after < before && after <= report["budget_tokens"].as_u64());
        assert_eq!(tokens["before"], report["as_it_came"]["prompt"], "{format}");
        assert_eq!(tokens["after"], report["as_it_goes"]["prompt"], "{format}");
        assert_eq!(tokens["tokenizer"], "qwen");
        assert_eq!(report["provider"], Value::Null);
        assert_eq!(report["model"], "our-qwen");
        let window = json!({"tokens": 16_384, "input_limit": null, "source": "?window"});
        assert_eq!(report["window"], window);
        let sent: Value = serde_json::from_slice(&request).unwrap();
        let sent = sent[list].as_array().unwrap();
        assert_eq!(sent.last().unwrap()["content"], "And now?", "{format}");
        assert!(sent.len() < 81, "{format}");
        // What is fitted stays as it is.
        let again = String::from_utf8(request.clone()).unwrap();
        assert_eq!(fit(&api, &path, again).await.0, request, "{format}");
        let large = format!("fit?format={format}&window=1000000");
        let (request, report) = fit(&api, &large, body.clone()).await;
        assert_eq!(request, body.as_bytes(), "{format}");
        assert_eq!(report["tokens"]["before"], report["tokens"]["after"]);
        assert_eq!(report["tokens"]["tokenizer"], "unknown");
        let missing = api.post(&format!("fit?format={format}"), body).await;
        missing.is_error(404, "model_not_found");
        assert!(missing.text().contains("?window=TOKENS"), "{format}");
    }
}

#[tokio::test]
async fn texts_count_as_the_tokenizer_has_them() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    for (format, list) in FORMATS {
        let mut found = Vec::new();
        for (tokenizer, family) in [
            ("o200k", "o200k"),
            ("cl100k", "cl100k"),
            ("GPT-4", "cl100k"),
            ("claude-sonnet-5", "o200k"),
            ("gemma", "gemma"),
        ] {
            let path = format!("fit?format={format}&window=200000&tokenizer={tokenizer}");
            // The model is known, and the query wins.
            let body = body(list, "simulated/plimsoll-8k", "一些文字 ");
            let (_, report) = fit(&api, &path, body).await;
            assert_eq!(report["tokens"]["tokenizer"], family, "{tokenizer}");
            assert_eq!(report["window"]["tokens"], 200_000);
            found.push(report["tokens"]["before"].as_u64().unwrap());
        }
        let [o200k, cl100k, gpt_4, claude, gemma] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(cl100k, gpt_4);
        assert!(
            gemma < o200k && o200k < cl100k && o200k < claude,
            "{found:?}"
        );
    }
    // A request without a model, and one that cannot be followed.
    let (_, report) = fit(&api, "fit?window=9000", r#"{"messages":[]}"#.to_owned()).await;
    assert_eq!(report["model"], Value::Null);
    let odd = r#"{"model":"m","messages":7}"#;
    let (request, report) = fit(&api, "fit?window=9000&tokenizer=tekken", odd.to_owned()).await;
    assert_eq!(request, odd.as_bytes());
    let unknown = json!({"before": null, "after": null, "tokenizer": "tekken"});
    assert_eq!(report["tokens"], unknown);
}

#[tokio::test]
async fn wrong_values_are_refused_with_what_to_send() {
    let proxy = ProxyBuilder::new().start().await;
    let api = Api::new(&proxy);
    let number = "Send `window` once, as a number from 1024 to 100000000.";
    let tokenizer = "`tokenizer` must be o200k, cl100k, gemma, llama-3, llama-4, deepseek, qwen, tekken, unknown, or \
                     the name of a model that counts alike";
    for (query, code, says) in [
        ("window=", "invalid_value", number),
        ("window=0", "invalid_value", number),
        ("window=1023", "invalid_value", number),
        ("window=100000001", "invalid_value", number),
        ("window=99999999999999999999999", "invalid_value", number),
        ("window=8k", "invalid_value", number),
        ("window=-8000", "invalid_value", number),
        ("window=8000&window=9000", "invalid_value", number),
        ("window=9000&tokenizer=", "invalid_value", tokenizer),
        (
            "window=9000&tokenizer=sentencepiece",
            "invalid_value",
            tokenizer,
        ),
        ("format=chats", "invalid_value", "`format` must be chat or"),
        (
            "windows=9000",
            "unknown_parameter",
            "There are: format, window and tokenizer.",
        ),
    ] {
        for (_, list) in FORMATS {
            let got = api
                .post(&format!("fit?{query}"), body(list, "m", "a "))
                .await;
            got.is_error(400, code);
            let message = got.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.contains(says), "{query}: {message}");
        }
    }
}

#[tokio::test]
async fn a_hidden_model_is_planned_as_one_that_does_not_exist() {
    let proxy = keyed(ProxyBuilder::new()).start().await;
    let report = async |key: &str, model: &str| {
        let api = Api::keyed(&proxy, key);
        let body = body("messages", model, "a few words ");
        let (_, mut report) = fit(&api, "fit?window=16384", body).await;
        report["model"] = Value::Null;
        report
    };
    let hidden = report("sk-secret-carol", "simulated/plimsoll-8k").await;
    let missing = report("sk-secret-carol", "simulated/plimsoll-9k").await;
    assert_eq!(hidden, missing);
    let seen = report(ADMIN, "simulated/plimsoll-8k").await;
    assert_eq!(seen["provider"], "simulated");
}
