//! The scripted agent: what is answered, and why the answer ended.
//!
//! With tools, up to seven rounds of calls follow each user message, then a text. The same
//! conversation gets the same answer for the same key, streamed or not.

use serde_json::{Value, json};

use super::{
    memory_requests,
    request::{SimulatedRequest, message_role},
    schema::make_value,
    token_count::{count_tokens, find_end},
};

/// The most rounds of calls of one turn.
const MOST_ROUNDS: usize = 7;

pub(super) const TEXT: &str = "Here is what I found. The relevant part is small, and the rest of the code \
    depends on it in two places only. I kept the change local, so that the public interface stays \
    as it is. The next step would be a test for the empty case.";

/// What is said: a text, or the arguments of a call.
#[derive(Debug)]
pub(super) struct ReplyContent {
    /// The tool that is called.
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

/// An answer with all that its length decides.
#[derive(Debug)]
pub(super) struct Reply {
    /// Cut off where the answer ended for its length.
    pub(super) content: ReplyContent,
    pub(super) finish: &'static str,
    pub(super) tokens: u32,
}

/// The answer to a request, of at most `limit` tokens; `seed` differs from prompt to prompt.
pub(super) fn make_reply(request: &SimulatedRequest<'_>, seed: u64, limit: u32) -> Reply {
    let mut said = memory_requests::find_requested_reply(request)
        .or_else(|| call_tool(request, seed))
        .or_else(|| {
            Some(ReplyContent::from_text(
                make_value(&request.answer_schema()?).to_string(),
            ))
        })
        .unwrap_or_else(|| ReplyContent::from_text(TEXT));
    let name = said.tool.as_deref().map(count_tokens);
    let overhead = name.map_or(0, |tokens| tokens.saturating_add(3));
    let end = find_end(&said.text, limit.saturating_sub(overhead));
    let finish = match said.tool {
        _ if end < said.text.len() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    };
    said.text.truncate(end);
    Reply {
        tokens: count_tokens(&said.text).saturating_add(overhead).min(limit),
        content: said,
        finish,
    }
}

/// A call, unless a text is due. Tools for the model's own memory are called only where
/// a call is demanded and there is no other.
fn call_tool(request: &SimulatedRequest<'_>, seed: u64) -> Option<ReplyContent> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let (own, others): (Vec<_>, Vec<_>) = request
        .tools()
        .partition(|tool| memory_requests::is_memory_tool(&name(tool)));
    let pick = |tools: &[&Value]| {
        let at = usize::try_from(seed).unwrap_or(usize::MAX) % tools.len().max(1);
        tools.get(at).map(|&tool| tool.clone())
    };
    let choice = request.tool_choice();
    let tool = match (choice.as_str(), choice["function"]["name"].as_str()) {
        (Some("none"), _) => None,
        (Some("required"), _) => pick(&others).or_else(|| pick(&own)),
        (None, Some(wanted)) => request.tools().find(|tool| name(tool) == wanted).cloned(),
        _ => pick(&others).filter(|_| is_call_due(request.messages)),
    }?;
    let arguments = make_value(&tool["parameters"]);
    let arguments = Some(arguments).filter(Value::is_object);
    Some(ReplyContent::from_call(
        &name(&tool),
        &arguments.unwrap_or(json!({})),
    ))
}

/// The number of rounds depends on where the turn begins, so that turns differ in length.
fn is_call_due(messages: &[Value]) -> bool {
    let begin = messages.iter().rposition(|one| message_role(one) == "user");
    let begin = begin.unwrap_or(0);
    let turn = messages[begin..].iter();
    let rounds = turn.filter(|one| message_role(one) == "assistant").count();
    let last = messages.last().map(message_role);
    matches!(last, Some("user" | "tool")) && rounds < 1 + begin * 5 % MOST_ROUNDS
}
