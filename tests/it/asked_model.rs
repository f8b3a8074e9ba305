//! The model's name in an answer is the one that the client asked for: Claude Code takes the thinking of
//! another model for foreign, and throws it away.

use bytes::Bytes;
use http::Method;
use plimsoll::config::{Auth, ModelConfig};

use crate::support::{
    ClientAnswer, ProviderStep, RunningProxy, ScriptedProvider, answer, stream_head,
};

/// The path of a format, the rest of a request with `"model":M` in front, and a whole answer and a
/// stream that name the model `MODEL`.
const FORMATS: [(&str, &str, &str, &str); 3] = [
    (
        "/v1/chat/completions",
        r#""messages":[{"role":"user","content":"hi"}]"#,
        r#"{"id":"1", "model":"MODEL","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}"#,
        "data: {\"id\":\"1\",\"model\":\"MODEL\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n\
         data: {\"id\":\"1\",\"model\":\"MODEL\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
    ),
    (
        "/v1/messages",
        r#""max_tokens":9,"messages":[{"role":"user","content":"hi"}]"#,
        r#"{"id":"m","type":"message","role":"assistant","model":"MODEL","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}}"#,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"MODEL\",\"content\":[],\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n\
         event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n\
         event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ),
    (
        "/v1/responses",
        r#""input":"hi""#,
        r#"{"id":"r","object":"response","status":"completed","model":"MODEL","output":[{"type":"message","id":"x","role":"assistant","content":[{"type":"output_text","text":"a"}]}],"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}"#,
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"model\":\"MODEL\",\"output\":[]}}\n\n\
         event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"output_index\":0,\"delta\":\"a\"}\n\n\
         event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":2,\"response\":{\"id\":\"r\",\"status\":\"completed\",\"model\":\"MODEL\",\"output\":[{\"type\":\"message\",\"id\":\"x\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"a\"}]}]}}\n\n",
    ),
];

async fn proxy(up: &ScriptedProvider, other: &ScriptedProvider) -> RunningProxy {
    let proxy = up.proxy().provider("other", other).set(|config| {
        config.default_provider = Some("up".into());
        config.aliases.insert("opus".into(), "up/sent".into());
        let settings = ModelConfig {
            provider: Some("up".into()),
            fallback: vec!["other/second".into()],
            ..ModelConfig::default()
        };
        config.models.insert("first".into(), settings);
    });
    // The client's own credentials would be for one of the two alone.
    let proxy = proxy.providers(|provider| provider.auth = Auth::None);
    proxy.start().await
}

/// Asks for a model, with these headers.
async fn ask(
    proxy: &RunningProxy,
    path: &str,
    body: String,
    headers: &[(&str, &str)],
) -> ClientAnswer {
    let client = proxy.client();
    let mut request = client.request(Method::POST, path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.header("content-type", "application/json");
    client.send_with(request, body).await
}

/// The steps of an answer, a byte in each write where it is streamed.
fn steps(stream: Option<&str>, whole: &str) -> Vec<ProviderStep> {
    match stream {
        Some(events) => vec![
            stream_head(),
            ProviderStep::Drip(events.into()),
            ProviderStep::Close,
        ],
        None => vec![answer("200 OK", "", whole)],
    }
}

/// What the index does not read: a conversation that the provider holds, and keys whose meaning parsers do not agree on.
#[tokio::test]
async fn a_body_that_cannot_be_followed_goes_out_with_the_name_of_the_model() {
    let (up, other) = (
        ScriptedProvider::start().await,
        ScriptedProvider::start().await,
    );
    let proxy = proxy(&up, &other).await;
    let [chat, _, responses] = FORMATS;
    let messages = r#""messages":[{"role":"user","content":"hi"}]"#;
    for ((path, _, whole, _), rest) in [
        (responses, r#""previous_response_id":"resp_0""#.to_owned()),
        (responses, r#""prompt":{"id":"pmpt_1"}"#.to_owned()),
        (chat, format!(r#""seed":1,"seed":2,{messages}"#)),
        (chat, format!(r#""se\u0065d":1,{messages}"#)),
    ] {
        up.script_next([answer("200 OK", "", whole.replace("MODEL", "sent"))]);
        let body = |model: &str| format!(r#"{{"model": "{model}",{rest}}}"#);
        let got = ask(&proxy, path, body("opus"), &[]).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let sent = up.last_request().body;
        assert_eq!(String::from_utf8_lossy(&sent), body("sent"));
        assert_eq!(got.text(), whole.replace("MODEL", "opus"));
        // At a fallback too.
        up.script_next([answer("500 No", "", "{}")]);
        other.script_next([answer("200 OK", "", whole.replace("MODEL", "second"))]);
        let got = ask(&proxy, path, body("first"), &[]).await;
        let sent = other.last_request().body;
        assert_eq!(String::from_utf8_lossy(&sent), body("second"));
        assert_eq!(got.text(), whole.replace("MODEL", "first"));
    }
}

#[tokio::test]
async fn an_answer_names_the_model_as_the_client_did() {
    let (up, other) = (
        ScriptedProvider::start().await,
        ScriptedProvider::start().await,
    );
    let proxy = proxy(&up, &other).await;
    for (path, rest, whole, events) in FORMATS {
        for streamed in [false, true] {
            let name = |text: &str, model: &str| text.replace("MODEL", model);
            // The names that the client asks for, that the provider answers with, and that the client gets.
            for (asked, answered, got, headers) in [
                ("opus", "sent-20260921", "opus", &[][..]),
                ("up/sent", "sent", "up/sent", &[]),
                ("up\\/sent", "sent", "up\\/sent", &[]),
                ("up/sent", "sent", "up/sent", &[("x-plimsoll-guard", "off")]),
                // The proxy changed nothing: the provider's own name stays.
                ("sent", "sent-20260921", "sent-20260921", &[]),
                ("sent", "sent", "sent", &[]),
            ] {
                let stream = name(events, answered);
                let stream = streamed.then_some(&*stream);
                up.script_next(steps(stream, &name(whole, answered)));
                let body = format!(r#"{{"model":"{asked}","stream":{streamed},{rest}}}"#);
                let answer = ask(&proxy, path, body, headers).await;
                let expected = name(if streamed { events } else { whole }, got);
                assert_eq!(answer.text(), expected, "{path} {asked}");
                assert!(answer.whole);
            }
            // A fallback answers under the name of the model that was asked for.
            up.script_next([answer("503 Service Unavailable", "", "{}")]);
            let stream = name(events, "second");
            let stream = streamed.then_some(&*stream);
            other.script_next(steps(stream, &name(whole, "second")));
            let body = format!(r#"{{"model":"first","stream":{streamed},{rest}}}"#);
            let answer = ask(&proxy, path, body, &[]).await;
            let expected = name(if streamed { events } else { whole }, "first");
            assert_eq!(answer.text(), expected, "{path}");
        }
    }
}

#[tokio::test]
async fn an_error_and_an_answer_without_a_name_pass_as_they_came() {
    let (up, other) = (
        ScriptedProvider::start().await,
        ScriptedProvider::start().await,
    );
    let proxy = proxy(&up, &other).await;
    let (path, rest, ..) = FORMATS[1];
    for (status, body) in [
        (
            "400 Bad Request",
            r#"{"type":"error", "model":"sent","error":{"message":"sent"}}"#,
        ),
        (
            "200 OK",
            r#"{ "type":"message","role":"assistant","model":null,"content":[]}"#,
        ),
        ("200 OK", r#"{"model":"sent","content":[NaN]}"#),
    ] {
        up.script_next([answer(status, "", body)]);
        let asked = format!(r#"{{"model":"opus",{rest}}}"#);
        let got = ask(&proxy, path, asked, &[]).await;
        assert_eq!(got.body, Bytes::from(body));
    }
}
