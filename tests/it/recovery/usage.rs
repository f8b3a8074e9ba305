//! The client's usage where one request took several upstream.

use http::Method;
use plimsoll::config::AddTools;
use serde_json::json;

use super::{agent_past_optimal, first_prompted, obliging_model, pair};
use crate::support::{
    DONE, FINISH, ScriptedProvider, TEXT, answer,
    answers::{WAYS, client_tool, proxy_with_profile, whole_answer},
    model_with_window, stream_of,
};

#[tokio::test]
async fn usage_of_tool_rounds_is_the_last_prompt_and_all_output() {
    for stream in [false, true] {
        let (proxy, up) = pair(obliging_model).await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        if stream {
            agent = agent.set("stream_options", json!({"include_usage": true}));
        }
        agent.step().await;
        let before = up.count();
        let generation = first_prompted(&mut agent).await;
        let tokens = up.tokens().split_off(before);
        assert_eq!(tokens.len(), 2);
        let usage = &generation.usage;
        assert_eq!(usage["prompt_tokens"], tokens[1]);
        assert_eq!(usage["completion_tokens"], 22);
        assert_eq!(usage["total_tokens"], tokens[1] + 22);
        if !stream {
            assert_eq!(
                generation.header("prompt-tokens"),
                Some(tokens[1].to_string().as_str())
            );
            let billed = generation.number("billed-tokens").unwrap();
            assert!(u64::from(billed) >= tokens[0], "{billed}");
        }
        // It is one generation of the session.
        let shown = agent.session(&generation).await;
        assert_eq!(shown["generations"], 2);
        // A plain request has its plain usage.
        let plain = agent.step().await;
        assert_eq!(plain.usage["completion_tokens"], 11);
        assert_eq!(plain.header("billed-tokens"), None);
    }
}

/// Twice the larger of two answers is kept free for the next, and not twice their sum, which the window would allow.
#[tokio::test]
async fn the_reserve_follows_one_answer_and_not_all_tool_rounds() {
    for (format, path, list, profile) in WAYS {
        let up = ScriptedProvider::start_answering(move |request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let note = [("add_reminder", json!({"content": "The port is 8443."}))];
            let made = match (body.contains("Again"), body.contains("Saved as")) {
                (true, _) => whole_answer(format, "Again.", &[], (700, 10)),
                (false, true) => whole_answer(format, "Noted.", &[], (600, 2_500)),
                (false, false) => whole_answer(format, "", &note, (500, 3_000)),
            };
            vec![answer("200 OK", "", made)]
        })
        .await;
        let proxy = proxy_with_profile(&up, profile)
            .model("m", model_with_window(65_536))
            .set(|config| {
                config.guard.reserve_tokens = None;
                config.recovery.tools = AddTools::Always;
            })
            .start()
            .await;
        let client = proxy.client();
        let mut said = vec![json!({"role": "user", "content": "Note the port."})];
        for asked in [None, Some("Again?")] {
            if let Some(asked) = asked {
                said.push(json!({"role": "assistant", "content": "Noted."}));
                said.push(json!({"role": "user", "content": asked}));
            }
            let body = json!({"model": "up/m", "max_tokens": 20_000, "store": false, "tools": [client_tool(format)],
                list: said});
            let request = client.request(Method::POST, path);
            let got = client.send_with(request, body.to_string()).await;
            assert_eq!(got.status, 200, "{format:?} {}", got.text());
            let id = got.headers["x-plimsoll-session"].to_str().unwrap();
            let shown = client.get(&format!("/plimsoll/api/sessions/{id}")).await;
            let reserve = shown.json()["made_of"]["reserve"].as_u64();
            if asked.is_some() {
                assert_eq!(reserve, Some(2 * 3_000), "{format:?}");
            }
        }
        assert_eq!(up.count_requests(), 3, "{format:?}");
    }
}

/// The proxy asks chat completions for their usage, and takes that event out, also where it cannot read it. Other formats
/// have it in events that the client reads anyway.
#[tokio::test]
async fn a_usage_that_cannot_be_read_reaches_no_client_that_did_not_ask() {
    let odd = [
        r#"{"prompt_tokens":"7","completion_tokens":-2}"#,
        r#"{"tokens":7}"#,
        r#"[7,2]"#,
        r#""seven""#,
        "7",
    ];
    for usage in odd {
        let ways = [
            (
                "/v1/chat/completions",
                "messages",
                "openai",
                format!("{TEXT}{FINISH}"),
                format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"),
                DONE.to_owned(),
            ),
            (
                "/v1/messages",
                "messages",
                "anthropic",
                String::new(),
                String::new(),
                messages_stream(usage),
            ),
            (
                "/v1/responses",
                "input",
                "openai",
                String::new(),
                String::new(),
                responses_stream(usage),
            ),
        ];
        for (path, list, profile, before, chunk, after) in ways {
            let up = ScriptedProvider::start().await;
            let proxy = proxy_with_profile(&up, profile).start().await;
            let client = proxy.client();
            for asks in [false, true] {
                up.script_next(stream_of([&before, &chunk, &after]));
                let mut body = json!({"model": "up/m", "max_tokens": 50, "stream": true,
                    list: [{"role": "user", "content": "Hello"}]});
                if asks && list == "messages" && profile == "openai" {
                    body["stream_options"] = json!({"include_usage": true});
                }
                let request = client.request(Method::POST, path);
                let got = client.send_with(request, body.to_string()).await;
                let sent = if asks {
                    format!("{before}{chunk}{after}")
                } else {
                    format!("{before}{after}")
                };
                assert_eq!(got.text(), sent, "{path} {usage}");
            }
        }
    }
}

fn messages_stream(usage: &str) -> String {
    [
        format!("event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"up/m\",\"content\":[],\"usage\":{usage}}}}}\n\n"),
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n".to_owned(),
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hi\"}}\n\n".to_owned(),
        "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n".to_owned(),
        format!("event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"end_turn\"}},\"usage\":{usage}}}\n\n"),
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n".to_owned(),
    ]
    .concat()
}

fn responses_stream(usage: &str) -> String {
    let message = r#"{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}"#;
    format!(
        "event: response.output_item.done\ndata: {{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{message}}}\n\n\
         event: response.completed\ndata: {{\"type\":\"response.completed\",\"response\":{{\"id\":\"resp_1\",\"object\":\"response\",\"status\":\"completed\",\"output\":[{message}],\"usage\":{usage}}}}}\n\n"
    )
}
