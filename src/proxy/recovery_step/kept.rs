//! What is kept of the model's own words, to be sent again: bounded, and valid in its format.

use crate::{
    conversation::Format,
    format::{Own, Spoken},
    guard::record::{By, OwnCall, Record, What},
};

/// Bytes of an answer that is kept to be sent again, reasoning included.
const MAX_ANSWER_BYTES: usize = 48 << 10;
/// Bytes of a call's arguments that are kept to be sent again: a reminder holds far less.
const MAX_ARGUMENT_BYTES: usize = 24 << 10;

/// What the model said in a turn, as an item of the next request.
pub(super) fn keep_answer(format: Format, spoken: &Spoken) -> Box<str> {
    format.answer_item(spoken, MAX_ANSWER_BYTES, MAX_ARGUMENT_BYTES)
}

pub(super) fn keep_call(format: Format, call: &Own) -> OwnCall {
    OwnCall {
        before: call.before,
        json: format.call(call, MAX_ARGUMENT_BYTES).into(),
    }
}

/// Whether a record has calls of proxy-executed tools in it.
pub(super) fn calls(record: &Record) -> bool {
    match &record.what {
        What::Calls { .. } => true,
        What::Round(said) => said
            .iter()
            .any(|said| matches!(said.by, By::Model { calls } if calls > 0)),
        _ => false,
    }
}
