//! Anthropic's API binds thinking to what comes before it ("Preserved thinking"). A request says what becomes of thinking
//! that no longer fits; this module reads what the client says, and writes what the proxy says.
//!
//! The API stores nothing of this, so each request says it anew.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    conversation::{Conversation, Format, edit::Edits},
    format::{
        request::beta_header::Beta,
        values::{find_member, insert_first_member, parse_field},
    },
    json::scan::JsonKind,
};

const THINKING: &str = "thinking";
const BINDING: &str = "block_binding";

/// The types of `thinking` that take the member.
const OPEN_TYPES: [&str; 2] = ["adaptive", "enabled"];

/// The member that says what becomes of thinking that does not fit. Its name differs between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MismatchField {
    /// At Anthropic.
    #[default]
    Prefix,
    /// At Bedrock, where the check covers account and end user too.
    Any,
}

/// What the client's own request leaves to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MismatchPreference {
    /// The request says nothing, and the proxy may add the member.
    Open,
    /// The request asks for the refusal.
    Refusal,
    /// The request asks for thinking to be dropped, or is of a kind that does not take the member.
    Fixed,
}

impl MismatchField {
    const ALL: [Self; 2] = [Self::Prefix, Self::Any];

    const fn name(self) -> &'static str {
        match self {
            Self::Prefix => "prefix_mismatch_behavior",
            Self::Any => "mismatch_behavior",
        }
    }

    /// The other name. AWS documents one for Bedrock, and clients send the other there.
    pub const fn other(self) -> Self {
        match self {
            Self::Prefix => Self::Any,
            Self::Any => Self::Prefix,
        }
    }

    /// Whether an error, in lower case, refuses the member by this name.
    pub fn is_refused_in(self, text: &str) -> bool {
        text.contains("extra inputs") && Self::find_in_text(text) == Some(self)
    }

    /// The member that an error names.
    pub fn find_in_text(text: &str) -> Option<Self> {
        let mut fields = Self::ALL.into_iter();
        fields.find(|field| text.contains(field.name()))
    }
}

/// Whether an error, in lower case, is about the member or its header.
pub fn names_binding(text: &str) -> bool {
    [BINDING, Beta::Binding.value()]
        .iter()
        .any(|name| text.contains(name))
}

impl Conversation {
    pub fn find_mismatch_preference(&self) -> MismatchPreference {
        let thinking = parse_field(self, THINKING);
        let binding = &thinking[BINDING];
        let wishes = MismatchField::ALL.map(|field| &binding[field.name()]);
        if wishes.iter().any(|wish| **wish == "error") {
            return MismatchPreference::Refusal;
        }
        let takes_binding = match &thinking {
            Value::Null => true,
            Value::Object(members) => {
                let is_object = binding.is_null() || binding.is_object();
                let kind = members.get("type").and_then(Value::as_str);
                is_object && kind.is_some_and(|kind| OPEN_TYPES.contains(&kind))
            }
            _ => false,
        };
        let says_nothing = wishes.iter().all(|wish| wish.is_null());
        match self.format {
            Format::Messages if takes_binding && says_nothing => MismatchPreference::Open,
            Format::Chat | Format::Messages | Format::Responses => MismatchPreference::Fixed,
            #[cfg(test)]
            Format::Toy => MismatchPreference::Fixed,
        }
    }

    /// Asks the provider to drop thinking that does not fit, if the client leaves that open. Returns whether it asks.
    pub fn ask_to_drop_thinking(&self, by: MismatchField, edits: &mut Edits) -> bool {
        if self.find_mismatch_preference() != MismatchPreference::Open {
            return false;
        }
        let wish = format!(r#""{}":"drop_block""#, by.name());
        let binding = format!(r#""{BINDING}":{{{wish}}}"#);
        // Models with this check think adaptively if a request does not set `thinking`.
        let thinking = format!(r#"{{"type":"adaptive",{binding}}}"#);
        let Some(field) = self.find_field(THINKING) else {
            // The object is not empty: it has `messages`.
            edits.insert(self.span.end - 1, format!(r#","{THINKING}":{thinking}"#));
            return true;
        };
        if field.kind == JsonKind::Null {
            edits.replace(field.value, thinking);
            return true;
        }
        match find_member(&self.body, field.value.start, BINDING.as_bytes()) {
            None => insert_first_member(self, field.value, &binding, edits),
            Some((span, JsonKind::Object)) => {
                match find_member(&self.body, span.start, by.name().as_bytes()) {
                    Some((null, _)) => edits.replace(null, r#""drop_block""#),
                    None => insert_first_member(self, span, &wish, edits),
                }
            }
            Some((null, _)) => edits.replace(null, format!("{{{wish}}}")),
        }
        true
    }

    /// Whether the request has thinking of earlier answers.
    pub fn has_past_thinking(&self) -> bool {
        let mut items = self.items.iter();
        items.any(|item| self.measure_reasoning(item).is_some())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use memchr::memmem;

    use crate::format::request::block_binding::*;

    fn messages(members: &str) -> Conversation {
        let list = r#""messages":[{"role":"user","content":"u"}]"#;
        let body = format!("{{{list}{members}}}");
        Format::Messages.index_body(Bytes::from(body)).unwrap()
    }

    #[test]
    fn the_wish_is_put_into_what_the_client_says_of_thinking() {
        let drop = r#""block_binding":{"prefix_mismatch_behavior":"drop_block"}"#;
        for (sent, expected) in [
            ("", format!(r#","thinking":{{"type":"adaptive",{drop}}}"#)),
            (
                r#","thinking": null"#,
                format!(r#","thinking": {{"type":"adaptive",{drop}}}"#),
            ),
            (
                r#","thinking":{ "type":"enabled","budget_tokens":2000}"#,
                format!(r#","thinking":{{{drop}, "type":"enabled","budget_tokens":2000}}"#),
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":null}"#,
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}"#.into(),
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":{"bind_to_end_user":false}}"#,
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block","bind_to_end_user":false}}"#.into(),
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":{ }}"#,
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block" }}"#.into(),
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":null}}"#,
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}"#.into(),
            ),
        ] {
            let conversation = messages(sent);
            let mut edits = Edits::default();
            assert!(conversation.ask_to_drop_thinking(MismatchField::Prefix, &mut edits));
            let body = edits.apply(&conversation.body).to_bytes();
            let expected = messages(&expected).body;
            assert_eq!(body, expected, "{sent}");
        }
        let conversation = messages("");
        let mut edits = Edits::default();
        assert!(conversation.ask_to_drop_thinking(MismatchField::Any, &mut edits));
        let body = edits.apply(&conversation.body).to_bytes();
        assert!(memmem::find(&body, br#"{"mismatch_behavior":"drop_block"}"#).is_some());
    }

    #[test]
    fn what_the_client_says_itself_stays() {
        for (members, wish) in [
            (
                r#","thinking":{"type":"disabled"}"#,
                MismatchPreference::Fixed,
            ),
            (
                r#","thinking":{"type":"between_tools"}"#,
                MismatchPreference::Fixed,
            ),
            (r#","thinking":{}"#, MismatchPreference::Fixed),
            (r#","thinking":"much""#, MismatchPreference::Fixed),
            (
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}"#,
                MismatchPreference::Fixed,
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"error"}}"#,
                MismatchPreference::Refusal,
            ),
            (
                r#","thinking":{"type":"adaptive","block_binding":{"mismatch_behavior":"error"}}"#,
                MismatchPreference::Refusal,
            ),
        ] {
            let conversation = messages(members);
            assert_eq!(conversation.find_mismatch_preference(), wish, "{members}");
            let mut edits = Edits::default();
            assert!(!conversation.ask_to_drop_thinking(MismatchField::Prefix, &mut edits));
            assert!(edits.is_empty());
        }
    }
}
