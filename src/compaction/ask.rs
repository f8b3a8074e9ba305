//! Asking the conversation's own model: the request just sent, up to the boundary, with one
//! message more.
//!
//! The bytes of every message that stays are those that went out before, so that the provider's
//! prompt cache serves them; media too, since the model has just taken them. What would give the
//! answer another shape than that of a text is taken out of the request.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;

use super::{prompt::Wanted, work::Summariser};
use crate::{
    conversation::{Author, Conversation, edit::Edits},
    format::chat::index,
    guard::{self, profile::Profile},
    json::scan::{Kind, Span},
};

/// Members that say how the answer is to look or where it goes: an answer that nobody but us reads
/// is one text. `metadata` is refused without `store`.
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
/// The longest answer, by both names.
const LIMITS: [&str; 2] = ["max_completion_tokens", "max_tokens"];

/// The conversation as it went out, up to the boundary and no further. `None` where nothing is
/// left of it, or it is no conversation any more.
pub(super) fn cut(
    conversation: &Conversation,
    edits: &Edits,
    boundary: u32,
) -> Option<Conversation> {
    let mut said = 0;
    let first = conversation.items.iter().position(|message| {
        let here = !message.author.instructs() && said == boundary;
        said += u32::from(!message.author.instructs());
        here
    })?;
    let last = conversation.items.get(first.checked_sub(1)?)?;
    let mut edits = edits.clone();
    edits.remove(Span {
        start: last.span.end,
        end: conversation.list.end.checked_sub(1)?,
    });
    let part = index(edits.apply(&conversation.body).to_bytes()).ok()?;
    if part.annotations.is_empty() {
        return Some(part);
    }
    // They are taken out of every request at its very end.
    let mut edits = Edits::default();
    part.take_out_annotations(&mut edits);
    index(edits.apply(&part.body).to_bytes()).ok()
}

/// The request with the conversation that was cut; `None` where no message of ours may stand
/// after it.
pub(super) fn request(part: &Conversation, wanted: &Wanted, asked: &Summariser) -> Option<Bytes> {
    let mut edits = Edits::default();
    edits.insert(part.list.end - 1, appended(part, wanted, asked.profile)?);
    members(part, asked, &mut edits);
    Some(edits.apply(&part.body).to_bytes())
}

/// Our messages, after the last one of the conversation.
///
/// Where no user may speak after what came last, the model does first: also after a user message
/// that would take a paragraph, so that what is data stays apart from what is asked.
fn appended(part: &Conversation, wanted: &Wanted, profile: &Profile) -> Option<String> {
    let mut said = part.items.iter().rev();
    let last = said.find(|message| !message.author.instructs())?.author;
    let mut ours = String::new();
    if last == Author::Unknown {
        return None;
    }
    let profile = guard::held_for_request(part, profile);
    if !guard::follows(last, Author::User, &profile) {
        ours.push_str(&message("assistant", &wanted.between()));
    }
    ours.push_str(&message("user", &wanted.after()));
    Some(ours)
}

fn message(role: &str, text: &str) -> String {
    format!(r#",{{"role":"{role}","content":{}}}"#, Value::from(text))
}

/// What has to change beside the messages.
fn members(part: &Conversation, asked: &Summariser, edits: &mut Edits) {
    let name = |at: usize| -> Cow<'_, str> { part.shown(part.fields[at].key) };
    let spans: Vec<Span> = part
        .fields
        .iter()
        .map(|field| Span {
            start: field.key.quoted().start,
            end: field.value.end,
        })
        .collect();
    let limit = limit(part, asked.profile);
    let gone = |at: usize| {
        let name = name(at);
        DROPPED.contains(&&*name)
            || LIMITS.contains(&&*name) && name != limit
            || *name == *"thinking" && thinks_longer(part, part.fields[at].value, asked.max_tokens)
    };
    edits.take_out(&spans, gone);
    let mut added = String::new();
    let mut set = |member: &str, value: String, anyway: bool| match part.field(member) {
        Some(field) => edits.replace(field.value, value),
        None if anyway => added.push_str(&format!(",\"{member}\":{value}")),
        None => {}
    };
    set("model", Value::from(&*asked.model).to_string(), true);
    set("stream", "false".into(), false);
    set(limit, asked.max_tokens.to_string(), true);
    // A call that is demanded would be made.
    for choice in ["tool_choice", "function_call"] {
        if part
            .field(choice)
            .is_some_and(|field| field.kind != Kind::Null)
        {
            set(choice, "\"none\"".into(), false);
        }
    }
    if !added.is_empty() {
        edits.insert(part.span.end - 1, added);
    }
}

/// Whether a member asks for more thought than the whole answer may be: refused, where such a
/// member is known.
fn thinks_longer(part: &Conversation, value: Span, most: u32) -> bool {
    let thinking = serde_json::from_slice::<Value>(&part.body[value.range()]);
    let budget = thinking.ok().and_then(|it| it["budget_tokens"].as_f64());
    budget.is_some_and(|budget| budget >= f64::from(most))
}

/// The name of the limit that the client uses: models that think refuse `max_tokens`, other
/// engines know nothing else.
fn limit(part: &Conversation, profile: &Profile) -> &'static str {
    let used = |name: &&&'static str| part.field(name).is_some_and(|it| it.kind != Kind::Null);
    LIMITS
        .iter()
        .find(used)
        .copied()
        .unwrap_or_else(|| usual_limit(profile))
}

/// The name of the limit with a provider of whom nothing else is known.
pub(super) fn usual_limit(profile: &Profile) -> &'static str {
    match profile.name {
        "openai" | "azure" => LIMITS[0],
        _ => LIMITS[1],
    }
}
