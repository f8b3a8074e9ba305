//! Calls of custom tools, shells and patches: what they ask for gets shorter in the newest step.

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::{
    conversation::Format,
    support::{plans::apply_plan, strict},
};

/// A request as it comes, and what goes out.
fn send(entries: &[Value]) -> (Bytes, Bytes) {
    let settings = GuardConfig::counted_by_characters();
    let body = json!({"model": "m", "max_output_tokens": 100, "input": entries}).to_string();
    let conversation = Format::Responses.index_body(body.into()).unwrap();
    let plan = plan(
        &conversation,
        &policy(&settings),
        &SessionKnowledge::default(),
    );
    assert!(!plan.report.over_budget, "{:?}", plan.report);
    let sent = apply_plan(&conversation, &plan);
    // A second pass over what goes out changes nothing.
    let again = Format::Responses.index_body(sent.clone()).unwrap();
    let second = super::plan(&again, &policy(&settings), &SessionKnowledge::default());
    assert!(second.edits.is_empty(), "{:?}", second.report);
    (conversation.body, sent)
}

#[test]
fn custom_shell_and_patch_calls_of_the_newest_step_get_shorter() {
    let long = format!("LONG {}", "keel mast sail rope ".repeat(3_000));
    let lines = vec!["+ a line of a patch, or a command"; 2_000];
    for (call, output) in [
        (
            json!({"type": "custom_tool_call", "name": "edit", "input": long}),
            "custom_tool_call_output",
        ),
        (
            json!({"type": "custom_tool_call", "name": "edit", "input": lines.join("\n")}),
            "custom_tool_call_output",
        ),
        (
            json!({"type": "local_shell_call", "status": "completed",
            "action": {"type": "exec", "command": ["bash", "-lc", long], "env": {}}}),
            "function_call_output",
        ),
        (
            json!({"type": "shell_call", "status": "completed", "action": {"commands": lines}}),
            "function_call_output",
        ),
        (
            json!({"type": "apply_patch_call", "status": "completed",
            "operation": {"type": "update_file", "path": "src/a.rs", "diff": lines.join("\n")}}),
            "function_call_output",
        ),
    ] {
        let mut call = call;
        call["call_id"] = json!("c");
        let output = match call["type"].as_str().unwrap() {
            "shell_call" => json!({"type": "shell_call_output", "call_id": "c", "output": [
                {"stdout": "ok", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
            "apply_patch_call" => {
                json!({"type": "apply_patch_call_output", "call_id": "c", "status": "completed"})
            }
            _ => json!({"type": output, "call_id": "c", "output": "ok"}),
        };
        let entries = [
            json!({"role": "user", "content": "TASK"}),
            call.clone(),
            output,
        ];
        let (body, sent) = send(&entries);
        assert_eq!(
            strict::responses::find_broken_rules(&body, &sent, true),
            [],
            "{call}"
        );
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let now = &sent["input"][1];
        for same in ["type", "call_id", "status", "name"] {
            assert_eq!(now[same], call[same]);
        }
        for pointer in [
            "/action/type",
            "/action/env",
            "/operation/type",
            "/operation/path",
        ] {
            assert_eq!(now.pointer(pointer), call.pointer(pointer));
        }
        let texts = ["/input", "/action/command/2", "/operation/diff"];
        let texts = texts
            .iter()
            .filter_map(|it| call.pointer(it).zip(now.pointer(it)));
        for (was, now) in texts {
            let (was, now) = (was.as_str().unwrap(), now.as_str().unwrap());
            assert!(now.len() < was.len() && now.contains(" characters truncated] ..."));
            assert!(now.starts_with(&was[..60]) && now.ends_with(&was[was.len() - 60..]));
        }
        if let Some(commands) = now.pointer("/action/commands") {
            let commands = commands.as_array().unwrap();
            assert!(commands.len() < 2_000 && commands.iter().all(Value::is_string));
        }
    }
}
