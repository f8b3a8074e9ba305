//! Deferred tools of Messages: what loads one stays while a call of it is sent.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::{
    config::{CutOrder, GuardConfig, profile::find_profile},
    conversation::units::{self, split_units},
    format::messages::index_body,
    guard::{self, Policy, SessionKnowledge},
    support::strict,
};

fn step(nth: usize, name: &str, content: Value) -> [Value; 2] {
    let id = format!("t{nth}");
    [
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": name, "input": {"path": format!("src/part_{nth}.rs")}}]}),
        json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content}]}),
    ]
}

fn references(names: &[&str]) -> Value {
    let list = names.iter();
    list.map(|name| json!({"type": "tool_reference", "tool_name": name}))
        .collect()
}

/// A search that the server runs, and a text behind it.
fn served(nth: usize, names: &[&str]) -> [Value; 2] {
    let id = format!("srvtoolu_{nth}");
    let found =
        json!({"type": "tool_search_tool_search_result", "tool_references": references(names)});
    [
        json!({"role": "assistant", "content": [
            {"type": "server_tool_use", "id": id, "name": "tool_search_tool_bm25", "input": {"query": "q"}},
            {"content": found, "tool_use_id": id, "type": "tool_search_tool_result"},
            {"type": "text", "text": "Found it."}]}),
        json!({"role": "user", "content": "Go on."}),
    ]
}

fn body_of(entries: &[Value]) -> Bytes {
    let deferred = ["deploy", "query"]
        .map(|name| json!({"name": name, "input_schema": {}, "defer_loading": true}));
    let tools = [
        deferred.to_vec(),
        vec![json!({"name": "read", "input_schema": {}})],
    ]
    .concat();
    json!({"model": "claude", "max_tokens": 1_000, "tools": tools, "messages": entries})
        .to_string()
        .into()
}

/// Of each unit that loads tools: its place, the tools that it is the last to load, and who calls them.
fn loaders_of(entries: &[Value]) -> Vec<(usize, usize, Vec<usize>)> {
    let units = split_units(&index_body(body_of(entries)).unwrap());
    let units = units.into_iter().enumerate();
    units
        .filter_map(|(at, unit)| unit.loader.map(|it| (at, it.newest, it.callers)))
        .collect()
}

#[test]
fn a_call_needs_the_newest_unit_before_it_that_loads_its_tool() {
    let task = || vec![json!({"role": "user", "content": "task"})];
    let mut entries = task();
    entries.extend(step(0, "search", references(&["deploy", "query", "query"])));
    entries.extend(step(1, "deploy", json!("done")));
    entries.extend(step(2, "search", references(&["deploy"])));
    entries.extend(step(3, "deploy", json!("done")));
    entries.extend(step(4, "query", json!("done")));
    assert_eq!(loaders_of(&entries), [(1, 1, vec![2, 5]), (3, 1, vec![4])]);
    let mut entries = task();
    entries.extend(served(0, &["deploy"]));
    entries.extend(step(1, "deploy", json!("done")));
    entries.extend(step(2, "read", json!("done")));
    assert_eq!(loaders_of(&entries), [(1, 1, vec![3])]);
    // Before it is loaded, and of a tool that nothing loads.
    let mut entries = task();
    entries.extend(step(0, "deploy", json!("done")));
    entries.extend(step(1, "search", references(&["query"])));
    assert_eq!(loaders_of(&entries), [(2, 1, Vec::new())]);
}

/// Every request of a session with a search early and calls of what it loads late is valid. The search goes once another
/// one loads its tool, and no call before that is sent.
#[test]
fn a_search_stays_while_a_call_of_its_tools_is_sent_and_then_goes() {
    let long = || json!("a line of the file\n".repeat(60));
    for order in [CutOrder::Worth, CutOrder::Oldest] {
        for by_server in [false, true] {
            let settings = GuardConfig {
                order,
                ..GuardConfig::counted_by_characters()
            };
            let policy = Policy::new(
                find_profile("anthropic").unwrap(),
                8_192,
                crate::config::tokens::unknown_model(),
                &settings,
            );
            let mut entries = vec![json!({"role": "user", "content": "task"})];
            entries.extend(if by_server {
                served(900, &["deploy"])
            } else {
                step(900, "search", references(&["deploy"]))
            });
            let mut knowledge = SessionKnowledge::default();
            let (mut stayed, mut went) = (0, 0);
            for nth in 0..80 {
                let name = if nth % 10 == 9 && nth < 40 {
                    "deploy"
                } else {
                    "read"
                };
                if nth == 50 {
                    entries.extend(step(901, "search", references(&["deploy"])));
                }
                entries.extend(step(nth, name, long()));
                let body = body_of(&entries);
                let conversation = index_body(body.clone()).unwrap();
                let stateless = guard::plan(&conversation, &policy, &SessionKnowledge::default());
                let plan = guard::plan(&conversation, &policy, &knowledge);
                knowledge.sent_messages = conversation.items.len();
                knowledge.memory = plan.memory.clone();
                for plan in [&plan, &stateless] {
                    let sent = plan.edits.apply(&body).to_bytes();
                    assert_eq!(
                        strict::messages::find_broken_rules(&body, &sent),
                        [],
                        "{nth}"
                    );
                }
                let sent = plan.edits.apply(&body).to_bytes();
                let sent = String::from_utf8_lossy(&sent);
                let is_called = sent.contains(r#""name":"deploy","type":"tool_use"#)
                    || sent.contains(r#""name":"deploy","input":{"path""#);
                let is_loaded = sent.contains(r#""tool_name":"deploy""#);
                assert!(is_loaded, "{nth}");
                let has_first = sent.contains("t900") || sent.contains("srvtoolu_900");
                assert!(has_first || nth >= 50, "{nth}");
                let is_folded = plan.report.folded.is_some();
                stayed += usize::from(is_folded && is_called);
                went += usize::from(!has_first);
            }
            // By its worth, a short step may stay for long.
            let may_stay = order == CutOrder::Worth;
            assert!(stayed > 0 && (went > 0 || may_stay), "{stayed} {went}");
        }
    }
}

/// Many searches that load other tools each: the newest stay, and a call keeps an older one.
#[test]
fn the_oldest_of_many_searches_go() {
    let mut entries = vec![json!({"role": "user", "content": "task"})];
    for nth in 0..40 {
        entries.extend(step(nth, "search", references(&[&format!("tool_{nth}")])));
    }
    entries.extend(step(40, "tool_3", json!("done")));
    let units = split_units(&index_body(body_of(&entries)).unwrap());
    // Unit 0 is the task; the search of `tool_3` is unit 4, its call unit 41.
    let current = |limit: usize| -> Vec<usize> {
        let removed = vec![false; units.len()];
        let none = vec![true; units.len()];
        let all = 1..units.len();
        assert!(units::is_loading(&units[4], limit, &removed));
        all.filter(|&at| units::is_loading(&units[at], limit, &none))
            .collect()
    };
    assert_eq!(current(42), (33..41).collect::<Vec<_>>());
    // By what stands before it, an earlier place has others, and what follows changes nothing.
    assert!(current(20).starts_with(&[12, 13, 14]), "{:?}", current(20));
}
