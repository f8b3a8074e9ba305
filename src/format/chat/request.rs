//! The fields of a chat completions request beside its messages: the answer cap (`max_completion_tokens`,
//! `max_tokens`), what it asks for thinking, and the usage of a stream.

use serde_json::Value;
use smallvec::SmallVec;

use crate::{
    conversation::{Conversation, edit::Edits},
    json::scan::{JsonKind, JsonScanner, MalformedJson, Span},
};

/// The members that cap an answer; where both are there, engines differ in which of them counts.
const CAPS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// Top-level members that may hold a thinking budget, at any depth.
const HOLDERS: [&str; 9] = [
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
const BUDGETS: [&str; 6] = [
    "budget_tokens",
    "thinking_budget",
    "thinkingBudget",
    "thinking_token_budget",
    "reasoning_budget",
    "max_thinking_tokens",
];

/// The lists of tools: today's, and the legacy one.
const LISTS: [&str; 2] = ["tools", "functions"];

/// The largest answer asked for, in tokens, up to which a request without tools is taken for a title or a probe.
const AUXILIARY_MAX_TOKENS: u64 = 64;

/// Whether it belongs to no conversation, as clients send to make a title or to try a key: no tools, and
/// room for a few words only.
pub(in crate::format) fn is_auxiliary(conversation: &Conversation) -> bool {
    let asked = max_answer_tokens(conversation);
    asked.is_some_and(|tokens| tokens <= AUXILIARY_MAX_TOKENS) && !names_tools(conversation)
}

/// The largest answer asked for: `max_completion_tokens`, else `max_tokens`.
pub(in crate::format) fn max_answer_tokens(conversation: &Conversation) -> Option<u64> {
    CAPS.iter().find_map(|name| conversation.number_value(name))
}

/// The larger of the answer caps that the request names, in tokens.
pub(in crate::format) fn largest_answer_cap(conversation: &Conversation) -> Option<u64> {
    CAPS.iter()
        .filter_map(|name| conversation.number_value(name))
        .max()
}

/// Lowers every answer cap above `tokens` to it. None is raised, and none is added.
pub(in crate::format) fn lower_answer_caps(
    conversation: &Conversation,
    tokens: u32,
    edits: &mut Edits,
) {
    for name in CAPS {
        if let Some(field) = conversation.find_field(name)
            && conversation
                .number_value(name)
                .is_some_and(|cap| cap > tokens.into())
        {
            edits.replace(field.value, tokens.to_string());
        }
    }
}

/// The tokens that the request lets the model think for, where it names any. They are part of the answer,
/// and providers refuse an answer cap that is not above them.
pub(in crate::format) fn thinking_budget(conversation: &Conversation) -> Option<u64> {
    let held = |name: &&str| {
        let field = conversation.find_field(name)?;
        let value: Value = serde_json::from_slice(conversation.span_bytes(field.value)).ok()?;
        budget_in("", name, &value)
    };
    HOLDERS.iter().filter_map(held).max()
}

/// What stands beside the messages and is read by the model all the same.
pub(in crate::format) fn beside_items(conversation: &Conversation) -> SmallVec<[Span; 3]> {
    let fields = ["tools", "functions", "response_format"].iter();
    let values = fields.filter_map(|name| conversation.find_field(name).map(|field| field.value));
    values.collect()
}

/// The member by which a request asks the provider to manage its context.
pub(in crate::format) fn managed_by_provider(conversation: &Conversation) -> Option<&'static str> {
    if conversation.asks_for("context_management") {
        return Some("context_management");
    }
    let says = |name: &str, word: &[u8]| {
        conversation.find_field(name).is_some_and(|field| {
            memchr::memmem::find(conversation.span_bytes(field.value), word).is_some()
        })
    };
    if says("truncation", b"\"auto\"") {
        return Some("truncation");
    }
    if says("transforms", b"\"middle-out\"") {
        return Some("transforms");
    }
    says("plugins", b"\"context-compression\"").then_some("plugins")
}

/// Whether the request has a list of tools, by its bytes: what is null, false or empty is none.
pub(in crate::format) fn names_tools(conversation: &Conversation) -> bool {
    LISTS.iter().any(|name| conversation.asks_for(name))
}

/// Whether a list of tools has anything in it.
pub(in crate::format) fn lists_tools(conversation: &Conversation) -> bool {
    LISTS
        .iter()
        .any(|name| has_nonempty_list(conversation, name))
}

/// Whether a list of that name has anything in it; what is no list counts as one.
fn has_nonempty_list(conversation: &Conversation, name: &str) -> bool {
    conversation.find_field(name).is_some_and(|field| {
        let inside = conversation.span_bytes(field.value);
        let inside = inside
            .strip_prefix(b"[")
            .and_then(|it| it.strip_suffix(b"]"));
        field.kind != JsonKind::Null && inside.is_none_or(|inside| !inside.trim_ascii().is_empty())
    })
}

/// The largest thinking budget in the member `name` of the object `parent`.
fn budget_in(parent: &str, name: &str, value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let named = BUDGETS.contains(&name) || (parent, name) == ("reasoning", "max_tokens");
            let tokens = number.as_f64().filter(|&tokens| named && tokens >= 0.0)?;
            Some(tokens as u64)
        }
        Value::Object(members) => members
            .iter()
            .filter_map(|(key, value)| budget_in(name, key, value))
            .max(),
        _ => None,
    }
}

/// Where `include_usage` stands in `stream_options`, and what kind of value it is.
fn usage_option(conversation: &Conversation) -> Option<(Span, JsonKind)> {
    let options = conversation
        .find_field("stream_options")
        .filter(|field| field.kind == JsonKind::Object)?;
    let mut found = None;
    JsonScanner::new(&conversation.body, options.value.start as usize)
        .walk_object(|scan, key| {
            let value = scan.take_value()?;
            if conversation.raw_bytes(key) == b"include_usage" {
                found = Some(value);
            }
            Ok::<_, MalformedJson>(())
        })
        .ok()?;
    found
}

/// What the client itself said of `stream_options.include_usage`.
pub(in crate::format) fn include_usage(conversation: &Conversation) -> Option<bool> {
    match usage_option(conversation)?.1 {
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
            // A member goes before the closing brace; there is one before it, `stream` itself.
            let at = conversation.span.end - 1;
            edits.insert(at, ",\"stream_options\":{\"include_usage\":true}");
        }
        Some(field) if field.kind == JsonKind::Null => {
            edits.replace(field.value, "{\"include_usage\":true}");
        }
        Some(field) if field.kind == JsonKind::Object => {
            if let Some((span, _)) = usage_option(conversation) {
                edits.replace(span, "true");
            } else {
                let inner = &conversation.body[field.value.range()][1..];
                let empty = inner.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'}');
                let comma = if empty { "" } else { "," };
                let member = format!("\"include_usage\":true{comma}");
                edits.insert(field.value.start + 1, member);
            }
        }
        Some(_) => return false,
    }
    true
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
    fn every_cap_above_it_is_lowered_and_nothing_else_is_touched() {
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
