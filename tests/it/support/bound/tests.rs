//! Each row of what the APIs document, with changes that they accept and that they do not.

mod accounts;
mod gateways;
mod reference_guard;
mod responses;
mod summaries;

use serde_json::{Value, json};

use super::{BoundApi, BoundModel, Verdict, to_events, to_history};

const MISSING: &str =
    "The `thinking` block that preceded this one when it was created is missing from this request.";

/// A conversation as a client keeps it.
#[derive(Clone)]
struct Talk {
    model: BoundModel,
    api: BoundApi,
    body: Value,
    betas: &'static str,
    calls: usize,
}

impl Talk {
    fn new(name: &str) -> Self {
        let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
        let body = json!({"model": name, "max_tokens": 100, "system": "You help.",
            "tools": [tool("read"), tool("write")], "messages": [{"role": "user", "content": "Begin."}]});
        Self {
            model: BoundModel::default(),
            api: BoundApi::Messages,
            body,
            betas: "",
            calls: 0,
        }
    }

    /// Three steps of two thinking blocks each: answers 1, 3 and 5.
    fn of_steps(name: &str) -> Self {
        let mut talk = Self::new(name);
        (0..3).for_each(|_| talk.step());
        talk
    }

    fn judge(&self) -> Verdict {
        self.model
            .judge(self.api, self.body.to_string().as_bytes(), self.betas)
    }

    #[track_caller]
    fn ask(&mut self, blocks: &[Value]) -> Value {
        let verdict = self.judge();
        assert_eq!(verdict.refusal, None, "{:?}", verdict.failing);
        let answer = self.model.answer(self.api, &verdict, blocks);
        let list = if self.api == BoundApi::Responses {
            "input"
        } else {
            "messages"
        };
        self.body[list]
            .as_array_mut()
            .unwrap()
            .extend(to_history(self.api, &answer));
        answer
    }

    /// Thinks, says something, thinks again, calls a tool, and gets its result.
    #[track_caller]
    fn step(&mut self) {
        let call = self.calls;
        self.calls += 1;
        self.ask(&[
            json!({"type": "thinking", "thinking": format!("first {call}")}),
            json!({"type": "text", "text": "Looking."}),
            json!({"type": if call == 1 { "redacted_thinking" } else { "thinking" }, "thinking": ""}),
            json!({"type": "tool_use", "id": format!("c{call}"), "name": "read", "input": {"a": 1, "b": 2}}),
        ]);
        let id = self.messages().last().unwrap()["content"][3]["id"].clone();
        self.messages().push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": format!("result {call}")}]}));
    }

    fn messages(&mut self) -> &mut Vec<Value> {
        self.body["messages"].as_array_mut().unwrap()
    }

    /// The blocks of an entry.
    fn blocks(&mut self, at: usize) -> &mut Vec<Value> {
        self.messages()[at]["content"].as_array_mut().unwrap()
    }

    /// Takes the thinking at these places out; places of one entry go from the last on.
    fn take(&mut self, places: &[(usize, usize)]) -> Vec<Value> {
        places
            .iter()
            .map(|(entry, place)| self.blocks(*entry).remove(*place))
            .collect()
    }

    #[track_caller]
    fn assert_valid(&self) {
        let verdict = self.judge();
        assert_eq!((verdict.refusal, verdict.failing), (None, Vec::new()));
        assert!(verdict.transformations.is_empty());
    }

    /// The paths of what is stale; the refusal names the first and ends in these words.
    #[track_caller]
    fn assert_stale(&self, paths: &[&str], tail: &str) {
        let verdict = self.judge();
        let found: Vec<&str> = verdict.failing.iter().map(|it| it.path.as_str()).collect();
        assert_eq!(found, paths);
        let message = verdict.message();
        let start = format!(
            "{}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\". That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header.",
            paths[0]
        );
        assert_eq!(
            message.replace("`data` in `redacted_thinking`", "`signature` in `thinking`"),
            start + tail
        );
    }
}

const ALL: [&str; 6] = [
    "messages.1.content.0",
    "messages.1.content.2",
    "messages.3.content.0",
    "messages.3.content.2",
    "messages.5.content.0",
    "messages.5.content.2",
];
const BOUND: &str = "claude-sonnet-5-5";

#[test]
fn what_is_no_part_of_the_prefix_may_change() {
    let mut talk = Talk::of_steps(BOUND);
    talk.assert_valid();
    talk.body["max_tokens"] = 7.into();
    talk.body["thinking"] = json!({"type": "between_tools"});
    talk.body["output_config"] = json!({"effort": "low"});
    talk.body["tool_choice"] = json!({"type": "none"});
    talk.body["metadata"] = json!({"user_id": "another"});
    talk.body["tools"][1]["cache_control"] = json!({"type": "ephemeral"});
    talk.blocks(2)[0]["cache_control"] = json!({"type": "ephemeral"});
    talk.assert_valid();
    let reordered = talk
        .body
        .to_string()
        .replace(r#""a":1,"b":2"#, r#""b": 2, "a":1"#);
    assert_ne!(reordered, talk.body.to_string());
    assert!(
        talk.model
            .judge(talk.api, reordered.as_bytes(), "")
            .failing
            .is_empty()
    );
    talk.messages()
        .push(json!({"role": "user", "content": "And now?"}));
    talk.step();
    talk.assert_valid();
}

#[test]
fn a_change_makes_stale_what_stands_behind_it() {
    type Change = fn(&mut Talk);
    let rows: &[(Change, &[&str], &str)] = &[
        (
            |talk| talk.body["system"] = "You help much.".into(),
            &ALL,
            " The `system` prompt differs from the one this block was created with.",
        ),
        (
            |talk| drop(talk.body["tools"].as_array_mut().unwrap().pop()),
            &ALL,
            " The `tools` differ from the ones this block was created with.",
        ),
        (
            |talk| {
                talk.body["tools"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"name": "recall"}))
            },
            &ALL,
            " The `tools` differ from the ones this block was created with.",
        ),
        (
            |talk| talk.body["tools"][0]["description"] = "Reads.".into(),
            &ALL,
            " The `tools` differ from the ones this block was created with.",
        ),
        (
            |talk| talk.messages()[0]["content"] = "Start.".into(),
            &ALL,
            " Content before this block differs from when it was created, first at `messages.0.content.0`.",
        ),
        (
            |talk| talk.blocks(2)[0]["content"] = "cleared".into(),
            &ALL[2..],
            " Content before this block differs from when it was created, first at `messages.2.content.0`.",
        ),
        (
            |talk| talk.blocks(1)[3]["input"] = json!({"a": "shortened"}),
            &ALL[2..],
            " Content before this block differs from when it was created, first at `messages.1.content.3`.",
        ),
        (
            |talk| talk.blocks(3)[1]["text"] = "Changed.".into(),
            &ALL[3..],
            " Content before this block differs from when it was created, first at `messages.3.content.1`.",
        ),
        (
            |talk| {
                talk.blocks(4)
                    .push(json!({"type": "text", "text": "By the way."}))
            },
            &ALL[4..],
            " Content before this block differs from when it was created, first at `messages.1.content.3`.",
        ),
        (
            |talk| drop(talk.messages().drain(1..3)),
            &[
                "messages.1.content.0",
                "messages.1.content.2",
                "messages.3.content.0",
                "messages.3.content.2",
            ],
            " Content before this block differs from when it was created, first at `messages.0.content.0`.",
        ),
    ];
    for (change, stale, tail) in rows {
        let mut talk = Talk::of_steps(BOUND);
        change(&mut talk);
        talk.assert_stale(stale, tail);
    }
}

#[test]
fn a_change_far_before_is_told_without_its_place() {
    let mut talk = Talk::of_steps(BOUND);
    talk.take(&[(3, 2), (3, 0), (1, 2), (1, 0)]);
    talk.messages()[0]["content"] = "Start.".into();
    talk.assert_stale(
        &ALL[4..],
        " A message older than `messages.1.content.0` differs from when this block was created.",
    );
}

#[test]
fn what_is_made_after_a_change_is_valid() {
    let mut talk = Talk::of_steps(BOUND);
    talk.blocks(2)[0]["content"] = "cleared".into();
    talk.take(&[(5, 2), (5, 0), (3, 2), (3, 0)]);
    talk.assert_valid();
    talk.step();
    talk.step();
    talk.assert_valid();
    assert_eq!(talk.judge().read.len(), 6);
}

#[test]
fn a_message_moved_or_a_system_entry_moved_or_removed_is_a_change() {
    let mut talk = Talk::of_steps(BOUND);
    let system = json!({"role": "system", "content": "Be brief."});
    talk.messages().push(system.clone());
    talk.step();
    talk.assert_valid();
    let mut moved = talk.clone();
    let entry = moved.messages().remove(7);
    moved.messages().insert(5, entry);
    assert_eq!(moved.judge().failing.len(), 4);
    talk.messages().remove(7);
    assert_eq!(talk.judge().failing.len(), 2);
}

#[test]
fn thinking_is_left_out_from_either_end_but_not_from_the_middle() {
    let mut talk = Talk::of_steps(BOUND);
    let oldest = talk.take(&[(1, 0)]);
    talk.assert_valid();
    talk.take(&[(1, 1), (3, 0)]);
    talk.assert_valid();
    talk.step();
    talk.assert_valid();
    // It was made without what is put back, and so was what came behind it.
    talk.blocks(1).insert(0, oldest[0].clone());
    let stale = [
        "messages.3.content.1",
        "messages.7.content.0",
        "messages.7.content.2",
    ];
    talk.assert_stale(&stale, &format!(" {MISSING}"));
    talk.blocks(1).remove(0);
    talk.take(&[(7, 2), (7, 0), (5, 2), (5, 0), (3, 1)]);
    talk.assert_valid();

    let mut talk = Talk::of_steps(BOUND);
    talk.take(&[(5, 2), (5, 0)]);
    talk.assert_valid();

    let mut talk = Talk::of_steps(BOUND);
    talk.take(&[(3, 0)]);
    talk.assert_stale(&["messages.3.content.1"], &format!(" {MISSING}"));
}

#[test]
fn what_was_left_out_is_not_put_back() {
    let mut talk = Talk::of_steps(BOUND);
    let before = talk.body["messages"].clone();
    talk.take(&[(1, 2), (1, 0)]);
    talk.step();
    let newest = talk.messages()[7..].to_vec();
    let mut messages = before.as_array().unwrap().clone();
    messages.extend(newest);
    talk.body["messages"] = messages.into();
    talk.assert_stale(&["messages.7.content.0", "messages.7.content.2"], "");
}

#[test]
fn a_string_is_a_block_only_where_that_is_said() {
    let mut talk = Talk::of_steps(BOUND);
    talk.messages()[0]["content"] = json!([{"type": "text", "text": "Begin."}]);
    assert_eq!(talk.judge().failing.len(), 6);
    let mut talk = Talk::new(BOUND);
    talk.model.equates_strings = true;
    talk.step();
    talk.messages()[0]["content"] =
        json!([{"type": "text", "text": "Begin.", "cache_control": {"type": "ephemeral"}}]);
    talk.body["system"] = json!([{"type": "text", "text": "You help."}]);
    talk.assert_valid();
}

#[test]
fn a_deferred_tool_counts_once_it_is_named() {
    let mut talk = Talk::of_steps(BOUND);
    talk.betas = "mid-conversation-tool-changes-2026-07-01";
    let tools = talk.body["tools"].as_array_mut().unwrap();
    tools.push(json!({"name": "recall", "defer_loading": true}));
    talk.assert_valid();
    talk.messages().push(
        json!({"role": "system", "content": [{"type": "tool_addition",
        "tool": {"type": "tool_reference", "name": "recall"}}]}),
    );
    talk.assert_valid();
    talk.step();
    talk.assert_valid();
    talk.body["tools"][2]["description"] = "Changed.".into();
    assert_eq!(talk.judge().failing.len(), 2);
    talk.body["tools"].as_array_mut().unwrap().pop();
    assert_eq!(talk.judge().failing.len(), 2);
}

#[test]
fn an_entry_of_the_system_brings_a_tool_with_its_definition() {
    let mut talk = Talk::of_steps(BOUND);
    let definition = json!({"name": "recall", "input_schema": {"type": "object"}});
    let added = json!({"type": "tool_addition",
        "tool": {"type": "tool_definition", "definition": definition}});
    talk.messages()
        .push(json!({"role": "system", "content": [added]}));
    assert!(talk.judge().message().contains("tool_addition"));
    talk.betas = "a,inline-tools-2026-09-15";
    talk.assert_valid();
    talk.step();
    talk.assert_valid();
    // Where the client's list shows nothing, it changes the start of the prompt.
    let mut bare = talk.clone();
    for tool in bare.body["tools"].as_array_mut().unwrap() {
        tool["defer_loading"] = true.into();
    }
    assert_eq!(bare.judge().failing.len(), 8);
    let at = talk.messages().len() - 3;
    talk.messages()[at]["content"][0]["tool"]["definition"]["description"] = "Changed.".into();
    assert_eq!(talk.judge().failing.len(), 2);
    talk.body["model"] = "claude-sonnet-5".into();
    assert!(talk.judge().message().contains("tool_addition"));
}

#[test]
fn what_stands_before_a_compaction_of_the_server_does_not_count() {
    let mut talk = Talk::of_steps(BOUND);
    talk.ask(&[
        json!({"type": "compaction", "content": "So far."}),
        json!({"type": "thinking", "thinking": "on"}),
        json!({"type": "text", "text": "Done."}),
    ]);
    talk.messages()
        .push(json!({"role": "user", "content": "More."}));
    talk.step();
    talk.assert_valid();
    talk.messages().drain(1..5);
    let verdict = talk.judge();
    let stale: Vec<_> = verdict.failing.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(stale, ["messages.1.content.0", "messages.1.content.2"]);
}
