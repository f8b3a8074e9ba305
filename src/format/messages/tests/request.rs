//! The fields of a request beside its items.

use serde_json::json;

use super::{RESULTS, STEP, TASK, applied, request};
use crate::format::{AnswerLimit, ToolForm};

#[test]
fn fields_beside_the_items_are_read() {
    let with = |members: &str| request(&[TASK], members);
    let plain = with(r#","max_tokens":800"#);
    assert_eq!(
        (plain.max_answer_tokens(), plain.largest_answer_cap()),
        (Some(800), Some(800))
    );
    assert!(plain.takes_plain_text() && plain.may_call_tools() && !plain.is_auxiliary());
    assert_eq!(plain.include_usage(), Some(true));
    let lowered = applied(&plain, |edits| plain.lower_answer_caps(90, edits));
    assert_eq!(lowered["max_tokens"], 90);
    let thinks = with(r#","thinking":{"type":"enabled","budget_tokens":4000}"#);
    assert_eq!(thinks.thinking_budget(), Some(4_000));
    assert_eq!(
        with(r#","thinking":{"type":"adaptive"}"#).thinking_budget(),
        None
    );
    for (members, auxiliary) in [
        (r#","max_tokens":1"#, true),
        (r#","max_tokens":0,"tools":[{"name":"f"}]"#, true),
        (r#","max_tokens":32"#, true),
        (r#","max_tokens":32,"tools":[{"name":"f"}]"#, false),
        ("", false),
    ] {
        assert_eq!(with(members).is_auxiliary(), auxiliary, "{members}");
    }
    for (choice, may) in [
        ("null", true),
        (r#"{"type":"auto"}"#, true),
        (r#"{"type":"any"}"#, true),
        (r#"{"type":"none"}"#, false),
        (r#"{"type":"tool","name":"f"}"#, false),
        ("1", false),
    ] {
        assert_eq!(
            with(&format!(r#","tool_choice":{choice}"#)).may_call_tools(),
            may
        );
    }
    let formatted =
        with(r#","output_config":{"effort":"low","format":{"type":"json_schema"}},"tools":[]"#);
    assert!(!formatted.takes_plain_text() && !formatted.lists_tools());
    assert_eq!(formatted.beside_items().count(), 2);
    assert!(!with(r#","stop_sequences":["x"]"#).takes_plain_text());
    assert!(with(r#","output_config":{"effort":"low"}"#).takes_plain_text());
    assert!(request(&[TASK, r#"{"role":"assistant","content":"Well,"}"#], "").begins_answer());
}

#[test]
fn the_guard_stands_back_where_the_provider_fits_the_conversation() {
    let edits = |kind: &str| {
        let members = format!(r#","context_management":{{"edits":[{{"type":"{kind}"}}]}}"#);
        request(&[TASK], &members).managed_by_provider()
    };
    assert_eq!(edits("clear_thinking_20251015"), None);
    assert_eq!(edits("compact_20260112"), Some("context_management"));
    assert_eq!(
        edits("clear_tool_uses_20250919"),
        Some("context_management")
    );
    let by_calls = r#"{"type":"clear_thinking_20251015","keep":"all"},{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":27}}"#;
    let by_tokens =
        r#"{"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":27}}"#;
    for (edits, name) in [
        (by_calls.to_owned(), None),
        (by_tokens.to_owned(), Some("context_management")),
        (
            format!("{by_calls},{by_tokens}"),
            Some("context_management"),
        ),
        (r#"7,null,{"type":[]}"#.to_owned(), None),
    ] {
        let members = format!(r#","context_management":{{"edits":[{edits}]}}"#);
        assert_eq!(request(&[TASK], &members).managed_by_provider(), name);
    }
    let thread = request(&[TASK], r#","thread":{"type":"create"}"#);
    assert_eq!(thread.managed_by_provider(), Some("thread"));
    // What the provider is to summarise is read whole.
    let summary = request(&[TASK], r#","compaction":{"type":"summarize"}"#);
    assert!(summary.managed_by_provider().is_none() && summary.asks_to_compact());
    assert!(!thread.asks_to_compact());
    let compacted = r#"{"role":"assistant","content":[{"type":"compaction","content":"s"}]}"#;
    assert_eq!(request(&[compacted, TASK], "").managed_by_provider(), None);
    assert_eq!(
        request(&[TASK, STEP, RESULTS], "").managed_by_provider(),
        None
    );
}

#[test]
fn tools_are_read_and_added_in_their_shape() {
    let tools = r#","tools":[{"name":"recall","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search"}]"#;
    let found = request(&[TASK], tools);
    let client = found
        .read_client_tools(["recall", "clear_mind"].into_iter())
        .unwrap();
    assert_eq!(
        (client.form, &client.taken[..]),
        (ToolForm::MessagesTools, &["recall"][..])
    );
    for members in ["", r#","tools":null"#, r#","tools":[]"#, r#","tools":[1]"#] {
        assert!(
            request(&[TASK], members)
                .read_client_tools(std::iter::empty())
                .is_none()
        );
    }
}

#[test]
fn a_summary_is_asked_for_with_the_tools_that_the_calls_need() {
    let members = r#","model":"a","tools":[{"name":"f"}],"tool_choice":{"type":"any"},"stream":true,"stop_sequences":["x"],"thinking":{"type":"enabled","budget_tokens":4000},"output_config":{"format":{}}"#;
    let found = request(&[TASK], members);
    let limit = AnswerLimit {
        tokens: 900,
        names_completion_cap: false,
    };
    let body = applied(&found, |edits| found.ask_for_text("b", limit, edits));
    let expected = json!({"messages": [{"role": "user", "content": "Do it."}], "model": "b",
        "tools": [{"name": "f"}], "tool_choice": {"type": "none"}, "stream": false, "max_tokens": 900});
    assert_eq!(body, expected);
}
