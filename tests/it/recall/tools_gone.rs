//! A client whose tools come and go, in each format: a cut that was sent keeps its words, a new one goes by its own request.

use http::Method;
use plimsoll::{
    conversation::{FORMATS, Format},
    guard::profile::find_profile,
};
use serde_json::Value;

use super::{message_by, numbered_lines, request_of, step};
use crate::support::{
    ModelReply, ModelSetup, RunningProxy, full_body, model_with_window,
    translate_chat::translate_unmarked,
};

/// Sends a conversation in a format, with the client's tools or without any.
async fn ask(proxy: &RunningProxy, format: Format, messages: &[Value], has_tools: bool) {
    let body = request_of(messages, false).to_string();
    let body = translate_unmarked(body.as_bytes(), format);
    let mut body: Value = serde_json::from_slice(&body).unwrap();
    body["model"] = "m".into();
    if !has_tools {
        body.as_object_mut().unwrap().remove("tools");
    }
    let path = match format {
        Format::Messages => "/v1/messages",
        Format::Responses => "/v1/responses",
        _ => "/v1/chat/completions",
    };
    let client = proxy.client();
    let request = client.request(Method::POST, path);
    let request = request.header("content-type", "application/json");
    let request = request.body(full_body(body.to_string())).unwrap();
    let came = client.send(request).await;
    assert_eq!(came.status, 200, "{format:?}: {}", came.text());
}

/// The messages of a request to the provider, and the ids that they name.
fn read_sent(body: &Value) -> (&[Value], Vec<String>) {
    let list = body.get("input").unwrap_or(&body["messages"]);
    let text = list.to_string();
    let ids = text.split("recall id ").skip(1);
    let ids = ids.map(|rest| {
        rest.chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect()
    });
    (list.as_array().unwrap(), ids.collect())
}

#[tokio::test]
async fn a_cut_keeps_its_words_where_the_tools_are_gone() {
    for format in FORMATS {
        let profile = match format {
            Format::Messages => "anthropic",
            _ => "openai",
        };
        let profile = find_profile(profile).unwrap();
        let setup = ModelSetup::new(64_000).profile(profile);
        let model = setup.start(|_: &_| ModelReply::text("Done.")).await;
        let proxy = model.provider.proxy().providers(|provider| {
            if provider.base_url.is_some() {
                provider.profile = profile;
            }
        });
        let proxy = proxy.model("m", model_with_window(64_000)).start().await;
        let mut messages = vec![message_by("user", "Read all planks.")];
        for (nth, has_tools) in [true, false, false, true].into_iter().enumerate() {
            messages.extend(step(&format!("call_{nth}"), &numbered_lines(2_000)));
            ask(&proxy, format, &messages, has_tools).await;
            messages.push(message_by("assistant", "Done."));
            messages.push(message_by("user", "And the next one."));
        }
        let bodies = model.bodies().await;
        let sent: Vec<_> = bodies.iter().map(read_sent).collect();
        let named: Vec<usize> = sent.iter().map(|(_, ids)| ids.len()).collect();
        assert_eq!(named, [1, 1, 1, 2], "{format:?}");
        for pair in sent.windows(2) {
            assert!(
                pair[1].0.starts_with(pair[0].0),
                "{format:?}: the prefix stays"
            );
        }
        model.assert_no_faults();
    }
}
