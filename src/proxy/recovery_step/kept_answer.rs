//! The model's messages and calls, kept to be sent again: bounded, and valid in their format.

use crate::{
    conversation::Format,
    format::{AssistantTurn, ProxyToolCall},
    guard::injections::{InjectedAuthor, InjectedCall, InjectionContent, InjectionRecord},
};

/// Bytes of an answer that is kept to be sent again, reasoning included.
const MAX_ANSWER_BYTES: usize = 48 << 10;
/// Bytes of a call's arguments that are kept to be sent again: a reminder holds far less.
const MAX_ARGUMENT_BYTES: usize = 24 << 10;

/// The model's message of a turn, as an item of the next request.
pub(super) fn keep_answer(format: Format, turn: &AssistantTurn) -> Box<str> {
    format.answer_item(turn, MAX_ANSWER_BYTES, MAX_ARGUMENT_BYTES)
}

pub(super) fn keep_call(format: Format, call: &ProxyToolCall) -> InjectedCall {
    InjectedCall {
        before: call.before,
        json: format.write_call(call, MAX_ARGUMENT_BYTES).into(),
    }
}

pub(super) fn has_proxy_calls(record: &InjectionRecord) -> bool {
    match &record.what {
        InjectionContent::Calls { .. } => true,
        InjectionContent::Round(messages) => messages
            .iter()
            .any(|message| matches!(message.by, InjectedAuthor::Model { calls } if calls > 0)),
        _ => false,
    }
}
