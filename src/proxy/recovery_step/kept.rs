//! What is kept of the model's own words, to be sent again: bounded, and valid JSON.

use std::borrow::Cow;

use serde_json::json;

use crate::{
    guard::record::{By, OwnCall, Record, What},
    relay::{Own, Spoken},
};

/// Bytes of a message that is kept to be sent again, reasoning included.
const MAX_MESSAGE_BYTES: usize = 48 << 10;
/// Bytes of a call's arguments that are kept to be sent again: a reminder holds far less.
const MAX_ARGUMENTS_BYTES: usize = 24 << 10;

/// What the model said in a round, as a message of the next request.
pub(super) fn message(spoken: &Spoken) -> Box<str> {
    let overlong = spoken.own.iter().any(is_overlong);
    if !(spoken.message.is_empty() || spoken.message.len() > MAX_MESSAGE_BYTES || overlong) {
        return spoken.message.clone();
    }
    // Too long to be kept and sent again: its calls alone, without which the results would be none.
    let calls: Vec<_> = spoken.own.iter().map(call_json).collect();
    let legacy = spoken.own.first().is_some_and(|call| call.legacy);
    match (&calls[..], &spoken.package) {
        ([call], _) if legacy => {
            format!(r#"{{"role":"assistant","content":null,"function_call":{call}}}"#)
        }
        ([], Some(package)) => json!({"role": "assistant", "content": &*package.text}).to_string(),
        _ => format!(
            r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#,
            calls.join(",")
        ),
    }
    .into()
}

fn is_overlong(call: &Own) -> bool {
    call.overlong || call.arguments.len() > MAX_ARGUMENTS_BYTES
}

/// A call as it is sent again; arguments far beyond what a reminder can hold are left out.
fn call_json(call: &Own) -> Cow<'_, str> {
    if !is_overlong(call) {
        return Cow::Borrowed(&call.json);
    }
    let function = json!({"name": &*call.name, "arguments": "{}"});
    let json = match call.legacy {
        true => function,
        false => json!({"id": &*call.id, "type": "function", "function": function}),
    };
    Cow::Owned(json.to_string())
}

/// Whether a record has calls of ours in it.
pub(super) fn calls(record: &Record) -> bool {
    match &record.what {
        What::Calls { .. } => true,
        What::Round(said) => said
            .iter()
            .any(|said| matches!(said.by, By::Model { calls } if calls > 0)),
        _ => false,
    }
}

pub(super) fn user_message(text: &str) -> Box<str> {
    json!({"role": "user", "content": text}).to_string().into()
}

pub(super) fn put_back(call: &Own) -> OwnCall {
    OwnCall {
        before: call.before,
        json: call_json(call).into(),
    }
}
