//! Tools that came as an entry beside a prompt.

use serde_json::{Value, json};

use crate::{
    config::profile::{Profile, find_profile},
    conversation::Format,
    guard::{
        self,
        fold::memory::SessionKnowledge,
        inject::injections::{
            InjectedTools, InjectionContent, InjectionRecord, Injections, ToolSet,
        },
        plan::report::Plan,
    },
    support::{
        guard_properties::settings,
        plans::{apply_plan, make_policy},
        strict,
    },
};

const SCHEMAS: &str =
    r#"{"name":"add_reminder","input_schema":{}},{"name":"recall","input_schema":{}}"#;

/// What goes out to a model, with a prompt and its tools behind so many messages.
fn send(format: Format, provider: &str, model: &str, body: &Value, place: u32) -> (Value, Plan) {
    let profile = find_profile(provider).unwrap().for_model(model);
    send_to(profile, format, body, place)
}

fn send_to(profile: &Profile, format: Format, body: &Value, place: u32) -> (Value, Plan) {
    let conversation = format.index_body(body.to_string().into()).unwrap();
    let set = ToolSet::All;
    let record = |what| InjectionRecord { place, what };
    let tools = InjectionContent::Tools {
        set,
        json: SCHEMAS.into(),
    };
    let knowledge = SessionKnowledge {
        injections: Injections {
            records: vec![
                record(InjectionContent::Prompt("Write it down.".into())),
                record(tools),
            ],
            tools: Some(InjectedTools::new("tools", SCHEMAS.into(), set)),
            ..Injections::default()
        },
        ..SessionKnowledge::default()
    };
    let settings = settings();
    let plan = guard::plan(
        &conversation,
        &make_policy(profile, 64_000, &settings),
        &knowledge,
    );
    assert_eq!((plan.report.stood_back, plan.report.tools), (None, set));
    let sent = apply_plan(&conversation, &plan);
    let broken = match format {
        Format::Messages => strict::messages::find_violations(&sent),
        _ => strict::responses::find_violations(&sent),
    };
    assert_eq!(broken, []);
    (serde_json::from_slice(&sent).unwrap(), plan)
}

fn messages() -> Value {
    json!({"tools": [{"name": "read"}], "messages": [{"role": "user", "content": "u"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "r"}]},
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "Done."}, {"role": "user", "content": "On."}]})
}

fn responses() -> Value {
    json!({"store": false, "tools": [{"type": "function", "name": "read"}], "input": [
        {"role": "user", "content": "u"},
        {"type": "function_call", "call_id": "a", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "r"},
        {"role": "assistant", "content": "Done."}, {"role": "user", "content": "On."}]})
}

#[test]
fn they_stand_beside_the_prompt_where_model_and_provider_take_such_an_entry() {
    let client = messages();
    let (sent, plan) = send(Format::Messages, "anthropic", "claude-opus-5-5", &client, 3);
    assert!(plan.report.has_tools_entry);
    assert_eq!(sent["tools"], client["tools"]);
    let added = |tool: &str| {
        let definition = json!({"name": tool, "input_schema": {}});
        json!({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": definition}})
    };
    let expected = json!([{"role": "system", "content": "Write it down."},
        {"role": "system", "content": [added("add_reminder"), added("recall")]}]);
    assert_eq!(
        sent["messages"].as_array().unwrap()[3..5],
        *expected.as_array().unwrap()
    );

    let client = responses();
    for (place, at) in [(3, 4), (5, 6)] {
        let (sent, plan) = send(Format::Responses, "openai", "gpt-6.2-sol", &client, place);
        assert!(plan.report.has_tools_entry);
        assert_eq!(sent["tools"], client["tools"]);
        let entry = &sent["input"][at];
        let tools: Value = serde_json::from_str(&format!("[{SCHEMAS}]")).unwrap();
        assert_eq!(
            *entry,
            json!({"type": "additional_tools", "role": "developer", "tools": tools})
        );
        assert!(sent["input"][at - 1].to_string().contains("Write it down."));
    }
}

#[test]
fn elsewhere_the_list_has_them() {
    let (messages, responses) = (messages(), responses());
    for (format, provider, model, client) in [
        // Older models read reasoning whatever was changed.
        (Format::Messages, "anthropic", "claude-opus-5", &messages),
        (Format::Messages, "template", "claude-opus-5-5", &messages),
        (Format::Responses, "openai", "gpt-6.1-sol", &responses),
        (Format::Responses, "azure", "gpt-6.2-sol", &responses),
        (Format::Responses, "anthropic", "gpt-6.2-sol", &responses),
    ] {
        let (sent, plan) = send(format, provider, model, client, 3);
        assert!(!plan.report.has_tools_entry);
        assert_eq!(
            sent["tools"].as_array().unwrap().len(),
            3,
            "{provider} {model}"
        );
        assert_eq!(sent.to_string().matches("add_reminder").count(), 1);
    }
    // No answer follows here: a system entry cannot stand.
    let (sent, _) = send(
        Format::Messages,
        "anthropic",
        "claude-opus-5-5",
        &json!({
        "tools": [{"name": "read"}],
        "messages": [{"role": "user", "content": "u"}, {"role": "user", "content": "v"}]}),
        1,
    );
    assert_eq!(sent["tools"].as_array().unwrap().len(), 3);
}

#[test]
fn they_weigh_the_same_wherever_they_stand() {
    let profile = find_profile("anthropic").unwrap();
    let profile = profile.for_model("claude-opus-5-5");
    let weigh = |profile: &Profile| {
        let (_, plan) = send_to(profile, Format::Messages, &messages(), 3);
        let report = plan.report;
        (report.has_tools_entry, i64::from(report.raw_after))
    };
    let (in_entry, in_list) = (weigh(profile), weigh(profile.without_user_after_tool()));
    assert!(in_entry.0 && !in_list.0);
    // The prompt is another kind of message here.
    assert!(
        (in_entry.1 - in_list.1).abs() < 40,
        "{in_entry:?} {in_list:?}"
    );
}
