//! What the APIs of real models refuse, by the table of models' rules: with the matching of names to its rows the only thing
//! that is shared with the rest. The words are those of the APIs.

use serde_json::Value;

use super::{
    SimulatedApi,
    request::{SimulatedRefusal, message_role},
};
use crate::config::profile::{Profile, ReasoningMember, find_profile};

/// The model's rules alone, without a provider's.
pub(super) fn find_rules(body: &Value) -> Option<&'static Profile> {
    let provider = Profile {
        names_completion_cap: false,
        ..*find_profile("openai")?
    };
    Some(provider.for_model(body["model"].as_str().unwrap_or_default()))
}

/// Whether answers have reasoning that a client must send back.
pub(super) fn gives_reasoning(api: SimulatedApi, rules: &Profile, body: &Value) -> bool {
    match api {
        SimulatedApi::Chat if rules.signs_calls => true,
        SimulatedApi::Messages => false,
        _ => demanded_reasoning(rules, body) != ReasoningMember::Free,
    }
}

/// # Errors
/// The first reason why the model's API would refuse the request, among those of this model alone.
pub(super) fn check_model_rules(
    api: SimulatedApi,
    rules: &Profile,
    body: &Value,
) -> Result<(), SimulatedRefusal> {
    let refusal = match api {
        SimulatedApi::Chat => refuse_chat(rules, body),
        SimulatedApi::Messages => refuse_messages(rules, body),
        SimulatedApi::Responses => refuse_responses(rules, body),
    };
    refusal.map_or(Ok(()), Err)
}

fn demanded_reasoning(rules: &Profile, body: &Value) -> ReasoningMember {
    let is_off = body["thinking"]["type"] == "disabled"
        || body["reasoning_effort"] == "none"
        || body["reasoning"]["effort"] == "none";
    match rules.reasoning_member {
        ReasoningMember::OnCalls if is_off => ReasoningMember::Free,
        demanded => demanded,
    }
}

fn list<'a>(body: &'a Value, name: &str) -> &'a [Value] {
    body[name].as_array().map_or(&[], Vec::as_slice)
}

fn refuse_chat(rules: &Profile, body: &Value) -> Option<SimulatedRefusal> {
    if rules.names_completion_cap && !body["max_tokens"].is_null() {
        return Some(SimulatedRefusal {
            code: Some("unsupported_parameter"),
            ..SimulatedRefusal::for_parameter(
                "max_tokens",
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
            )
        });
    }
    if !rules.takes_chat_tools && !list(body, "tools").is_empty() {
        let message = "Function tools with reasoning_effort are not supported for this model in \
            /v1/chat/completions. Please use /v1/responses instead.";
        return Some(SimulatedRefusal::for_parameter("tools", message));
    }
    let messages = list(body, "messages");
    let demanded = demanded_reasoning(rules, body);
    let is_user = |it: &Value| message_role(it) == "user";
    let turn = messages.iter().rposition(is_user).unwrap_or(0);
    let answers = messages.iter().enumerate();
    let mut answers = answers.filter(|(_, it)| message_role(it) == "assistant");
    answers.find_map(|(at, answer)| {
        let reasoning = answer["reasoning_content"].as_str();
        let call = answer["tool_calls"].get(0);
        let signature = call.map(|it| &it["extra_content"]["google"]["thought_signature"]);
        let message = match demanded {
            ReasoningMember::OnEvery if reasoning.is_none() => format!(
                "preserved thinking (thinking.keep=all) requires reasoning_content on every assistant message, but \
                 assistant message at index {at} is missing reasoning_content"
            ),
            // An empty one counts as missing.
            ReasoningMember::OnCalls if call.is_some() && reasoning.unwrap_or_default().is_empty() => {
                "The `reasoning_content` in the thinking mode must be passed back to the API.".into()
            }
            _ if rules.signs_calls && at > turn && signature.is_some_and(|it| !it.is_string()) => {
                "Function call is missing a thought_signature in functionCall parts.".into()
            }
            _ => return None,
        };
        Some(SimulatedRefusal::new(message))
    })
}

fn refuse_messages(rules: &Profile, body: &Value) -> Option<SimulatedRefusal> {
    let messages = list(body, "messages");
    let is_system = |it: &Value| message_role(it) == "system";
    let system = messages.iter().position(is_system);
    let last = messages.last().map(message_role);
    let forced = ["any", "tool"].map(Value::from);
    let message = match system {
        Some(at) if !rules.system_prompts => {
            format!("messages.{at}.role: Input should be 'user' or 'assistant'")
        }
        _ if !rules.may_end_with_assistant && last == Some("assistant") => {
            "This model does not support assistant message prefill. The conversation must end with a user message."
                .into()
        }
        _ if !rules.takes_forced_calls && forced.contains(&body["tool_choice"]["type"]) => {
            "Thinking may not be enabled when tool_choice forces tool use.".into()
        }
        _ => return None,
    };
    Some(SimulatedRefusal::new(message))
}

/// Each call needs plain reasoning before it, in its own answer.
fn refuse_responses(rules: &Profile, body: &Value) -> Option<SimulatedRefusal> {
    if demanded_reasoning(rules, body) == ReasoningMember::Free {
        return None;
    }
    let mut is_reasoned = false;
    let mut lacking = list(body, "input").iter().filter(|item| {
        let text = item["content"][0]["text"].as_str().unwrap_or_default();
        match item["type"].as_str() {
            Some("reasoning") => is_reasoned |= !text.is_empty(),
            Some("function_call" | "custom_tool_call") => return !is_reasoned,
            _ if item["role"] == "assistant" => {}
            _ => is_reasoned = false,
        }
        false
    });
    let message = "The `reasoning_text` in the thinking mode must be passed back to the API.";
    lacking.next().map(|_| SimulatedRefusal::new(message))
}
