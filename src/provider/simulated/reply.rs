//! What is answered: text, calls, or both, and why it ended.
//!
//! With tools, up to seven rounds of calls follow each user message, then a text. The same
//! conversation gets the same answer, streamed or not.

use serde_json::{Value, json};

use super::{
    check::role,
    count::{count_tokens, find_end},
    notice::{self, Wanted},
    prompt::Prompt,
    request::{ChatRequest, Choice, Format, Tool},
    schema,
};

/// The most rounds of calls of one turn.
const MOST_ROUNDS: usize = 7;

const ANSWERS: &[&str] = &[
    "Here is what I found. The relevant part is small, and the rest of the code depends on it in \
     two places only. The old behaviour came from a default that nobody set on purpose.\n\nI kept \
     the change local, so that the public interface stays as it is. The next step would be a test \
     for the empty case.",
    "Short answer first: it works as intended, with one exception. The error only appears when the \
     input is empty, which explains why it went unseen. Everything else can stay as it is.",
    "I have gone through everything that touches this. The test that covers it passes; the one \
     beside it does not check the edge at all. Two callers rely on the order of the results, so I \
     left the order alone.\n\nThere is a second place with the same pattern, and it has the same \
     problem. Tell me if you want the wider change as well.",
    "Reading it from the top, the loop ends one element too early. The numbers agree with what the \
     log says. That is all that is needed here.",
];
const CHINESE_ANSWERS: &[&str] = &[
    "我看了一下相关的内容。问题出在默认值上，没有人特意设置过它。修改只涉及一个地方，公开的接口保持不变。",
    "测试已经通过，空输入的情况还需要补一个测试。日志里的数字和结果是一致的。如果需要更大范围的修改，请告诉我。",
];

/// One answer of the `n` asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    pub(super) content: Option<String>,
    pub(super) calls: Vec<Call>,
    pub(super) finish: &'static str,
    pub(super) tokens: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
    /// JSON; cut off where the answer ended for its length.
    pub(super) arguments: String,
}

/// All answers to a request.
pub(super) fn make_replies(request: &ChatRequest<'_>, prompt: &Prompt) -> Vec<Reply> {
    let room = request.model.window.saturating_sub(prompt.tokens());
    let limit = request.limit.unwrap_or(room).min(room);
    (0..request.n)
        .map(|nth| make_reply(request, prompt.hash.wrapping_add(u64::from(nth)), limit))
        .collect()
}

fn make_reply(request: &ChatRequest<'_>, seed: u64, limit: u32) -> Reply {
    let wanted = notice::find_wanted(request);
    let tools = callable_tools(request);
    let calls = match &wanted {
        Some(Wanted::Call(call)) => vec![(call.name, call.arguments.to_string())],
        None if !tools.is_empty() && calls_now(request) => choose_calls(request, &tools, seed),
        _ => Vec::new(),
    };
    let calls = calls
        .into_iter()
        .zip(0u64..)
        .map(|((name, arguments), nth)| Call {
            id: format!("call_{:016x}{nth:08x}", seed),
            name: name.to_owned(),
            arguments,
        });
    let mut reply = Reply {
        content: None,
        calls: calls.collect(),
        finish: "stop",
        tokens: 0,
    };
    // A call that the client named itself ends with `stop`, as at OpenAI.
    if !reply.calls.is_empty() && !matches!(request.choice, Choice::Named(_)) {
        reply.finish = "tool_calls";
    }
    reply.content = match wanted {
        Some(Wanted::Summary(summary)) => Some(summary),
        Some(Wanted::Block(block)) => Some(format!("{}\n\n{block}", choose_text(request, seed))),
        _ if reply.calls.is_empty() => Some(choose_text(request, seed)),
        _ => None,
    };
    cut_to_limit(&mut reply, limit);
    reply
}

/// What may be called unasked: the memory's own tools only where a call is demanded and there is
/// no other.
fn callable_tools<'a>(request: &ChatRequest<'a>) -> Vec<Tool<'a>> {
    let is_other = |tool: &Tool<'_>| !notice::is_memory_tool(tool.name);
    let others = request.tools.iter().any(is_other);
    let allowed = |tool: &&Tool<'_>| match request.choice {
        Choice::None => false,
        Choice::Auto => is_other(tool),
        Choice::Required => is_other(tool) || !others,
        Choice::Named(name) => tool.name == name,
    };
    request.tools.iter().filter(allowed).copied().collect()
}

/// The number of rounds depends on where the turn begins, so that turns differ in length.
fn calls_now(request: &ChatRequest<'_>) -> bool {
    if request.choice != Choice::Auto {
        return true;
    }
    let messages = request.messages;
    let begin = messages
        .iter()
        .rposition(|one| role(one) == "user")
        .unwrap_or(0);
    let rounds = messages[begin..]
        .iter()
        .filter(|one| role(one) == "assistant")
        .count();
    let asks = messages
        .last()
        .is_some_and(|one| ["user", "tool"].contains(&role(one)));
    asks && rounds < 1 + begin * 5 % MOST_ROUNDS
}

/// Names and arguments; now and then two calls at once.
fn choose_calls<'a>(
    request: &ChatRequest<'_>,
    tools: &[Tool<'a>],
    seed: u64,
) -> Vec<(&'a str, String)> {
    let several =
        request.parallel && !matches!(request.choice, Choice::Named(_)) && seed.is_multiple_of(5);
    let seeds = seed..seed.saturating_add(if several { 2 } else { 1 });
    let calls = seeds.filter_map(|seed| {
        let tool = tools.get((seed % tools.len().max(1) as u64) as usize)?;
        let arguments = match schema::make_value(tool.parameters, seed) {
            object @ Value::Object(_) => object.to_string(),
            _ => "{}".to_owned(),
        };
        Some((tool.name, arguments))
    });
    calls.collect()
}

fn choose_text(request: &ChatRequest<'_>, seed: u64) -> String {
    let texts = match notice::is_chinese(&notice::find_task(request.messages)) {
        true => CHINESE_ANSWERS,
        false => ANSWERS,
    };
    let text = texts[(seed % texts.len() as u64) as usize];
    match request.format {
        Format::Text => text.to_owned(),
        Format::Schema(schema) => schema::make_value(schema, seed).to_string(),
        Format::Object => json!({"answer": text, "confidence": 0.9}).to_string(),
    }
}

/// Cuts the answer to its limit in tokens and counts it.
fn cut_to_limit(reply: &mut Reply, limit: u32) {
    let mut left = limit;
    let mut cut = false;
    if let Some(content) = &mut reply.content {
        cut |= cut_text(content, &mut left);
    }
    reply.calls.retain_mut(|call| {
        let name = count_tokens(&call.name).saturating_add(3);
        if cut || name > left {
            cut = true;
            return false;
        }
        left -= name;
        cut |= cut_text(&mut call.arguments, &mut left);
        true
    });
    if cut {
        reply.finish = "length";
    }
    reply.tokens = limit - left;
}

/// Whether something was cut off.
fn cut_text(text: &mut String, left: &mut u32) -> bool {
    let end = find_end(text, *left);
    let cut = end < text.len();
    text.truncate(end);
    *left = left.saturating_sub(count_tokens(text));
    cut
}

#[cfg(test)]
mod tests;
