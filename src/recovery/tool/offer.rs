//! What a request can be asked: whether our tools may be added to it, and whether its answer may
//! hold a continuation block.
//!
//! Where in doubt, nothing: a request that is left alone works as it did without us.

use serde::Deserialize;

use super::{
    NAMES,
    schema::{self, Form},
};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::{Author, Conversation, Item},
    guard::record::OwnTools,
    json::scan::{Kind, Malformed, Scan},
    recovery::{Clock, Due, Memory, language},
};

/// What a request can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Our tools go with it.
    Tools {
        own: OwnTools,
        /// The model may call them. Where it may not, they stay for the sake of the prefix, and no
        /// prompt is given.
        callable: bool,
    },
    /// A prompt of the text kind may be given. Says nothing of whether one is due.
    Text,
    Nothing,
}

/// Decides what a request can be asked, by its own fields and by what was done before.
pub fn offered(conversation: &Conversation, settings: &RecoveryConfig, memory: &Memory) -> Offer {
    if !settings.enabled || conversation.is_auxiliary() || asks_for_many(conversation) {
        return Offer::Nothing;
    }
    if !lists(conversation, "tools") && !lists(conversation, "functions") {
        return match is_plain(conversation) {
            true => Offer::Text,
            false => Offer::Nothing,
        };
    }
    let callable = may_call(conversation) && !is_prefilled(conversation);
    let added = match settings.tools {
        AddTools::Never => false,
        AddTools::Always => true,
        // Tools that cannot be called are not worth a change of the prefix.
        AddTools::WhenDue => memory.tools || (callable && asks(memory.clock)),
    };
    // Schemas may be most of a body: they are read only where ours are to stand beside them.
    match added.then(|| form_beside(conversation)).flatten() {
        Some(form) => Offer::Tools {
            own: schema::own(
                form,
                language::choose(settings.language, memory.language, conversation),
            ),
            callable,
        },
        None => Offer::Nothing,
    }
}

/// Whether a list of that name has anything in it; what is no list counts as one.
fn lists(conversation: &Conversation, name: &str) -> bool {
    conversation.field(name).is_some_and(|field| {
        let inside = conversation.bytes(field.value);
        let inside = inside
            .strip_prefix(b"[")
            .and_then(|it| it.strip_suffix(b"]"));
        field.kind != Kind::Null && inside.is_none_or(|inside| !inside.trim_ascii().is_empty())
    })
}

const fn asks(clock: Clock) -> bool {
    matches!(clock.due(), Some(Due::Caution | Due::Critical { .. }))
}

/// More than one answer: what of them would be ours, and which one goes on?
fn asks_for_many(conversation: &Conversation) -> bool {
    conversation.field("n").is_some_and(|field| {
        field.kind != Kind::Null && conversation.number_value("n").is_none_or(|n| n > 1)
    })
}

/// What is read of an element of `tools` or `functions`.
#[derive(Deserialize)]
struct Tool {
    name: Option<String>,
    function: Option<Function>,
    custom: Option<Function>,
}

#[derive(Deserialize)]
struct Function {
    name: Option<String>,
    strict: Option<bool>,
}

impl Tool {
    /// Whether it has the name of one of ours, wherever its kind of tool puts names.
    fn is_ours(&self) -> bool {
        let inner = [&self.function, &self.custom].map(|of| of.as_ref()?.name.as_deref());
        let mut names = inner.into_iter().chain([self.name.as_deref()]).flatten();
        names.any(|name| NAMES.contains(&name))
    }
}

/// The form of the proxy's schemas beside the client's own tools. `None` where the request has none, or a
/// list of tools that cannot be followed, or one with a name of the proxy's.
fn form_beside(conversation: &Conversation) -> Option<Form> {
    let tools = list(conversation, "tools")?;
    let functions = list(conversation, "functions")?;
    if tools.iter().chain(&functions).any(Tool::is_ours) {
        return None;
    }
    if tools.is_empty() {
        return (!functions.is_empty()).then_some(Form::Functions);
    }
    let mut functions = tools.iter().filter_map(|tool| tool.function.as_ref());
    let any = tools.iter().any(|tool| tool.function.is_some());
    // Some providers refuse tools of which some are strict and others are not.
    let strict = any && functions.all(|function| function.strict == Some(true));
    Some(match strict {
        true => Form::StrictTools,
        false => Form::Tools,
    })
}

/// The elements of a list of tools, which may be missing; `None` where it cannot be read.
fn list(conversation: &Conversation, name: &str) -> Option<Vec<Tool>> {
    let field = conversation.field(name);
    match field.filter(|field| field.kind != Kind::Null) {
        None => Some(Vec::new()),
        Some(field) => serde_json::from_slice(conversation.bytes(field.value)).ok(),
    }
}

/// Whether the model may choose among the tools.
fn may_call(conversation: &Conversation) -> bool {
    ["tool_choice", "function_call"].iter().all(|name| {
        conversation
            .field(name)
            .is_none_or(|field| match field.kind {
                Kind::Null => true,
                Kind::String => conversation
                    .text_value(name)
                    .is_some_and(|choice| matches!(&*choice, "auto" | "required" | "any")),
                // A named function, or the tools that are allowed: ours are not among them.
                _ => false,
            })
    })
}

/// Whether the answer is to continue a message that is there already.
fn is_prefilled(conversation: &Conversation) -> bool {
    let newest = conversation.items.last();
    newest.is_some_and(|message| {
        message.author == Author::Model || has_member(conversation, message, b"prefix")
    }) || conversation.asks_for("continue_final_message")
}

fn has_member(conversation: &Conversation, message: &Item, name: &[u8]) -> bool {
    let mut found = false;
    let mut scan = Scan::new(&conversation.body, message.span.start as usize);
    let walked = scan.object(|scan, key| {
        let (_, kind) = scan.value()?;
        found |= conversation.raw(key) == name && !matches!(kind, Kind::Null | Kind::False);
        Ok::<_, Malformed>(())
    });
    found || walked.is_err()
}

/// Members that give an answer a form of its own, in which a block has no place.
const SHAPED: [&str; 18] = [
    "stop",
    "logprobs",
    "top_logprobs",
    "prediction",
    "audio",
    "echo",
    // Of engines that are run at home.
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

/// Whether the answer is plain text that may end with a block.
fn is_plain(conversation: &Conversation) -> bool {
    !SHAPED.iter().any(|name| asks_for(conversation, name))
        && is_text_format(conversation)
        && !speaks(conversation)
        && !is_prefilled(conversation)
}

/// As [`Conversation::asks_for`], whatever white space stands between brackets; 0 asks for nothing.
fn asks_for(conversation: &Conversation, name: &str) -> bool {
    conversation.asks_for(name)
        && conversation.number_value(name) != Some(0)
        && conversation.field(name).is_some_and(|field| {
            let bytes = conversation.bytes(field.value);
            let inner = bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or(b"");
            let brackets = matches!(field.kind, Kind::Object | Kind::Array);
            !(brackets && inner.trim_ascii().is_empty())
        })
}

fn is_text_format(conversation: &Conversation) -> bool {
    #[derive(Deserialize)]
    struct Format {
        #[serde(rename = "type")]
        kind: String,
    }
    conversation.field("response_format").is_none_or(|field| {
        field.kind == Kind::Null
            || serde_json::from_slice::<Format>(conversation.bytes(field.value))
                .is_ok_and(|format| format.kind == "text")
    })
}

/// Whether anything but text is asked for.
fn speaks(conversation: &Conversation) -> bool {
    conversation.field("modalities").is_some_and(|field| {
        field.kind != Kind::Null
            && serde_json::from_slice::<Vec<String>>(conversation.bytes(field.value))
                .map_or(true, |modalities| {
                    modalities.iter().any(|kind| kind != "text")
                })
    })
}

#[cfg(test)]
mod tests;
