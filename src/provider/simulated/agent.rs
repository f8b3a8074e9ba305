//! The scripted agent: what is answered, and why the answer ended.
//!
//! With tools, up to seven rounds of calls follow each user message, then a text. The same
//! conversation gets the same answer, streamed or not.

use serde_json::Value;

use super::{
    count::{count_tokens, find_end},
    memory::{self, Wanted},
    request::{ChatRequest, Choice, role},
    schema::make_value,
};

/// The most rounds of calls of one turn.
const MOST_ROUNDS: usize = 7;

const TEXT: &str = "Here is what I found. The relevant part is small, and the rest of the code \
    depends on it in two places only. I kept the change local, so that the public interface stays \
    as it is. The next step would be a test for the empty case.";

/// What is said: a text, or the arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) call: Option<Call>,
    /// Cut off where the answer ended for its length.
    pub(super) text: String,
    pub(super) finish: &'static str,
    pub(super) tokens: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
}

/// The answer to a request, of at most `limit` tokens; `seed` differs from prompt to prompt.
pub(super) fn make_reply(request: &ChatRequest<'_>, seed: u64, limit: u32) -> Reply {
    let (name, mut text) = match (memory::find_wanted(request), &request.schema) {
        (Some(Wanted::Call { name, arguments }), _) => (Some(name), arguments.to_string()),
        (Some(Wanted::Summary(summary)), _) => (None, summary),
        (Some(Wanted::Block(block)), _) => (None, format!("{TEXT}\n\n{block}")),
        (None, schema) => match (choose_tool(request, seed), schema) {
            (Some(tool), _) => {
                let arguments = make_value(&tool["parameters"]);
                let arguments = Some(arguments).filter(Value::is_object);
                let arguments = arguments.map_or_else(|| "{}".to_owned(), |it| it.to_string());
                (tool["name"].as_str(), arguments)
            }
            (None, Some(schema)) => (None, make_value(schema).to_string()),
            (None, None) => (None, TEXT.to_owned()),
        },
    };
    let overhead = name.map_or(0, |name| count_tokens(name).saturating_add(3));
    let end = find_end(&text, limit.saturating_sub(overhead));
    let finish = match name {
        _ if end < text.len() => "length",
        Some(_) => "tool_calls",
        None => "stop",
    };
    text.truncate(end);
    Reply {
        call: name.map(|name| Call {
            id: format!("call_{seed:016x}"),
            name: name.to_owned(),
        }),
        tokens: count_tokens(&text).saturating_add(overhead).min(limit),
        text,
        finish,
    }
}

/// The tool to call, unless a text is due. Tools for the model's own memory are called only where
/// a call is demanded and there is no other.
fn choose_tool<'a>(request: &ChatRequest<'a>, seed: u64) -> Option<&'a Value> {
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    let pick = |tools: Vec<&'a Value>| {
        let at = usize::try_from(seed).unwrap_or(usize::MAX) % tools.len().max(1);
        tools.get(at).copied()
    };
    let tools = request.tools.iter().copied();
    let others = tools.clone().filter(|tool| !memory::is_tool(&name(tool)));
    match request.choice {
        Choice::None => None,
        Choice::Named(wanted) => tools.clone().find(|tool| name(tool) == wanted),
        Choice::Required => pick(others.collect()).or_else(|| pick(tools.collect())),
        Choice::Auto => pick(others.collect()).filter(|_| is_call_due(request.messages)),
    }
}

/// The number of rounds depends on where the turn begins, so that turns differ in length.
fn is_call_due(messages: &[Value]) -> bool {
    let begin = messages.iter().rposition(|one| role(one) == "user");
    let begin = begin.unwrap_or(0);
    let turn = messages[begin..].iter();
    let rounds = turn.filter(|one| role(one) == "assistant").count();
    let last = messages.last().map(role);
    matches!(last, Some("user" | "tool")) && rounds < 1 + begin * 5 % MOST_ROUNDS
}
