//! The fields of a request beside its items.

use super::*;

#[test]
fn fields_of_a_request_are_read() {
    let read = |members: Value| {
        let mut body = json!({"model": "m", "input": [user("u")]});
        let members = members.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(members);
        index(&body)
    };
    let managed = |members| read(members).managed_by_provider();
    assert_eq!(managed(json!({})), None);
    assert_eq!(
        managed(
            json!({"truncation": "disabled", "context_management": null, "conversation": null})
        ),
        None
    );
    for (members, name) in [
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"conversation": {"id": "conv_1"}}), "conversation"),
        (json!({"truncation": "auto"}), "truncation"),
        (
            json!({"context_management": [{"type": "compaction", "compact_threshold": 1_000}]}),
            "context_management",
        ),
        (
            json!({"input": [user("u"), {"type": "item_reference", "id": "msg_1"}]}),
            "item_reference",
        ),
        (
            json!({"input": [user("u"), {"id": "msg_1"}]}),
            "item_reference",
        ),
        (
            json!({"input": [{"type": "compaction_trigger"}, user("u")]}),
            "compaction_trigger",
        ),
    ] {
        assert_eq!(managed(members), Some(name));
    }
    let compacted = json!({"input": [{"type": "compaction", "encrypted_content": "x"}, user("u")]});
    assert_eq!(managed(compacted), None);

    let auxiliary = |members| read(members).is_auxiliary();
    assert!(auxiliary(json!({"max_output_tokens": 16})));
    assert!(!auxiliary(json!({"max_output_tokens": 65})) && !auxiliary(json!({})));
    let lite = json!({"max_output_tokens": 16, "tools": [], "input": [
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "look"}]}]},
        user("u")]});
    let found = read(lite);
    assert!(!found.is_auxiliary() && found.lists_tools() && found.names_tools());
    let tools = found
        .read_client_tools(["look", "find"].into_iter())
        .unwrap();
    assert_eq!(
        (tools.form, tools.taken),
        (ToolForm::ResponsesTools, vec!["look"])
    );
    // Of the tools that a search loaded, too.
    let loaded = json!({"tools": [{"type": "function", "name": "f"}, {"type": "tool_search"}], "input": [user("u"),
        {"type": "tool_search_call", "call_id": null, "execution": "server", "arguments": {}},
        {"type": "tool_search_output", "call_id": null, "execution": "server", "tools": [
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "find"}]}]}]});
    let taken = |body| {
        let tools = read(body).read_client_tools(["look", "find"].into_iter());
        tools.unwrap().taken
    };
    assert_eq!(taken(loaded.clone()), ["find"]);
    // Entries of other types are not read.
    let mut beside = loaded;
    let custom = json!({"type": "custom", "name": 7, "tools": "tool_search_output"});
    beside["input"].as_array_mut().unwrap().push(custom);
    assert_eq!(taken(beside), ["find"]);
    let none = |members| {
        read(members)
            .read_client_tools(std::iter::empty())
            .is_none()
    };
    assert!(none(json!({"tools": []})) && none(json!({})));
    assert!(none(
        json!({"tools": [{"type": "function", "name": "f"}], "input": "text"})
    ));

    for (choice, may) in [
        (json!(null), true),
        (json!("auto"), true),
        (json!("required"), true),
        (json!("none"), false),
        (json!({"type": "function", "name": "f"}), false),
    ] {
        assert_eq!(read(json!({"tool_choice": choice})).may_call_tools(), may);
    }
    for (text, plain) in [
        (json!({"verbosity": "low"}), true),
        (json!({"format": {"type": "text"}}), true),
        (json!({"format": {"type": "json_object"}}), false),
        (
            json!({"format": {"schema": {"type": "text"}, "type": "json_schema"}}),
            false,
        ),
    ] {
        assert_eq!(
            read(json!({"text": text})).takes_plain_text(),
            plain,
            "{text}"
        );
    }
    assert!(!read(json!({"input": [user("u"), answer("a")]})).takes_plain_text());
    let capped = read(
        json!({"max_output_tokens": 9_000, "tools": [1], "text": {"format": {"type": "json_object"}}}),
    );
    assert_eq!(capped.largest_answer_cap(), Some(9_000));
    assert_eq!(capped.beside_items().count(), 2);
    let mut edits = Edits::default();
    capped.lower_answer_caps(10_000, &mut edits);
    assert!(edits.is_empty());
    capped.lower_answer_caps(500, &mut edits);
    let body = edits.apply(&capped.body).to_bytes();
    assert_eq!(
        Format::Responses
            .index_body(body)
            .unwrap()
            .max_answer_tokens(),
        Some(500)
    );
}
