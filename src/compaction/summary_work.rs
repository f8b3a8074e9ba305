//! The requests and answers of one summary.
//!
//! If the conversation's model writes the summary and has room for it, one request repeats the conversation. If not,
//! the requests hold parts of a transcript, each with the summary of the parts before.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    Summariser, SummaryRange,
    parse_summary::{SummaryBlock, SummaryRejection, parse_summary},
    prompt::SummaryPrompt,
    summary_request, transcript,
};
use crate::{
    conversation::{Conversation, Format, Item, edit::Edits, units},
    format::TextRequest,
    guard::{
        estimate::{self, Weights},
        fence,
        injections::Summary,
        lint,
    },
    json::text::TextWalk,
};

/// Framing of a request, in raw tokens.
const FRAME_TOKENS: u32 = 32;
/// Smallest part of a transcript that is worth a request, in raw tokens.
const LEAST_PART: u32 = 256;

/// What follows an answer.
pub enum SummaryProgress {
    /// Another request, a whole body in the conversation's format.
    Ask(Bytes),
    Done(Summary),
}

/// A summary in progress. Not `Debug`, since it holds texts of the conversation.
pub struct SummaryWork {
    format: Format,
    summariser: Summariser,
    prompt: SummaryPrompt,
    range: SummaryRange,
    /// The client's messages hold nothing like a summary block, so a block without a key counts.
    accept_unkeyed: bool,
    /// Whether the only request repeats the conversation, so that it begins as the requests before it. If not, each
    /// request has a part of a transcript.
    pub repeats_conversation: bool,
    /// Parts of the transcript that were not sent yet.
    parts: VecDeque<String>,
}

impl SummaryWork {
    /// The first request. `edits` are those with which the conversation was sent. `None` if the model has no room for a
    /// request, or if the conversation cannot be cut at the boundary.
    pub fn begin_summary(
        conversation: &Conversation,
        edits: &Edits,
        range: SummaryRange,
        summariser: Summariser,
    ) -> Option<(Self, Bytes)> {
        units::find_unit_after(&units::split_units(conversation), range.boundary)?;
        let cut = |edits| summary_request::cut_at_boundary(conversation, edits, range.boundary);
        let part = cut(edits)?;
        let units = units::split_units(&part);
        // Without the proxy's preface, which may hold the block of the earlier summary.
        let as_received = cut(&Edits::default())?;
        let weights = summariser.weights;
        let removed = units.iter().filter(|unit| unit.is_removable());
        let removed = removed.flat_map(|unit| &part.items[unit.unbound_messages()]);
        // Messages count as they were sent: the summary saves nothing of what the guard truncated or cleared.
        let removed = message_tokens(&part, removed, &weights);
        let replaced = range.replaced.min(removed);
        let (language, max_tokens) = (summariser.language, summariser.max_tokens);
        let mut work = Self {
            format: conversation.format,
            prompt: SummaryPrompt::new(language, summariser.nonce, max_tokens, replaced),
            summariser,
            range: SummaryRange { replaced, ..range },
            accept_unkeyed: !holds_block(&as_received),
            repeats_conversation: false,
            parts: VecDeque::new(),
        };
        if let Some(body) = work.repeat_conversation(&part) {
            work.repeats_conversation = true;
            return Some((work, body));
        }
        work.parts = work.split_record(&part)?.into();
        let first = work.parts.pop_front()?;
        let body = work.request_for_record(&first);
        Some((work, body))
    }

    /// Reads the whole body of an answer with a success status.
    ///
    /// # Errors
    /// If the answer is no summary. Then the work has ended.
    pub fn read_answer(&mut self, answer: &[u8]) -> Result<SummaryProgress, SummaryRejection> {
        let block = SummaryBlock {
            key: &self.prompt.key,
            accept_unkeyed: self.accept_unkeyed,
        };
        let most = longest_summary(self.summariser.max_tokens);
        let weights = &self.summariser.weights;
        let text = parse_summary(self.format, answer, block, most, weights)?;
        if let Some(part) = self.parts.pop_front() {
            let record = transcript::show_earlier_summary(&text, &self.prompt.key) + &part;
            return Ok(SummaryProgress::Ask(self.request_for_record(&record)));
        }
        if weights.count_plain_tokens(&text) > self.range.replaced / 2 {
            return Err(SummaryRejection::TooLittleSaved);
        }
        Ok(SummaryProgress::Done(Summary {
            boundary: self.range.boundary,
            text: text.into(),
        }))
    }

    /// Requests still to come after the current one.
    pub fn remaining_requests(&self) -> usize {
        self.parts.len()
    }

    /// The request that repeats the conversation, if its model summarises and has room for it.
    fn repeat_conversation(&self, part: &Conversation) -> Option<Bytes> {
        let Summariser {
            profile, weights, ..
        } = &self.summariser;
        if !self.summariser.may_repeat_conversation || !lint::is_fully_paired(part, profile) {
            return None;
        }
        let messages = message_tokens(part, &part.items, weights);
        let beside = estimate::estimate_outside_messages(part, weights);
        let prompt = weights.count_plain_tokens(&self.prompt.write_final_message());
        let tokens = messages
            .saturating_add(beside)
            .saturating_add(prompt + FRAME_TOKENS);
        if tokens > self.summariser.room {
            return None;
        }
        summary_request::build_summary_request(part, &self.prompt, &self.summariser)
    }

    /// The transcript in parts that fit.
    fn split_record(&self, part: &Conversation) -> Option<Vec<String>> {
        let empty_prompt = self.prompt.write_record_message("");
        let weights = &self.summariser.weights;
        let empty = weights.count_plain_tokens(&empty_prompt) + FRAME_TOKENS;
        let whole = self.summariser.room.checked_sub(empty)?;
        let split = |room| transcript::split_record(part, &self.prompt, room, weights);
        // If one part is not enough, each part needs room for the summary of the parts before.
        if let Some(parts) = split(whole).filter(|parts| parts.len() == 1) {
            return Some(parts);
        }
        let room = whole.checked_sub(longest_summary(self.summariser.max_tokens) + FRAME_TOKENS)?;
        split(room).filter(|_| room >= LEAST_PART)
    }

    fn request_for_record(&self, record: &str) -> Bytes {
        self.format.text_request(&TextRequest {
            model: &self.summariser.model,
            text: &self.prompt.write_record_message(record),
            limit: self.summariser.answer_limit(),
        })
    }
}

/// Whether anything in a conversation looks like a summary block, also in JSON within a string, such as call arguments.
fn holds_block(part: &Conversation) -> bool {
    let decode = |raw: &[u8]| -> String {
        let chars = TextWalk::new(raw).filter_map(|walked| char::from_u32(walked.code));
        chars.collect()
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
) -> u32 {
    let messages = messages.into_iter();
    estimate::sum_tokens(
        messages.map(|it| estimate::estimate_message(part, it, &it.sizes, weights)),
    )
}

/// Raw tokens of the longest summary. The provider counts `max_tokens`: of English text it counts fewer tokens than the
/// estimate does.
const fn longest_summary(max_tokens: u32) -> u32 {
    max_tokens.saturating_add(max_tokens / 2)
}

#[cfg(test)]
mod tests;
