//! A model that reads the reasoning of the running turn only tells so in each answer (Responses): that is no loss.

use serde_json::{Value, json};

use super::read_metric;
use crate::support::{
    ResponsesAgent,
    bound::{BoundApi, BoundModel},
    bound_provider::{BoundSettings, start_scripted_bound_provider},
    model_with_window,
};

const TURNS: usize = 12;

/// The reasoning of all turns does not fit into the window. Each answer names all older entries again.
#[tokio::test]
async fn reasoning_that_is_forgotten_by_rule_is_counted_once_and_weighs_nothing() {
    for asks_for_all in [false, true] {
        let settings = BoundSettings {
            seed: 0,
            api: BoundApi::Responses,
            model: BoundModel::default(),
            window: 16_000,
            proxy_calls: 0,
        };
        let think = |_: &Value, _: usize| {
            let thinking = json!({"type": "thinking", "thinking": "ponder ".repeat(900)});
            vec![thinking, json!({"type": "text", "text": "Done."})]
        };
        let (up, log) = start_scripted_bound_provider(settings, think).await;
        let proxy = up.proxy().model("*", model_with_window(16_000));
        let proxy = proxy.start().await;
        let mut agent = ResponsesAgent::new(&proxy).set("model", "up/gpt-6.1-sol");
        if asks_for_all {
            agent.fields["reasoning"] = json!({"context": "all_turns"});
        }
        let mut cut = 0;
        for turn in 0..TURNS {
            let input = agent.fields["input"].clone();
            let came = agent.step().await;
            cut += usize::from(came.answer.headers["x-plimsoll-actions"] != "none");
            let log = log.lock().unwrap();
            let forgotten = if asks_for_all { 0 } else { turn };
            assert_eq!(log.forgotten, forgotten);
            let sent = &log.exchanges.last().unwrap().0["input"];
            assert!(asks_for_all || *sent == input, "{turn}");
        }
        // What the model is asked to read weighs.
        assert_eq!(cut > 0, asks_for_all, "{cut}");
        let log = log.lock().unwrap();
        assert_eq!((log.stale, log.refused.len(), log.broken.len()), (0, 0, 0));
        let counter = r#"plimsoll_input_transformations_total{change="forgotten",provider="up",reason="turn_boundary"}"#;
        drop(log);
        if !asks_for_all {
            let counted = read_metric(&proxy, counter).await;
            assert_eq!(counted, TURNS as u32 - 1);
        }
    }
}
