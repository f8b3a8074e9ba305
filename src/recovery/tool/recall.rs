//! `recall`: the model looks up what was cut. The client sends its whole conversation with every request, so whatever
//! was truncated, cleared or folded is still there.
//!
//! A state keeps an answer as a list of texts and of places in the conversation, since recalled texts would soon fill
//! the state. Each later request makes the answer anew from the list; the client's messages give the same bytes on
//! every replica. The list names what a pattern found, and what had been left out by then. So nothing is searched
//! twice, and later cuts do not change an answer.

mod document;
mod excerpt;
mod query;
mod stored;

use std::ops::Range;

pub use self::stored::restore_result;
use self::{document::Document, query::RecallQuery, stored::Piece};
use super::CallAnswer;
use crate::{
    conversation::Conversation,
    format::ProxyToolCall,
    guard::{self, Policy, recall_id::EARLIER},
};

/// What `recall` looks into.
#[derive(Clone, Copy)]
pub struct RecallSource<'a> {
    pub conversation: &'a Conversation,
    pub policy: &'a Policy<'a>,
    /// The messages that were left out of the request, counted without system messages.
    pub left_out: &'a [Range<u32>],
}

/// Most calls that are answered in one reply of the model.
const MAX_CALLS: u32 = 8;
/// These calls together may show this many times the characters of the largest answer.
const LARGEST_ANSWERS: usize = 3;

/// The calls of `recall` in one reply so far, and the characters of their answers.
#[derive(Default)]
pub(super) struct RecallUse {
    calls: u32,
    chars: usize,
}

/// Answers a call.
///
/// # Errors
/// If the arguments cannot be used; the message is for the model.
pub(super) fn execute_recall(
    call: &ProxyToolCall,
    source: Option<&RecallSource<'_>>,
    used: &mut RecallUse,
) -> Result<CallAnswer, String> {
    let source = source.ok_or("there is nothing to recall.")?;
    used.calls += 1;
    if used.calls > MAX_CALLS {
        return Err(format!(
            "at most {MAX_CALLS} calls of recall are answered in one reply; call it again for this one."
        ));
    }
    if call.overlong {
        return Err("the arguments were too long.".to_owned());
    }
    let query = RecallQuery::from_json(&call.arguments)?;
    let document = match query.place {
        None => Document::from_left_out(source.conversation, source.left_out),
        Some(place) => Document::from_message(source.conversation, place)
            .ok_or_else(|| explain_unknown(source.conversation))?,
    };
    if document.is_empty() {
        let id = document.title();
        return Ok(CallAnswer::Text(format!("{id} holds no text.")));
    }
    let largest = guard::max_recall_chars(&document.sizes, source.policy);
    let room = (largest * LARGEST_ANSWERS).saturating_sub(used.chars);
    let max_chars = largest.min(room).max(excerpt::LEAST_CHARS);
    let pieces = excerpt::answer_query(&document, &query, max_chars)?;
    let is_found = pieces.iter().any(|piece| matches!(piece, Piece::Slice(..)));
    let shown = pieces.iter().map(Piece::len);
    // The lengths are bytes, but an answer has at most `max_chars` characters.
    used.chars += shown.sum::<usize>().min(max_chars);
    Ok(if is_found {
        CallAnswer::Stored(stored::store_result(call, pieces))
    } else {
        CallAnswer::Text(stored::join_pieces(&pieces, source.conversation))
    })
}

fn explain_unknown(conversation: &Conversation) -> String {
    let authors = conversation.items.iter();
    let last = authors.filter(|item| !item.author.is_system()).count();
    format!(
        "there is no message of that id. There are m1 to m{last}, and {EARLIER} for everything that was left out."
    )
}

#[cfg(test)]
mod tests;
