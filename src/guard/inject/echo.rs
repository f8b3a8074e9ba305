//! Puts records into an answer that the client echoes: proxy-executed calls and texts that the client never saw. Text and
//! thinking that a tool round before the answer has already are removed from the answer. An answer that has nothing but
//! thinking of rounds keeps its last block here; `placed_injections.rs` leaves the whole answer out if it may.
//!
//! A record is left out whole if it cannot be put in without changing the client's text: the answer has other calls than it
//! had, a text has half a surrogate pair, or a part has a cache breakpoint.

mod echoed_answer;
mod repeated_blocks;

use std::borrow::Cow;

use self::echoed_answer::{EchoCut, EchoedAnswer, SpokenBefore};
pub(in crate::guard) use self::repeated_blocks::{RepeatedBlocks, digest_repeatable_blocks};
use crate::{
    conversation::{
        Conversation, Format, HiddenPlaces, Item,
        edit::Edits,
        units::{self, UnitKind},
    },
    guard::{
        inject::injections::{InjectedCall, InjectionContent},
        request::estimate::{self, Weights},
    },
    json::text,
};

/// The edits of one echoed answer.
#[derive(Clone, Debug, Default)]
pub(in crate::guard) struct Echo {
    pub(in crate::guard) edits: Edits,
    /// Injected calls.
    pub(in crate::guard) calls: u32,
    /// Their results, directly after the message.
    pub(in crate::guard) results: u32,
    /// Raw tokens of injected calls, results and text.
    pub(in crate::guard) tokens: u32,
    /// Raw tokens of removed text, which a round before the answer has already.
    pub(in crate::guard) spared: u32,
    /// Records that could not be put in.
    pub(in crate::guard) left_out: usize,
    /// A call is at another place than where the model wrote it, or a text could not be put there.
    pub(in crate::guard) moved: bool,
    /// Calls are sent without the ids by which the provider knows their reasoning.
    pub(in crate::guard) drops_ids: bool,
}

/// Puts the records of an answer into message `at`. `before`: the digests of the blocks of the rounds before the answer;
/// `None` if there are no rounds, so that nothing of them is removed. `drops_reasoning`: all other reasoning is removed too.
pub(in crate::guard) fn edit_echo(
    conversation: &Conversation,
    at: usize,
    records: &[&InjectionContent],
    before: Option<&[u128]>,
    drops_reasoning: bool,
    weights: &Weights,
) -> Echo {
    let mut echo = Echo::default();
    let message = &conversation.items[at];
    let repeated = RepeatedBlocks::find(conversation, message, before.unwrap_or_default());
    let repeated = repeated.keep_last();
    echo.spared = repeated.count_tokens(weights);
    let repeated = if drops_reasoning {
        repeated.with_all_reasoning()
    } else {
        repeated
    };
    let reasoning = conversation.format.rules().reasoning;
    if drops_reasoning && (repeated.are_all() || reasoning.is_outside_blocks()) {
        // The reasoning is a member next to the content, or it is the whole content.
        conversation.leave_out_reasoning(message, &mut echo.edits);
        if repeated.are_all() {
            echo.left_out += records.len();
            return echo;
        }
    }
    echo.drops_ids = drops_reasoning && reasoning.has_id();
    if echo.drops_ids {
        conversation.remove_ids(message, &mut echo.edits);
    }
    let mut added = Vec::new();
    let mut spoken = None;
    let mut places = &HiddenPlaces::default();
    for record in records {
        match record {
            InjectionContent::HiddenPlaces(hidden) => places = hidden,
            InjectionContent::Calls {
                client_calls,
                calls,
                results,
            } => {
                let fits = lists_calls(conversation, message, *client_calls)
                    && echo.add_calls(at, calls, places, results, &repeated, weights);
                echo.left_out += usize::from(!fits);
            }
            InjectionContent::Text { before_chars, text } => {
                let block = || {
                    let text = text::escape_text(text);
                    Some((places.text?, text))
                };
                match block() {
                    Some((behind, text)) => {
                        echo.add_text_block(&repeated, behind, &text, weights);
                    }
                    None => added.push((*before_chars as usize, &**text)),
                }
            }
            &&InjectionContent::Spoken { chars, digest } if before.is_some() => {
                let chars = chars as usize;
                spoken = Some(SpokenBefore { chars, digest });
            }
            InjectionContent::Spoken { .. } => echo.left_out += 1,
            InjectionContent::Prompt(_)
            | InjectionContent::Tools { .. }
            | InjectionContent::Round(_)
            | InjectionContent::DroppedRound { .. } => {}
        }
    }
    if !added.is_empty() || spoken.is_some() {
        match EchoedAnswer::from_item(conversation, message, &repeated) {
            Some(answer) => {
                echo.edit_text(&answer, &added, spoken, weights);
                return echo;
            }
            None => echo.left_out += usize::from(spoken.is_some()) + added.len(),
        }
    }
    repeated.remove_with_texts(0, &mut echo.edits);
    echo
}

/// Whether an answer has exactly `client_calls` calls, at least one, all of them in a list.
fn lists_calls(conversation: &Conversation, message: &Item, client_calls: u32) -> bool {
    let calls = conversation.calls_of(message);
    let same = client_calls > 0 && calls.len() == client_calls as usize;
    same && calls.iter().all(|call| call.listed)
}

/// Raw tokens of injected calls with their results; `None` where they do not pair.
fn weigh_step(
    format: Format,
    calls: &[InjectedCall],
    results: &[Box<str>],
    weights: &Weights,
) -> Option<u32> {
    let call_texts: Vec<&str> = calls.iter().map(|call| &*call.json).collect();
    let call_item = format.calls_item(&call_texts);
    let mut items = vec![&*call_item];
    items.extend(results.iter().map(|result| &**result));
    let indexed = format.index_items(&items)?;
    let units = units::split_units(&indexed);
    let is_step =
        matches!(&units[..], [unit] if unit.kind == UnitKind::Step && unit.is_removable());
    if !is_step || indexed.calls.len() != calls.len() || results.len() != calls.len() {
        return None;
    }
    Some(estimate::sum_tokens(estimate::estimate_messages(
        &indexed, weights,
    )))
}

impl Echo {
    /// Puts calls between the client's calls of message `at`, and their results after the message. `removed`: the blocks
    /// that are removed from the message. Returns false if calls and results do not pair.
    fn add_calls(
        &mut self,
        at: usize,
        calls: &[InjectedCall],
        places: &HiddenPlaces,
        results: &[Box<str>],
        removed: &RepeatedBlocks<'_>,
        weights: &Weights,
    ) -> bool {
        let conversation = removed.conversation;
        let Some(tokens) = weigh_step(conversation.format, calls, results, weights) else {
            return false;
        };
        let message = &conversation.items[at];
        let client_calls = conversation.calls_of(message);
        for (nth, InjectedCall { before, json }) in calls.iter().enumerate() {
            let json = if self.drops_ids {
                conversation.format.without_reasoning(json)
            } else {
                Cow::Borrowed(&**json)
            };
            if let Some(&behind) = places.calls.get(nth) {
                let behind_calls = client_calls.len() - (*before as usize).min(client_calls.len());
                if removed.insert_block(behind, behind_calls, &json, &mut self.edits) {
                    continue;
                }
                self.moved = true;
            }
            match (client_calls.get(*before as usize), client_calls.last()) {
                (Some(next), _) => self.edits.insert(next.span.start, format!("{json},")),
                (None, Some(last)) => self.edits.insert(last.span.end, format!(",{json}")),
                (None, None) => return false,
            }
        }
        conversation.insert_results(at, results, &mut self.edits);
        self.calls += calls.len() as u32;
        self.results += results.len() as u32;
        self.tokens = self.tokens.saturating_add(tokens);
        true
    }

    /// Puts a text back as a block of its own, or leaves it out.
    fn add_text_block(
        &mut self,
        removed: &RepeatedBlocks<'_>,
        behind: u32,
        escaped: &str,
        weights: &Weights,
    ) {
        let block = removed.conversation.format.text_in_answer(escaped);
        let calls = removed.count_calls_behind(behind);
        if removed.insert_block(behind, calls, &block, &mut self.edits) {
            let tokens = weights.count_json_tokens(escaped.as_bytes());
            self.tokens = self.tokens.saturating_add(tokens);
        } else {
            self.moved = true;
            self.left_out += 1;
        }
    }

    /// Removes the text that the round has already, and inserts each `added` text after its number of characters.
    fn edit_text(
        &mut self,
        answer: &EchoedAnswer<'_>,
        added: &[(usize, &str)],
        spoken: Option<SpokenBefore>,
        weights: &Weights,
    ) {
        let adds = added.iter().any(|(_, text)| !text.trim().is_empty());
        let calls = self.calls > 0 || !answer.message.calls.is_empty();
        let spoken = spoken.filter(|spoken| spoken.chars > 0);
        let cut = spoken.map_or(EchoCut::Nothing, |spoken| {
            answer.find_cut(spoken, adds, calls)
        });
        self.left_out += usize::from(spoken.is_some() && cut == EchoCut::Nothing);
        let removed = match cut {
            EchoCut::Nothing => {
                answer.remove_first(0, adds, &mut self.edits);
                0
            }
            EchoCut::All => {
                let empty = answer.conversation.format.rules().empty_content;
                self.edits.replace(answer.span, empty);
                self.spared += answer.count_tokens(usize::MAX, weights);
                self.left_out += added.len();
                return;
            }
            EchoCut::First(chars) => {
                answer.remove_first(chars, adds, &mut self.edits);
                self.spared += answer.count_tokens(chars, weights);
                chars
            }
        };
        let joined: String = added.iter().map(|(_, text)| *text).collect();
        let joined = [(0, joined.as_str())];
        // A null is replaced with one string, so the texts are joined.
        let added = if answer.is_null() && !added.is_empty() {
            &joined
        } else {
            added
        };
        for (before, text) in added {
            let escaped = text::escape_text(text);
            let tokens = weights.count_json_tokens(escaped.as_bytes());
            if answer.insert_text((*before).max(removed), removed, &escaped, &mut self.edits) {
                self.tokens = self.tokens.saturating_add(tokens);
            } else {
                self.left_out += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
