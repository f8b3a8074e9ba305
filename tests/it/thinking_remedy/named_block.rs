//! A refusal that names the first block that does not fit: thinking before it stays.

use serde_json::json;

use super::{BoundHost, agent_with_thinking, host::BLOCK_HEADER, proxy_before};
use crate::support::{MessagesAgent, ReceivedRequest, RunningProxy};

fn agent(proxy: &RunningProxy) -> MessagesAgent {
    let mut agent = agent_with_thinking(proxy, "fits-1").with("x-plimsoll-session", "named");
    for signature in ["stale-2", "stale-3"] {
        let thinking = json!({"type": "thinking", "thinking": "so", "signature": signature});
        agent.push(
            "assistant",
            json!([thinking, {"type": "text", "text": "Two."}]),
        );
        agent.push("user", "Go on.");
    }
    agent
}

/// The signatures of the thinking in a request.
fn signatures(request: &ReceivedRequest) -> Vec<String> {
    let body = super::body(request);
    let entries = body["messages"].as_array().unwrap().iter();
    let blocks = entries
        .filter_map(|entry| entry["content"].as_array())
        .flatten();
    let signatures = blocks.filter_map(|block| block["signature"].as_str());
    signatures.map(str::to_owned).collect()
}

#[tokio::test]
async fn thinking_before_the_named_block_stays_for_good() {
    for takes_binding in [true, false] {
        let host = BoundHost {
            takes_binding,
            names_block: true,
            ..BoundHost::default()
        };
        let up = host.start().await;
        let proxy = proxy_before(&up).start().await;
        let mut agent = agent(&proxy);
        for step in 0..4 {
            let generation = agent.step().await;
            let left_out = generation.action("thinking-left-out");
            let is_dropped = takes_binding && step == 0;
            assert_eq!(left_out, (!is_dropped).then_some("2"), "{step}");
            if !is_dropped {
                assert_eq!(signatures(&up.last_request()), ["fits-1"], "{step}");
            }
        }
        // What the host does not take is asked for once.
        assert_eq!(up.count_requests(), if takes_binding { 5 } else { 6 });
    }
}

#[tokio::test]
async fn without_the_header_all_thinking_is_left_out_as_before() {
    let host = BoundHost {
        takes_binding: false,
        ..BoundHost::default()
    };
    let up = host.start().await;
    let proxy = proxy_before(&up).start().await;
    agent(&proxy).step().await;
    assert_eq!(signatures(&up.last_request()), Vec::<String>::new());
}

#[tokio::test]
async fn the_header_passes_to_a_client_that_gets_the_refusal() {
    let host = BoundHost {
        names_block: true,
        ..BoundHost::default()
    };
    let up = host.start().await;
    let proxy = proxy_before(&up).start().await;
    let answer = agent(&proxy).with("x-plimsoll-guard", "off").send().await;
    assert_eq!(answer.status, 400);
    let block = "block=messages.3.content.0;kind=content";
    assert_eq!(answer.headers[BLOCK_HEADER], block);
}
