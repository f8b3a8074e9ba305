//! One summary, from the first request to the last answer.
//!
//! Where the conversation's own model can take it, one request; else the record is read in parts,
//! each with the summary of those before it.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    SummaryRange,
    parse_summary::{SummaryBlock, SummaryRejection, parse_summary},
    prompt::SummaryPrompt,
    summary_request, transcript,
};
use crate::{
    conversation::{Conversation, Format, Item, edit::Edits, units},
    format::{AnswerLimit, TextRequest},
    guard::{
        estimate::{self, Weights},
        fence,
        injections::Summary,
        profile::Profile,
    },
    json::text::TextWalk,
    recovery::Language,
};

/// What frames a request; raw tokens.
const FRAME_TOKENS: u32 = 32;
/// A part of a record that is smaller is not worth a request; raw tokens.
const LEAST_PART: u32 = 256;

/// Who summarises.
#[derive(Clone, Debug)]
pub struct Summariser {
    /// It is the conversation's own model, at the place that answered it: its cache is warm.
    pub is_conversation_model: bool,
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

impl Summariser {
    /// The longest answer that it is asked for.
    pub(super) fn answer_limit(&self) -> AnswerLimit {
        AnswerLimit {
            tokens: self.max_tokens,
            is_openai: matches!(self.profile.name, "openai" | "azure"),
        }
    }
}

/// What comes after an answer.
pub enum SummaryProgress {
    /// Another request, a whole body in the conversation's format.
    Ask(Bytes),
    Done(Summary),
    Failed(SummaryRejection),
}

/// A summary that is being made. Not `Debug`: it holds texts of the conversation.
pub struct SummaryWork {
    format: Format,
    summariser: Summariser,
    prompt: SummaryPrompt,
    weights: Weights,
    range: SummaryRange,
    /// Nothing that the client sent looks like the block that is asked for.
    no_block: bool,
    /// Parts of the record that were not asked about yet.
    parts: VecDeque<String>,
}

impl SummaryWork {
    /// The first request. `edits`: those the conversation went out with, the guard's and
    /// recovery's. `None` where nothing can be asked: there is no room for it, or the conversation
    /// cannot be cut there.
    pub fn begin_summary(
        conversation: &Conversation,
        edits: &Edits,
        due: SummaryRange,
        asked: Summariser,
    ) -> Option<(Self, Bytes)> {
        let part = summary_request::cut_at_boundary(conversation, edits, due.boundary)?;
        let units = units::split_units(&part).ok()?;
        // What the proxy put in is not looked at: its note holds the block of the summary before.
        let as_received =
            summary_request::cut_at_boundary(conversation, &Edits::default(), due.boundary)?;
        let weights = Weights::new(asked.chars_per_token);
        let removed = units.iter().filter(|unit| !unit.stays);
        let removed = removed.flat_map(|unit| &part.items[unit.messages.clone()]);
        // What was cut or cleared on its way out saves nothing more.
        let removed = message_tokens(&part, removed, &weights, asked.profile);
        let replaced = due.replaced.min(removed);
        let wanted = SummaryPrompt::new(asked.language, asked.nonce, asked.max_tokens, replaced);
        let mut work = Self {
            format: conversation.format,
            summariser: asked,
            prompt: wanted,
            weights,
            range: SummaryRange { replaced, ..due },
            no_block: !holds_block(&as_received),
            parts: VecDeque::new(),
        };
        let first = match work.ask_own_model(&part) {
            Some(body) => body,
            None => {
                work.parts = work.split_record(&part)?.into();
                let first = work.parts.pop_front()?;
                work.ask_about_record(&first)
            }
        };
        Some((work, first))
    }

    /// Reads an answer with a success status, whole.
    pub fn read_answer(&mut self, answer: &[u8]) -> SummaryProgress {
        let block = SummaryBlock {
            key: &self.prompt.key,
            unkeyed: self.no_block,
        };
        let most = longest_summary(self.summariser.max_tokens);
        let text = match parse_summary(answer, block, most, &self.weights) {
            Ok(text) => text,
            Err(rejected) => return SummaryProgress::Failed(rejected),
        };
        if let Some(part) = self.parts.pop_front() {
            let record = transcript::show_earlier_summary(&text, &self.prompt.key) + &part;
            return SummaryProgress::Ask(self.ask_about_record(&record));
        }
        if self.weights.count_plain_tokens(&text) > self.range.replaced / 2 {
            return SummaryProgress::Failed(SummaryRejection::TooLittleSaved);
        }
        SummaryProgress::Done(Summary {
            boundary: self.range.boundary,
            text: text.into(),
        })
    }

    /// Requests that are still to come, the one that is being answered apart.
    pub fn remaining_requests(&self) -> usize {
        self.parts.len()
    }

    /// The request that repeats the conversation, where its own model can take that.
    fn ask_own_model(&self, part: &Conversation) -> Option<Bytes> {
        if !self.summariser.is_conversation_model {
            return None;
        }
        let tokens = message_tokens(part, &part.items, &self.weights, self.summariser.profile)
            .saturating_add(estimate::estimate_beside_messages(part, &self.weights))
            .saturating_add(
                self.weights
                    .count_plain_tokens(&self.prompt.write_final_message())
                    + FRAME_TOKENS,
            );
        if tokens > self.summariser.room {
            return None;
        }
        summary_request::build_summary_request(part, &self.prompt, &self.summariser)
    }

    /// The record in parts that fit.
    fn split_record(&self, part: &Conversation) -> Option<Vec<String>> {
        let empty = self
            .weights
            .count_plain_tokens(&self.prompt.write_record_message(""))
            + FRAME_TOKENS;
        let whole = self.summariser.room.checked_sub(empty)?;
        let split = |room| transcript::split_record(part, &self.prompt, room, &self.weights);
        // In one, where it fits; else there must be room for the summary of the parts before.
        if let Some(parts) = split(whole).filter(|parts| parts.len() == 1) {
            return Some(parts);
        }
        let room = whole.checked_sub(longest_summary(self.summariser.max_tokens) + FRAME_TOKENS)?;
        split(room).filter(|_| room >= LEAST_PART)
    }

    fn ask_about_record(&self, record: &str) -> Bytes {
        self.format.text_request(&TextRequest {
            model: &self.summariser.model,
            text: &self.prompt.write_record_message(record),
            limit: self.summariser.answer_limit(),
        })
    }
}

/// Whether anything in a conversation looks like a summary's block, also where a string of its JSON
/// holds JSON itself, as arguments do.
fn holds_block(part: &Conversation) -> bool {
    let decode = |raw: &[u8]| -> String {
        let letters = TextWalk::new(raw).filter_map(|it| char::from_u32(it.code));
        letters.collect()
    };
    let once = decode(&part.body);
    let twice = decode(once.as_bytes());
    fence::contains_tag(&once, fence::SUMMARY) || fence::contains_tag(&twice, fence::SUMMARY)
}

/// Raw tokens of these messages.
fn message_tokens<'a>(
    part: &Conversation,
    messages: impl IntoIterator<Item = &'a Item>,
    weights: &Weights,
    profile: &Profile,
) -> u32 {
    let tokens = |it: &Item| estimate::estimate_message(part, it, &it.sizes, weights, profile);
    messages
        .into_iter()
        .map(tokens)
        .fold(0, u32::saturating_add)
}

/// Raw tokens of the longest summary: the provider has counted its tokens already, and by another
/// rule, which takes English for less than the estimate does.
const fn longest_summary(max_tokens: u32) -> u32 {
    max_tokens.saturating_add(max_tokens / 2)
}

#[cfg(test)]
mod tests;
