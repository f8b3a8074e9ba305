//! Entries of Messages that go back as they came, whatever else is cut: an answer that lists tools or in which another model
//! took over, and a system entry without content.

use plimsoll::guard::profile::find_profile;
use serde_json::json;

use crate::support::{MessagesAgent, ModelCall, ModelReply, ModelSetup, model_with_window, strict};

const WINDOW: u32 = 8_192;
const REQUESTS: usize = 60;

#[tokio::test]
async fn entries_that_go_back_as_they_came_outlive_cuts() {
    let profile = find_profile("anthropic").unwrap();
    let model = ModelSetup::new(WINDOW).profile(profile);
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let model = model
        .start(move |_: &_| {
            let nth = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let path = json!({"path": format!("src/{nth}.rs")});
            ModelReply::calls([ModelCall::new(&format!("toolu_{nth}"), "read_file", &path)])
        })
        .await;
    let proxy = model.provider.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    });
    let proxy = proxy.model("m", model_with_window(WINDOW)).start().await;
    let mut agent = MessagesAgent::new(&proxy);
    agent.result = 300;
    let listing = json!([
        {"type": "mcp_tool_listing", "mcp_server_name": "docks", "tools": [{"name": "moor"}]},
        {"type": "text", "text": "I see what there is."}]);
    let taken_over = json!([
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_gone", "name": "read_file", "input": {"path": "gone.rs"}},
        {"type": "fallback", "from": {"model": "claude-fable-5-2"}, "to": {"model": "claude-opus-5"}},
        {"type": "text", "text": "Another model goes on."}]);
    agent.push("assistant", listing.clone());
    agent.push("user", "Go on.");
    agent.push("assistant", taken_over.clone());
    agent.push("user", "Think hard.");
    let effort = json!({"role": "system", "output_config": {"effort": "high"}});
    let messages = agent.fields["messages"].as_array_mut().unwrap();
    messages.push(effort.clone());
    let kept = [
        json!({"role": "assistant", "content": listing}),
        json!({"role": "assistant", "content": taken_over}),
        effort,
    ];
    let mut cuts = 0;
    for nth in 0..REQUESTS {
        let asked = agent.fields.to_string();
        let before = model.count();
        let generation = agent.step().await;
        cuts += usize::from(
            generation
                .action("dropped")
                .or(generation.action("cleared"))
                .is_some(),
        );
        for body in model.bodies_from(before).await {
            let sent = body.to_string();
            let broken = strict::messages::find_broken_rules(asked.as_bytes(), sent.as_bytes());
            assert_eq!(broken, [], "request {nth}");
            let messages = body["messages"].as_array().unwrap();
            for entry in &kept {
                assert!(messages.contains(entry), "request {nth} without {entry}");
            }
        }
    }
    assert!(cuts > 0);
}
