//! How the result of a recall is stored: as texts of the proxy, and places in the client's messages. The result is made
//! anew for each request.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::document;
use crate::{conversation::Conversation, format::ProxyToolCall, recovery::tool::RECALL};

/// The beginning of every stored result. No item of any format begins so.
const HEAD: &str = r#"{"recall":"#;

#[derive(Serialize, Deserialize)]
struct StoredResult {
    recall: Vec<Piece>,
    /// The id of the call.
    call: Box<str>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    legacy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Piece {
    Text(String),
    /// The place of a message, and bytes of its text, decoded.
    Slice(usize, usize, usize),
}

impl Piece {
    /// Bytes of the text, not escaped.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Slice(_, start, end) => end - start,
        }
    }
}

pub(super) fn store_result(call: &ProxyToolCall, pieces: Vec<Piece>) -> Box<str> {
    let stored = StoredResult {
        recall: pieces,
        call: call.id.clone(),
        legacy: call.legacy,
    };
    // Strings and numbers are always JSON.
    serde_json::to_string(&stored).unwrap_or_default().into()
}

/// Makes the result to send from a recorded one. The result of a recall is made from the conversation; any other result is
/// sent as it was recorded.
pub fn restore_result<'a>(recorded: &'a str, conversation: &Conversation) -> Cow<'a, str> {
    let stored = recorded.starts_with(HEAD).then_some(recorded);
    let stored = stored.and_then(|stored| serde_json::from_str::<StoredResult>(stored).ok());
    let Some(stored) = stored else {
        return Cow::Borrowed(recorded);
    };
    let call = ProxyToolCall {
        id: stored.call,
        name: RECALL.into(),
        legacy: stored.legacy,
        ..ProxyToolCall::default()
    };
    let text = join_pieces(&stored.recall, conversation);
    Cow::Owned(conversation.format.result_item(&call, &text).into())
}

/// The text of an answer.
pub(super) fn join_pieces(pieces: &[Piece], conversation: &Conversation) -> String {
    let mut joined = String::new();
    // The last text is kept, since most answers have several pieces of one message.
    let mut last: Option<(usize, String)> = None;
    for piece in pieces {
        match *piece {
            Piece::Text(ref text) => joined.push_str(text),
            Piece::Slice(place, start, end) => {
                if last.as_ref().is_none_or(|last| last.0 != place) {
                    last = document::render_place(conversation, place).map(|text| (place, text));
                }
                let slice = last.as_ref().and_then(|last| last.1.get(start..end));
                joined.push_str(slice.unwrap_or_default());
            }
        }
    }
    joined.truncate(joined.trim_end().len());
    joined
}
