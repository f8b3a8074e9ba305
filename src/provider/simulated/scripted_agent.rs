//! The scripted agent: with tools, up to seven rounds of calls follow each user message, then a text.
//!
//! The same conversation gets the same answer for the same key, streamed or not.

use serde_json::{Value, json};

use super::{
    memory_requests,
    request::{SimulatedRequest, message_role},
    schema::make_value,
    token_count::{count_tokens, find_end},
};

/// Of calls in one turn.
const MAX_ROUNDS: usize = 7;

pub(super) const TEXT: &str = "Here is what I found. The relevant part is small, and the rest of the code \
    depends on it in two places only. I kept the change local, so that the public interface stays \
    as it is. The next step would be a test for the empty case.";

/// A text, or the arguments of a call.
#[derive(Debug)]
pub(super) struct ReplyContent {
    /// The called tool.
    pub(super) tool: Option<String>,
    pub(super) text: String,
}

impl ReplyContent {
    pub(super) fn from_call(tool: &str, arguments: &Value) -> Self {
        Self {
            tool: Some(tool.to_owned()),
            text: arguments.to_string(),
        }
    }

    pub(super) fn from_text(text: impl Into<String>) -> Self {
        Self {
            tool: None,
            text: text.into(),
        }
    }
}

#[derive(Debug)]
pub(super) struct Reply {
    /// Cut off where `finish` is `length`.
    pub(super) content: ReplyContent,
    pub(super) finish: &'static str,
    pub(super) tokens: u32,
}

/// An answer of at most `limit` tokens; `seed` differs from prompt to prompt.
pub(super) fn make_reply(request: &SimulatedRequest, seed: u64, limit: u32) -> Reply {
    let structured = || Some(make_value(&request.answer_schema()?).to_string());
    let mut content = memory_requests::find_requested_reply(request)
        .or_else(|| call_tool(request, seed))
        .or_else(|| structured().map(ReplyContent::from_text))
        .unwrap_or_else(|| ReplyContent::from_text(TEXT));
    let name = content.tool.as_deref().map(count_tokens);
    let overhead = name.map_or(0, |tokens| tokens.saturating_add(3));
    let end = find_end(&content.text, limit.saturating_sub(overhead));
    let finish = match content.tool {
        _ if end < content.text.len() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    };
    content.text.truncate(end);
    let tokens = count_tokens(&content.text).saturating_add(overhead);
    Reply {
        tokens: tokens.min(limit),
        content,
        finish,
    }
}

/// A call, unless a text is due. Memory tools are called only where a call is required and there is no
/// other tool.
fn call_tool(request: &SimulatedRequest, seed: u64) -> Option<ReplyContent> {
    let name = |tool: &'_ Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let is_memory_tool = |tool: &&Value| memory_requests::is_memory_tool(&name(tool));
    let (memory_tools, others): (Vec<_>, Vec<_>) = request.tools().partition(is_memory_tool);
    let seed = usize::try_from(seed).unwrap_or(usize::MAX);
    let pick = |tools: &[&'_ Value]| {
        let index = seed % tools.len().max(1);
        tools.get(index).copied().cloned()
    };
    let choice = request.tool_choice();
    let tool = match (choice.as_str(), choice["function"]["name"].as_str()) {
        (Some("none"), _) => None,
        (Some("required"), _) => pick(&others).or_else(|| pick(&memory_tools)),
        (None, Some(wanted)) => request.tools().find(|tool| name(tool) == wanted).cloned(),
        _ => pick(&others).filter(|_| is_call_due(request.messages())),
    }?;
    let arguments = match make_value(&tool["parameters"]) {
        Value::Object(members) => members.into(),
        _ => json!({}),
    };
    Some(ReplyContent::from_call(&name(&tool), &arguments))
}

/// The number of rounds depends on where the turn begins, so that turns differ in length.
fn is_call_due(messages: &[Value]) -> bool {
    let roles: Vec<&str> = messages.iter().map(message_role).collect();
    let begin = roles.iter().rposition(|role| *role == "user").unwrap_or(0);
    let turn = roles[begin..].iter();
    let rounds = turn.filter(|role| **role == "assistant").count();
    matches!(roles.last(), Some(&("user" | "tool"))) && rounds < 1 + begin * 5 % MAX_ROUNDS
}
