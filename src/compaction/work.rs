//! One summary, from the first request to the last answer.
//!
//! Where the conversation's own model can take it, one request; else the record is read in parts,
//! each with the summary of those before it.

use std::{collections::VecDeque, ops::Range};

use bytes::Bytes;
use serde_json::json;

use super::{
    Due,
    accept::{Block, Rejected, accept},
    ask,
    measure::Measure,
    prompt::Wanted,
    transcript,
};
use crate::{
    guard::{
        estimate::{self, Weights},
        fence,
        profile::Profile,
        record::Summary,
        units::{self, Unit},
    },
    json::text::Walk,
    recovery::Language,
    wire::{chat::Conversation, edit::Edits},
};

/// What frames a request; raw tokens.
const FRAME_TOKENS: u32 = 32;
/// A part of a record that is smaller is not worth a request; raw tokens.
const LEAST_PART: u32 = 256;

/// Who summarises.
#[derive(Clone, Debug)]
pub struct Summariser {
    /// It is the conversation's own model, at the place that answered it: its cache is warm.
    pub own: bool,
    /// As its provider knows it.
    pub model: Box<str>,
    pub profile: &'static Profile,
    /// Raw tokens that a request to it may have, the answer apart.
    pub room: u32,
    /// Of the answer.
    pub max_tokens: u32,
    pub language: Language,
    /// Of Latin text.
    pub chars_per_token: f64,
    /// Drawn after the conversation was, so that nobody who wrote any of it can have known it.
    pub nonce: [u8; 8],
}

/// What comes after an answer.
pub enum Next {
    /// Another request, a whole body for chat completions.
    Ask(Bytes),
    Done(Summary),
    Failed(Rejected),
}

/// A summary that is being made. Not `Debug`: it holds texts of the conversation.
pub struct Work {
    asked: Summariser,
    wanted: Wanted,
    measure: Measure,
    due: Due,
    /// Nothing in the conversation looks like the block that is asked for.
    no_block: bool,
    /// Parts of the record that were not asked about yet.
    parts: VecDeque<String>,
}

impl Work {
    /// The first request. `edits`: those the conversation went out with, the guard's and
    /// recovery's. `None` where nothing can be asked: there is no room for it, or the conversation
    /// cannot be cut there.
    pub fn begin(
        conversation: &Conversation,
        edits: &Edits,
        due: Due,
        asked: Summariser,
    ) -> Option<(Self, Bytes)> {
        let part = ask::cut(conversation, edits, due.boundary)?;
        let units = units::split(&part).ok()?;
        let measure = Measure::new(asked.chars_per_token);
        let due = Due {
            // What was cut or cleared on its way out saves nothing more.
            replaced: due.replaced.min(weigh(&part, &units, &asked)),
            ..due
        };
        let wanted = Wanted::new(
            asked.language,
            asked.nonce,
            (asked.max_tokens, due.replaced),
        );
        let mut work = Self {
            asked,
            wanted,
            measure,
            due,
            no_block: !holds_block(&part),
            parts: VecDeque::new(),
        };
        let first = match work.own(&part) {
            Some(body) => body,
            None => {
                let parts = work.record(&part, &units)?;
                work.parts = parts.into();
                let first = work.parts.pop_front()?;
                work.body(&first)
            }
        };
        Some((work, first))
    }

    /// Reads an answer with a success status, whole.
    pub fn next(&mut self, answer: &[u8]) -> Next {
        let most = longest(self.asked.max_tokens);
        let block = Block {
            key: &self.wanted.key,
            unkeyed: self.no_block,
        };
        let text = match accept(answer, block, most, &self.measure) {
            Ok(text) => text,
            Err(rejected) => return Next::Failed(rejected),
        };
        if let Some(part) = self.parts.pop_front() {
            let record = transcript::so_far(&text, &self.wanted.key) + &part;
            return Next::Ask(self.body(&record));
        }
        if self.measure.tokens(&text) > self.due.replaced / 2 {
            return Next::Failed(Rejected::TooLittleSaved);
        }
        Next::Done(Summary {
            boundary: self.due.boundary,
            text: text.into(),
        })
    }

    /// Requests that are still to come, the one that is being answered apart.
    pub fn left(&self) -> usize {
        self.parts.len()
    }

    /// The request that repeats the conversation, where its own model can take that.
    fn own(&self, part: &Conversation) -> Option<Bytes> {
        if !self.asked.own {
            return None;
        }
        let weights = self.measure.weights();
        let all = messages(part, 0..part.messages.len(), weights, self.asked.profile);
        let sent = all.saturating_add(estimate::beside(part, weights));
        let ours = self.measure.tokens(&self.wanted.after()) + FRAME_TOKENS;
        (sent.saturating_add(ours) <= self.asked.room)
            .then(|| ask::request(part, &self.wanted, &self.asked))
            .flatten()
    }

    /// The record in parts that fit.
    fn record(&self, part: &Conversation, units: &[Unit]) -> Option<Vec<String>> {
        let empty = self.measure.tokens(&self.wanted.around("")) + FRAME_TOKENS;
        let whole = self.asked.room.checked_sub(empty)?;
        let parts = |room| transcript::chunks(part, units, &self.wanted, room, &self.measure);
        // In one, where it fits; else there must be room for the summary of the parts before.
        if let Some(parts) = parts(whole).filter(|parts| parts.len() == 1) {
            return Some(parts);
        }
        let room = whole.checked_sub(longest(self.asked.max_tokens) + FRAME_TOKENS)?;
        parts(room).filter(|_| room >= LEAST_PART)
    }

    fn body(&self, record: &str) -> Bytes {
        let limit = ask::usual_limit(self.asked.profile);
        let content = self.wanted.around(record);
        let body = json!({
            "model": self.asked.model,
            "messages": [{"role": "user", "content": content}],
            limit: self.asked.max_tokens,
        });
        Bytes::from(body.to_string())
    }
}

/// Whether anything in a conversation looks like a summary's block, also where a string of its JSON
/// holds JSON itself, as arguments do.
fn holds_block(part: &Conversation) -> bool {
    let decoded = |raw: &[u8]| -> String {
        let letters = Walk::new(raw).filter_map(|it| char::from_u32(it.code));
        letters.collect()
    };
    let once = decoded(&part.body);
    let twice = decoded(once.as_bytes());
    [once, twice]
        .iter()
        .any(|text| fence::holds(text, fence::SUMMARY))
}

/// Raw tokens of all that may go of a conversation.
fn weigh(part: &Conversation, units: &[Unit], asked: &Summariser) -> u32 {
    let weights = Weights::new(asked.chars_per_token);
    let gone = units.iter().filter(|unit| !unit.stays);
    gone.map(|unit| messages(part, unit.messages.clone(), &weights, asked.profile))
        .fold(0, u32::saturating_add)
}

fn messages(part: &Conversation, which: Range<usize>, weights: &Weights, profile: &Profile) -> u32 {
    let messages = part.messages[which].iter();
    messages
        .map(|message| estimate::message(part, message, &message.sizes, weights, profile))
        .fold(0, u32::saturating_add)
}

/// Raw tokens of the longest summary: the provider has counted its tokens already, and by another
/// rule than ours, which takes English for more than it is.
const fn longest(max_tokens: u32) -> u32 {
    max_tokens.saturating_add(max_tokens / 2)
}

#[cfg(test)]
mod tests;
