//! A provider that refuses thinking for what was changed before it: the request is sent again as it accepts it, the
//! session remembers that, and the client is told.

mod answer_shape;
mod forgotten;
mod host;
mod in_messages;
mod left_out;
mod named_block;
mod refused;

use plimsoll::guard::profile::find_profile;
use serde_json::{Value, json};

use self::host::BoundHost;
use crate::support::{MessagesAgent, ProxyBuilder, ReceivedRequest, ScriptedProvider};

const BETA: &str = "thinking-binding-controls-2026-08-01";

/// A proxy before a provider with Anthropic's profile.
fn proxy_before(up: &ScriptedProvider) -> ProxyBuilder {
    let profile = find_profile("anthropic").unwrap();
    up.proxy().providers(|provider| {
        if provider.base_url.is_some() {
            provider.profile = profile;
        }
    })
}

/// An agent whose conversation has a block of thinking with this signature.
fn agent_with_thinking(
    proxy: impl Into<crate::support::TestClient>,
    signature: &str,
) -> MessagesAgent {
    let mut agent = MessagesAgent::new(proxy);
    let thinking = json!({"type": "thinking", "thinking": "so", "signature": signature});
    agent.push(
        "assistant",
        json!([thinking, {"type": "text", "text": "One leak."}]),
    );
    agent.push("user", "Go on.");
    agent
}

fn body(request: &ReceivedRequest) -> Value {
    serde_json::from_slice(&request.body).unwrap()
}

/// The wish that thinking be dropped, where both its parts are there.
fn drop_wish(request: &ReceivedRequest) -> Option<Value> {
    let betas = request.header("anthropic-beta").unwrap_or_default();
    let has_beta = betas.split(',').any(|beta| beta == BETA);
    let binding = body(request)["thinking"]["block_binding"].clone();
    assert_eq!(
        has_beta,
        !binding.is_null(),
        "header and member go together"
    );
    has_beta.then_some(binding)
}

/// A series of `/metrics` by its full name with labels.
async fn read_metric(proxy: &crate::support::RunningProxy, name: &str) -> u32 {
    let metrics = proxy.client().get("/metrics").await;
    let mut lines = metrics.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
}
