//! The fields of a chat completions request other than its messages: answer caps (`max_completion_tokens`, `max_tokens`),
//! thinking budgets, tools, the usage of a stream, and what the answer may be: tool calls, plain text, several choices.

use serde_json::Value;

use crate::{
    conversation::{Author, Conversation, edit::Edits},
    format::values::{find_member, has_type, insert_first_member, parse_field},
    json::scan::{JsonKind, Span},
};

/// The members that cap an answer. If a request has both, then it depends on the engine which one counts.
pub(in crate::format) const CAPS: &[&str; 2] = &["max_completion_tokens", "max_tokens"];

/// Top-level members that may hold a thinking budget, at any depth.
const BUDGET_HOLDERS: [&str; 9] = [
    "thinking",
    "reasoning",
    "thinking_budget",
    "thinking_token_budget",
    "reasoning_budget",
    "thinking_config",
    "generation_config",
    "chat_template_kwargs",
    "extra_body",
];

/// Names of a thinking budget in tokens, as providers and engines spell it.
const BUDGET_NAMES: [&str; 6] = [
    "budget_tokens",
    "thinking_budget",
    "thinkingBudget",
    "thinking_token_budget",
    "reasoning_budget",
    "max_thinking_tokens",
];

/// The list of tools and the legacy one.
pub(in crate::format) const TOOL_LISTS: &[&str] = &["tools", "functions"];

/// The beginning and the end of a task that a chat app gives a model about a chat, outside this chat, with the chat
/// quoted in the task: the built-in prompts of Open WebUI 0.12 for titles, tags, follow-ups, pictures and searches.
const TASK_BEGINS: &str = "### Task:\n";
const TASK_ENDS: &str = "</chat_history>";

/// Whether the request is such a task of a chat app: apart from system messages, it is one message with such a text
/// alone, and it has no stream and no tools. If a conversation begins with such a message, it loses nothing: nothing
/// comes before the message, and the next request of the conversation is longer.
pub(in crate::format) fn is_app_task(conversation: &Conversation) -> bool {
    let items = conversation.items.iter();
    let mut said = items.filter(|item| !item.author.is_system());
    let (Some(item), None) = (said.next(), said.next()) else {
        return false;
    };
    let mut texts = conversation.texts_of(item);
    let (Some(text), None) = (texts.next(), texts.next()) else {
        return false;
    };
    item.author == Author::User
        && !conversation.asks_for_stream()
        && !conversation.names_tools()
        && conversation.decode_start(text, TASK_BEGINS.len()) == TASK_BEGINS
        && conversation
            .decode_text(text)
            .trim_end()
            .ends_with(TASK_ENDS)
}

pub(in crate::format) fn thinking_budget(conversation: &Conversation) -> Option<u64> {
    let budget_of = |name: &&str| find_budget("", name, &parse_field(conversation, name));
    BUDGET_HOLDERS.iter().filter_map(budget_of).max()
}

/// The structure that the answer must have.
pub(in crate::format) fn find_answer_format(conversation: &Conversation) -> Option<Span> {
    let format = conversation.find_field("response_format");
    format.map(|field| field.value)
}

pub(in crate::format) fn managed_by_provider(conversation: &Conversation) -> Option<&'static str> {
    if conversation.asks_for("context_management") {
        return Some("context_management");
    }
    const REQUESTS: [(&str, &[u8]); 3] = [
        ("truncation", b"\"auto\""),
        ("transforms", b"\"middle-out\""),
        ("plugins", b"\"context-compression\""),
    ];
    let holds = |&(name, word): &(&str, &[u8])| {
        let field = conversation.find_field(name);
        let value = field.map_or(&b""[..], |field| conversation.span_bytes(field.value));
        memchr::memmem::find(value, word).is_some()
    };
    REQUESTS.into_iter().find(holds).map(|(name, _)| name)
}

/// The largest thinking budget in the member `name` of the object `parent`.
fn find_budget(parent: &str, name: &str, value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let is_budget =
                BUDGET_NAMES.contains(&name) || (parent, name) == ("reasoning", "max_tokens");
            let tokens = number.as_f64().filter(|tokens| is_budget && *tokens >= 0.0);
            tokens.map(|tokens| tokens as u64)
        }
        Value::Object(members) => {
            let members = members.iter();
            let budgets = members.filter_map(|(key, value)| find_budget(name, key, value));
            budgets.max()
        }
        _ => None,
    }
}

/// The value of `include_usage` in `stream_options`.
fn find_usage_option(conversation: &Conversation) -> Option<(Span, JsonKind)> {
    let options = conversation.find_field("stream_options")?;
    find_member(&conversation.body, options.value.start, b"include_usage")
}

pub(in crate::format) fn include_usage(conversation: &Conversation) -> Option<bool> {
    match find_usage_option(conversation)?.1 {
        JsonKind::True => Some(true),
        JsonKind::False => Some(false),
        _ => None,
    }
}

pub(in crate::format) fn ask_usage(conversation: &Conversation, edits: &mut Edits) -> bool {
    if !conversation.asks_for_stream() || include_usage(conversation).is_some() {
        return false;
    }
    match conversation.find_field("stream_options") {
        None => {
            // The object is not empty: it has `stream`.
            let at = conversation.span.end - 1;
            edits.insert(at, ",\"stream_options\":{\"include_usage\":true}");
        }
        Some(field) if field.kind == JsonKind::Null => {
            edits.replace(field.value, "{\"include_usage\":true}");
        }
        Some(field) if field.kind == JsonKind::Object => {
            if let Some((span, _)) = find_usage_option(conversation) {
                edits.replace(span, "true");
            } else {
                insert_first_member(conversation, field.value, "\"include_usage\":true", edits);
            }
        }
        Some(_) => return false,
    }
    true
}

pub(in crate::format) fn asks_for_many(conversation: &Conversation) -> bool {
    conversation.find_field("n").is_some_and(|field| {
        field.kind != JsonKind::Null && conversation.number_value("n").is_none_or(|n| n > 1)
    })
}

pub(in crate::format) fn may_call_tools(conversation: &Conversation) -> bool {
    let mut names = ["tool_choice", "function_call"].into_iter();
    names.all(|name| match conversation.find_field(name) {
        // A named function, or a list of allowed tools, leaves the proxy's tools out.
        Some(field) if field.kind != JsonKind::Null => conversation
            .text_value(name)
            .is_some_and(|choice| matches!(&*choice, "auto" | "required" | "any")),
        _ => true,
    })
}

/// Whether the answer continues the last message, whoever wrote it.
pub(in crate::format) fn continues_message(conversation: &Conversation) -> bool {
    let newest = conversation.items.last();
    newest.is_some_and(|message| {
        let prefix = find_member(&conversation.body, message.span.start, b"prefix");
        let is_unset = |kind| matches!(kind, JsonKind::Null | JsonKind::False);
        prefix.is_some_and(|(_, kind)| !is_unset(kind))
    }) || conversation.asks_for("continue_final_message")
}

/// Members that shape an answer so that it cannot end with a continuation block.
const SHAPING_MEMBERS: [&str; 18] = [
    "stop",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "echo",
    // Of self-hosted engines.
    "format",
    "grammar",
    "json_schema",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "regex",
    "ebnf",
    "stop_token_ids",
    "ignore_eos",
];

pub(in crate::format) fn takes_plain_text(conversation: &Conversation) -> bool {
    let mut shaping = SHAPING_MEMBERS.iter();
    !shaping.any(|name| is_asked_for(conversation, name))
        && is_text_format(conversation)
        && !asks_for_other_modalities(conversation)
}

/// Whether a member asks for something, as [`Conversation::asks_for`], except that 0 and brackets around white space do
/// not count either.
fn is_asked_for(conversation: &Conversation, name: &str) -> bool {
    conversation.asks_for(name)
        && conversation.number_value(name) != Some(0)
        && conversation.find_field(name).is_some_and(|field| {
            let bytes = conversation.span_bytes(field.value);
            let inner = bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or(b"");
            let brackets = matches!(field.kind, JsonKind::Object | JsonKind::Array);
            !(brackets && inner.trim_ascii().is_empty())
        })
}

fn is_text_format(conversation: &Conversation) -> bool {
    let format = conversation.find_field("response_format");
    format.is_none_or(|field| {
        field.kind == JsonKind::Null || has_type(&conversation.body, field.value.start, "text")
    })
}

fn asks_for_other_modalities(conversation: &Conversation) -> bool {
    let modalities = parse_field(conversation, "modalities");
    let kinds = modalities.as_array();
    !modalities.is_null() && !kinds.is_some_and(|kinds| kinds.iter().all(|kind| kind == "text"))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::format::chat::index_body;

    fn with(members: &str) -> Conversation {
        let body = format!(r#"{{"messages":[],{members}}}"#);
        index_body(Bytes::from(body)).unwrap()
    }

    #[test]
    fn only_caps_above_the_bound_are_lowered() {
        let lowered = |members: &str| {
            let conversation = with(members);
            let mut edits = Edits::default();
            conversation.lower_answer_caps(900, &mut edits);
            let body = edits.apply(&conversation.body).to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            body.split_once("[],").unwrap().1.to_owned()
        };
        assert_eq!(
            lowered(r#""max_tokens" :  65535 "#),
            r#""max_tokens" :  900 }"#
        );
        assert_eq!(
            lowered(r#""max_tokens":6.5e4,"max_completion_tokens":1000"#),
            r#""max_tokens":900,"max_completion_tokens":900}"#
        );
        for kept in [
            r#""max_tokens":900"#,
            r#""max_tokens":-1"#,
            r#""max_tokens":null"#,
            r#""max_tokens":"5000""#,
            r#""n":2"#,
        ] {
            assert_eq!(lowered(kept), format!("{kept}}}"));
        }
    }

    #[test]
    fn a_thinking_budget_is_found_wherever_engines_take_it() {
        for members in [
            r#""thinking":{"type":"enabled","budget_tokens":4000}"#,
            r#""reasoning":{"max_tokens":4000}"#,
            r#""thinking_budget":4e3"#,
            r#""thinking_token_budget":4000"#,
            r#""chat_template_kwargs":{"enable_thinking":true,"thinking_budget":4000}"#,
            r#""extra_body":{"google":{"thinking_config":{"thinking_budget":4000}}}"#,
            r#""extra_body":{"reasoning":{"max_tokens":4000}},"thinking_budget":10"#,
        ] {
            assert_eq!(with(members).thinking_budget(), Some(4_000), "{members}");
        }
        for members in [
            r#""max_tokens":4000"#,
            r#""thinking_budget":-1"#,
            r#""thinking":{"type":"disabled"}"#,
            r#""reasoning":{"effort":"high"}"#,
            r#""extra_body":{"max_tokens":4000}"#,
        ] {
            assert_eq!(with(members).thinking_budget(), None, "{members}");
        }
    }
}
