//! Requests for one text that only the proxy reads.

use serde_json::Value;

use crate::{
    conversation::{Conversation, edit::Edits},
    format::values::remove_members,
    json::scan::JsonKind,
};

/// A request for one text, with one user message.
pub struct TextRequest<'a> {
    pub model: &'a str,
    /// Not escaped.
    pub text: &'a str,
    pub limit: AnswerLimit,
}

/// The answer cap of a request that the proxy makes itself.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLimit {
    pub tokens: u32,
    /// Chat completions take `max_completion_tokens`, since reasoning models refuse `max_tokens`. If this is false, then
    /// they take `max_tokens`: many engines know no other name.
    pub names_completion_cap: bool,
}

/// The members of a request for one text that only the proxy reads.
pub(in crate::format) struct TextMembers<'a> {
    pub(in crate::format) model: &'a str,
    /// The member that caps the answer, and its value.
    pub(in crate::format) cap: (&'a str, u32),
    /// Members by which the client may demand a call, each with the value that forbids it.
    pub(in crate::format) call_choices: &'a [(&'a str, &'a str)],
    /// Members that are added where the request has none.
    pub(in crate::format) defaults: &'a [(&'a str, &'a str)],
}

impl TextMembers<'_> {
    /// Removes the members of `part` for which `is_dropped` is true, and sets these members.
    pub(in crate::format) fn write(
        &self,
        part: &Conversation,
        is_dropped: impl Fn(&str) -> bool,
        edits: &mut Edits,
    ) {
        remove_members(&part.fields, edits, |it| {
            is_dropped(&part.decode_text(it.key))
        });
        let mut added = String::new();
        let mut set = |member: &str, value: &str| match part.find_field(member) {
            Some(field) => edits.replace(field.value, value.to_owned()),
            None => added.push_str(&format!(",\"{member}\":{value}")),
        };
        set("model", &Value::from(self.model).to_string());
        set(self.cap.0, &self.cap.1.to_string());
        if part.find_field("stream").is_some() {
            set("stream", "false");
        }
        let (choices, defaults) = (self.call_choices.iter(), self.defaults.iter());
        let choices = choices.filter(|(name, _)| is_set(part, name));
        let defaults = defaults.filter(|(name, _)| part.find_field(name).is_none());
        for (name, value) in choices.chain(defaults) {
            set(name, value);
        }
        if !added.is_empty() {
            edits.insert(part.span.end - 1, added);
        }
    }
}

/// Whether a top-level member is present and not null.
pub(in crate::format) fn is_set(part: &Conversation, name: &str) -> bool {
    let field = part.find_field(name);
    field.is_some_and(|field| field.kind != JsonKind::Null)
}
