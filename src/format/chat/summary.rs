//! Turns the request of a conversation into one for a text that only the proxy reads.

use super::request::CAPS;
use crate::{
    conversation::{Conversation, edit::Edits},
    format::{
        text_request::{AnswerLimit, TextMembers, is_set},
        values::parse_field,
    },
};

/// Members that are removed, since the answer is one text for the proxy only: they shape the answer or say where it is
/// sent or stored. `metadata` is refused without `store`.
const DROPPED: [&str; 23] = [
    "stream_options",
    "n",
    "stop",
    "response_format",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "modalities",
    "logit_bias",
    "parallel_tool_calls",
    "store",
    "metadata",
    "web_search_options",
    "min_tokens",
    "ignore_eos",
    "echo",
    "add_generation_prompt",
    "continue_final_message",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "structured_outputs",
];

pub(in crate::format) fn ask_for_text(
    part: &Conversation,
    model: &str,
    limit: AnswerLimit,
    edits: &mut Edits,
) {
    // The cap keeps the name that the client uses: reasoning models refuse `max_tokens`, and other engines know no other
    // name.
    let used_cap = CAPS.iter().copied().find(|name| is_set(part, name));
    let cap = used_cap.unwrap_or_else(|| usual_cap(limit));
    // Providers refuse a budget that the answer cap does not exceed.
    let budget = parse_field(part, "thinking")["budget_tokens"].as_f64();
    let stops_thinking = budget.is_some_and(|budget| budget >= f64::from(limit.tokens));
    let is_dropped = |name: &str| {
        DROPPED.contains(&name)
            || CAPS.contains(&name) && name != cap
            || name == "thinking" && stops_thinking
    };
    let members = TextMembers {
        model,
        cap: (cap, limit.tokens),
        call_choices: &[("tool_choice", "\"none\""), ("function_call", "\"none\"")],
        defaults: &[],
    };
    members.write(part, is_dropped, edits);
}

/// The name of the answer cap for a provider of which nothing else is known.
pub(super) const fn usual_cap(limit: AnswerLimit) -> &'static str {
    if limit.names_completion_cap {
        CAPS[0]
    } else {
        CAPS[1]
    }
}
