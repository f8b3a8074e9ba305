//! Reasoning in chat completions: counted under all its names, and there where the model demands it.

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use super::{Api, split_fitted};
use crate::support::{ScriptedProvider, model_with_window, strict, words};

/// Twenty steps, in which `think` adds reasoning to each answer.
fn steps(think: impl Fn(&mut Value)) -> Vec<Value> {
    let mut messages = vec![json!({"role": "user", "content": "Mend the hull."})];
    for nth in 0..20 {
        let id = format!("c{nth}");
        let function = json!({"name": "look", "arguments": "{}"});
        let mut answer = json!({"role": "assistant", "content": null,
            "tool_calls": [{"id": id, "type": "function", "function": function}]});
        think(&mut answer);
        messages.push(answer);
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "Dry."}));
    }
    messages
}

#[tokio::test]
async fn reasoning_counts_the_same_under_all_names() {
    let up = ScriptedProvider::start().await;
    // As without settings.
    let proxy = up.proxy().set(|config| config.guard.chars_per_token = None);
    let proxy = proxy.start().await;
    let api = Api::new(&proxy);
    let prompt = async |think: &dyn Fn(&mut Value)| {
        let body = json!({"model": "m", "messages": steps(think)});
        let fit = api.post("fit?format=chat", body.to_string()).await;
        assert_eq!(fit.status, 200, "{}", fit.text());
        let (_, report) = split_fitted(&fit.body);
        report["as_it_came"]["prompt"].as_u64().unwrap()
    };
    let bare = prompt(&|_| {}).await;
    let text = words(750, 7);
    // What is encrypted is longer than its text, by a head and by base64.
    let sealed = "A".repeat((text.len() + 650) * 4 / 3);
    let expected = prompt(&|it| it["reasoning_content"] = text.as_str().into()).await - bare;
    assert!(expected > 10_000, "{expected}");
    let google = json!({"google": {"thought_signature": sealed}});
    let thinking = json!({"type": "thinking", "thinking": text, "signature": "EqoB"});
    for (name, value) in [
        ("reasoning", json!(text)),
        (
            "reasoning_details",
            json!([{"type": "reasoning.text", "text": text, "signature": "EqoB"}]),
        ),
        (
            "reasoning_details",
            json!([{"type": "reasoning.summary", "summary": text}]),
        ),
        (
            "reasoning_details",
            json!([{"type": "reasoning.encrypted", "data": sealed, "id": "rs_1"}]),
        ),
        ("thinking_blocks", json!([thinking])),
        (
            "thinking_blocks",
            json!([{"type": "redacted_thinking", "data": sealed}]),
        ),
        ("extra_content", google.clone()),
    ] {
        let found = prompt(&|it| it[name] = value.clone()).await - bare;
        assert!(
            found.abs_diff(expected) * 5 <= expected,
            "{name}: {found}, not {expected}: {value:.60}"
        );
    }
    let of_call = prompt(&|it| it["tool_calls"][0]["extra_content"] = google.clone()).await - bare;
    assert!(of_call.abs_diff(expected) * 5 <= expected, "{of_call}");
    // OpenRouter sends the same text under two names.
    let twice = |it: &mut Value| {
        it["reasoning"] = text.as_str().into();
        it["reasoning_details"] = json!([{"type": "reasoning.text", "text": text}]);
    };
    assert_eq!(prompt(&twice).await - bare, expected);
}

/// At Kimi, at a gateway, and at a host with a strict template, where the note in the place of a fold is an answer.
#[tokio::test]
async fn no_answer_to_kimi_k3_goes_without_its_reasoning() {
    let turns = || {
        let turn = |nth| {
            let said = json!({"role": "user", "content": words(120, nth)});
            [
                said,
                json!({"role": "assistant", "content": words(200, nth + 50)}),
            ]
        };
        let mut messages: Vec<Value> = (0..40).flat_map(turn).collect();
        messages.push(json!({"role": "user", "content": "Go on."}));
        messages
    };
    let calls = || steps(|it| it["content"] = words(300, 9).into());
    let mut own = 0;
    for profile in ["kimi", "openrouter", "template", "openai"] {
        for (model, messages) in [
            ("kimi-k3", turns()),
            ("moonshotai/kimi-k3.1-turbo", turns()),
            ("kimi-k3", calls()),
        ] {
            let up = ScriptedProvider::start().await;
            let proxy = up.proxy().model("*", model_with_window(4_096));
            let proxy = proxy.providers(|provider| {
                provider.profile = find_profile(profile).unwrap();
            });
            let proxy = proxy.start().await;
            let api = Api::new(&proxy).with("x-plimsoll-provider", "up");
            let body = json!({"model": model, "messages": messages});
            let fit = api.post("fit?format=chat", body.to_string()).await;
            assert_eq!(fit.status, 200, "{}", fit.text());
            let (request, report) = split_fitted(&fit.body);
            let actions = report["actions"].as_str().unwrap();
            assert!(actions.contains("dropped="), "{profile}: {actions}");
            let request: Value = serde_json::from_slice(request).unwrap();
            let sent = request["messages"].as_array().unwrap();
            let rules = find_profile(profile).unwrap().for_model(model);
            assert_eq!(strict::find_lacking_members(&request, rules), []);
            for answer in sent.iter().filter(|it| it["role"] == "assistant") {
                let is_same = |it: &&Value| it["content"] == answer["content"];
                own += usize::from(!messages.iter().any(|it| is_same(&it)));
            }
        }
    }
    assert!(own > 0, "no note of the proxy was an answer");
}
