//! The client's usage where one request took several upstream.

use super::{agent_past_optimal, first_prompted, obliging_model, pair};

#[tokio::test]
async fn usage_of_tool_rounds_is_the_last_prompt_and_all_output() {
    for stream in [false, true] {
        let (proxy, up) = pair(obliging_model).await;
        let mut agent = agent_past_optimal(&proxy).set("stream", stream);
        if stream {
            agent = agent.set("stream_options", serde_json::json!({"include_usage": true}));
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
