//! Cache markers that the proxy adds to what the guard sends.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{any_profile, any_window};
use crate::{
    conversation::{Conversation, edit::Rope},
    guard,
    support::{
        any_settings, generate_messages::any_messages, guard_properties::MESSAGES, parse,
        plans::make_policy, strict,
    },
};

/// The request without markers, each content as a list of blocks.
fn strip_markers(mut body: Value) -> Value {
    let strip_all = |blocks: &mut Value| {
        if let Value::String(text) = blocks {
            *blocks = json!([{"type": "text", "text": text}]);
        }
        let blocks = blocks.as_array_mut().into_iter().flatten();
        blocks
            .filter_map(Value::as_object_mut)
            .for_each(|block: &mut Map<_, _>| {
                block.remove("cache_control");
            });
    };
    for list in ["tools", "system"] {
        body.get_mut(list).map(strip_all);
    }
    for entry in body["messages"].as_array_mut().unwrap() {
        strip_all(&mut entry["content"]);
    }
    body
}

fn digests(conversation: &Conversation) -> Vec<u128> {
    conversation.items.iter().map(|item| item.digest).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn markers_leave_every_plan_valid_and_unchanged(case in any_messages(10), window in any_window(), profile in any_profile(), seed in any::<u64>()) {
        let client = MESSAGES.read(&case.without_markers().body);
        let settings = any_settings(seed);
        let policy = make_policy(profile, window, &settings);
        let plan = guard::plan(&client, &policy, &MESSAGES.make_recall(&client, seed));
        let body = plan.edits.apply(&client.body);
        let sent = body.to_bytes();
        let marked = client.add_cache_markers(&body, false).expect("places for markers").to_bytes();
        let shown = String::from_utf8_lossy(&marked);
        let found = strict::messages::find_violations(&marked);
        prop_assert_eq!(found, strict::messages::find_violations(&sent), "{}", shown);
        let [before, after] = [&sent, &marked].map(|body| strip_markers(parse::parse_value(body).unwrap()));
        prop_assert_eq!(before, after, "{}", shown);
        let marked = MESSAGES.index(marked);
        prop_assert_eq!(digests(&MESSAGES.index(sent)), digests(&marked));
        prop_assert!(marked.add_cache_markers(&Rope::from(marked.body.clone()), false).is_none(), "marked twice");
    }

    #[test]
    fn a_client_that_sets_markers_gets_none(case in any_messages(10)) {
        let client = MESSAGES.read(&case.body);
        let sets_markers = String::from_utf8_lossy(&case.body).contains("\"cache_control\"");
        let marked = client.add_cache_markers(&Rope::from(client.body.clone()), false);
        prop_assert_eq!(marked.is_none(), sets_markers);
    }
}
