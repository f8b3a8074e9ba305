//! Which cuts name the id by which `recall` finds what they stand for, where tools come and go.

use bytes::Bytes;
use serde_json::{Value, json};

use super::policy;
use crate::{
    config::GuardConfig,
    conversation::Conversation,
    format::{chat, messages},
    guard::{
        self, Policy, SessionKnowledge, injections::Injections, plan::report::Plan,
        request::recall_id::NamedIds,
    },
    support::guard_properties::RESPONSES,
};

type WriteBody = fn(&[String]) -> Conversation;

/// Steps with these results, behind a task.
const FORMATS: [WriteBody; 3] = [in_chat, in_messages, in_responses];

fn in_chat(results: &[String]) -> Conversation {
    let mut list = vec![json!({"role": "user", "content": "task"})];
    for (nth, result) in results.iter().enumerate() {
        let id = format!("c{nth}");
        list.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id, "type": "function", "function": {"name": "read", "arguments": "{}"}}]}));
        list.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
    }
    chat::index_body(to_bytes(json!({ "messages": list }))).unwrap()
}

fn in_messages(results: &[String]) -> Conversation {
    let mut list = vec![json!({"role": "user", "content": "task"})];
    for (nth, result) in results.iter().enumerate() {
        let id = format!("c{nth}");
        list.push(json!({"role": "assistant", "content": [
            {"type": "tool_use", "id": id, "name": "read", "input": {}}]}));
        list.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": result}]}));
    }
    messages::index_body(to_bytes(json!({ "messages": list }))).unwrap()
}

fn in_responses(results: &[String]) -> Conversation {
    let mut list = vec![json!({"role": "user", "content": "task"})];
    for (nth, result) in results.iter().enumerate() {
        let id = format!("c{nth}");
        list.push(
            json!({"type": "function_call", "call_id": id, "name": "read", "arguments": "{}"}),
        );
        list.push(json!({"type": "function_call_output", "call_id": id, "output": result}));
    }
    RESPONSES.read(&to_bytes(json!({ "input": list })))
}

fn to_bytes(body: Value) -> Bytes {
    body.to_string().into()
}

/// A session whose requests have tools or not.
struct Client<'a> {
    write: WriteBody,
    policy: Policy<'a>,
    results: Vec<String>,
    knowledge: SessionKnowledge,
}

impl<'a> Client<'a> {
    fn new(write: WriteBody, policy: Policy<'a>) -> Self {
        Self {
            write,
            policy,
            results: Vec::new(),
            knowledge: SessionKnowledge::default(),
        }
    }

    /// What is sent after one more step.
    fn ask(&mut self, result: &str, has_tools: bool) -> (String, Plan) {
        self.results.push(result.to_owned());
        let conversation = (self.write)(&self.results);
        self.knowledge.injections = Injections {
            names_ids: has_tools,
            ..Injections::default()
        };
        let plan = guard::plan(&conversation, &self.policy, &self.knowledge);
        let sent = plan.edits.apply(&conversation.body).to_bytes();
        self.knowledge.memory = plan.memory.clone();
        self.knowledge.sent_messages = 1 + 2 * self.results.len();
        (String::from_utf8_lossy(&sent).into_owned(), plan)
    }
}

fn ids(sent: &str) -> Vec<&str> {
    let found = sent.split("recall id ").skip(1);
    found
        .map(|it| it.split([']', ' ']).next().unwrap())
        .collect()
}

#[test]
fn a_cut_keeps_its_words_and_a_new_one_goes_by_its_own_request() {
    let settings = GuardConfig {
        max_tool_result_chars: Some(1_000),
        truncate_head_chars: Some(100),
        truncate_tail_chars: Some(100),
        ..GuardConfig::default()
    };
    let policy = Policy {
        window: 200_000,
        ..policy(&settings)
    };
    for write in FORMATS {
        let mut client = Client::new(write, policy);
        let long = "a line of the file ".repeat(100);
        assert_eq!(ids(&client.ask(&long, true).0), ["m3"]);
        let (sent, _) = client.ask(&long, false);
        assert_eq!(ids(&sent), ["m3"]);
        assert_eq!(sent.matches("characters truncated").count(), 2);
        assert_eq!(ids(&client.ask("short", false).0), ["m3"]);
        assert_eq!(ids(&client.ask(&long, true).0), ["m3", "m9"]);
        assert_eq!(ids(&client.ask(&long, false).0), ["m3", "m9"]);
        // Nobody's cache holds the prompt any more.
        client.knowledge.is_cold = true;
        assert_eq!(ids(&client.ask(&long, false).0), [""; 0]);
    }
}

#[test]
fn a_new_placeholder_or_fold_decides_for_all_cuts() {
    let settings = GuardConfig::counted_by_characters();
    for (write, has_tools) in FORMATS.into_iter().flat_map(|it| [(it, true), (it, false)]) {
        let mut client = Client::new(write, policy(&settings));
        let result = "a line of the file\n".repeat(80);
        let (mut cuts, mut clears) = (0, 0);
        for nth in 0..60 {
            // Tools come or go behind the first cuts.
            let offers = if cuts < 2 { !has_tools } else { has_tools };
            let known = client.knowledge.memory.names_ids.clone();
            let (sent, plan) = client.ask(&result, offers);
            let folds = plan.report.folded.as_ref().is_some_and(|it| it.new);
            let is_cleared = plan.report.cleared.as_ref().is_some_and(|it| it.new);
            if folds || is_cleared {
                cuts += 1;
                clears += usize::from(!folds);
                assert_eq!(!ids(&sent).is_empty(), offers, "request {nth}");
                assert_eq!(plan.memory.names_ids, Some(NamedIds::all(offers)));
            } else if let Some(known) = known {
                assert_eq!(plan.memory.names_ids.unwrap().first, known.first);
            }
        }
        assert!(
            cuts > 4 && clears > 0,
            "{cuts} cuts, {clears} of them clear only"
        );
    }
}
