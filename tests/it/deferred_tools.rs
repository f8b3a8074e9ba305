//! Tools of Messages that a search loads: while one of their calls is sent, so is what loaded its tool.

use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll::guard::profile::find_profile;
use serde_json::json;

use crate::support::{MessagesAgent, ModelCall, ModelReply, ModelSetup, model_with_window, strict};

const WINDOW: u32 = 8_192;
const REQUESTS: usize = 120;

/// What the client's own search found, or the server's.
fn find_tool(agent: &mut MessagesAgent, nth: usize, by_server: bool) {
    let found = json!([{"type": "tool_reference", "tool_name": "deploy"}]);
    if by_server {
        let id = format!("srvtoolu_{nth}");
        agent.push("assistant", json!([
            {"type": "server_tool_use", "id": id, "name": "tool_search_tool_bm25", "input": {"query": "ship"}},
            {"type": "tool_search_tool_result", "tool_use_id": id,
                "content": {"type": "tool_search_tool_search_result", "tool_references": found}},
            {"type": "text", "text": "Found."}]));
        agent.push("user", "Use it.");
        return;
    }
    let id = format!("toolu_s{nth}");
    agent.push(
        "assistant",
        json!([{"type": "tool_use", "id": id, "name": "find_tools", "input": {"query": "ship"}}]),
    );
    agent.push(
        "user",
        json!([{"type": "tool_result", "tool_use_id": id, "content": found}]),
    );
}

#[tokio::test]
async fn what_loads_a_tool_is_sent_with_its_calls() {
    let profile = find_profile("anthropic").unwrap();
    for by_server in [false, true] {
        let setup = ModelSetup::new(WINDOW).profile(profile);
        let asked = AtomicUsize::new(0);
        let model = setup
            .start(move |_: &_| {
                let nth = asked.fetch_add(1, Ordering::Relaxed);
                // Called from time to time, and no more after two thirds of the session.
                let name = if nth % 7 == 3 && nth < 80 {
                    "deploy"
                } else {
                    "read_file"
                };
                let path = json!({"path": format!("src/{nth}.rs")});
                ModelReply::calls([ModelCall::new(&format!("toolu_{nth}"), name, &path)])
            })
            .await;
        let proxy = model.provider.proxy().providers(|provider| {
            if provider.base_url.is_some() {
                provider.profile = profile;
            }
        });
        let proxy = proxy.model("m", model_with_window(WINDOW)).start().await;
        let mut agent = MessagesAgent::new(&proxy);
        agent.result = 60;
        let deferred =
            json!({"name": "deploy", "input_schema": {"type": "object"}, "defer_loading": true});
        let search = json!({"name": "find_tools", "input_schema": {"type": "object"}});
        agent.fields["tools"]
            .as_array_mut()
            .unwrap()
            .extend([deferred, search]);
        find_tool(&mut agent, 0, by_server);
        let (mut cuts, mut cut_with_call) = (0, 0);
        for nth in 0..REQUESTS {
            let asked = agent.fields.to_string();
            let before = model.count();
            let generation = agent.step().await;
            cuts += usize::from(generation.action("dropped").is_some());
            for body in model.bodies_from(before).await {
                let sent = body.to_string();
                let broken = strict::messages::find_broken_rules(asked.as_bytes(), sent.as_bytes());
                assert_eq!(broken, [], "request {nth}");
                let messages = body["messages"].to_string();
                cut_with_call += usize::from(
                    generation.action("dropped").is_some()
                        && messages.contains(r#""name":"deploy""#),
                );
            }
        }
        assert!(
            cuts > 10 && cut_with_call > 0,
            "{cuts} cuts, {cut_with_call} with a call"
        );
        model.assert_no_faults();
    }
}
