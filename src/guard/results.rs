//! The tool results of one conversation: what each weighs, and how far each is cut. Where the newest step
//! is too large all the same, what its calls say is cut too.

mod calls;
mod tighten;
mod tool_names;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use serde::Serialize;

use self::calls::CallCut;
pub use self::tool_names::find_tool_name;
pub(super) use self::{tighten::find_common_level, tool_names::ToolNames};
use super::{
    placed_injections::PlacedInjections,
    result_limits::{
        FIRST_SHARE, LEAST_CHARS, RememberedLimit, TIGHT_SHARE, TruncationRule, chars_within_bytes,
        max_chars_for_rule,
    },
    truncate::{self, ResultCut, TruncationLimit, TruncationMarker},
    view::RequestView,
};
use crate::{conversation::edit::Edits, json::text::TextSizes};

/// Rounds in which a result is brought within its share by what it is made of.
const FIRST_ROUNDS: usize = 4;

/// A result that was truncated, for the log and for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruncationReport {
    /// Its message.
    pub message: usize,
    pub tool: String,
    /// Characters.
    #[serde(rename = "chars_before")]
    pub before: usize,
    #[serde(rename = "chars_after")]
    pub after: usize,
    /// Cut harder than the first line would, because the step did not fit or the session was not
    /// healthy.
    pub tighter: bool,
    /// First seen in this request.
    #[serde(skip)]
    pub new: bool,
    /// It is no result, but what a message that makes calls says: its arguments or its text.
    #[serde(skip)]
    pub call: bool,
}

/// The tool results of a conversation, and the calls that are cut as the last resort.
pub(super) struct ToolResults<'a> {
    view: RequestView<'a>,
    /// Raw tokens of every message, as it goes out.
    pub(super) tokens: Vec<u32>,
    cuts: BTreeMap<usize, ResultCut>,
    /// Messages whose calls are cut.
    calls: BTreeMap<usize, CallCut>,
    /// Messages with a limit of their own.
    tight: BTreeMap<usize, RememberedLimit>,
    /// Injected texts that go to the end of results.
    blocks: BTreeMap<usize, TextSizes>,
    /// Answers whose text is edited otherwise: it is not cut.
    echoes: BTreeSet<usize>,
}

impl<'a> ToolResults<'a> {
    /// `tokens`: raw ones of every message.
    pub(super) const fn new(view: RequestView<'a>, tokens: Vec<u32>) -> Self {
        Self {
            view,
            tokens,
            cuts: BTreeMap::new(),
            calls: BTreeMap::new(),
            tight: BTreeMap::new(),
            blocks: BTreeMap::new(),
            echoes: BTreeSet::new(),
        }
    }

    /// Leaves room for what is injected: a result and the block at its end together are held to the limits,
    /// so that a second pass finds nothing to do, and a text that is edited otherwise is not cut.
    pub(super) fn make_room(&mut self, injected: &PlacedInjections<'_>) {
        self.blocks = injected.measure_blocks();
        self.echoes = injected.list_echoed_answers();
    }

    /// Cuts every result that is too large by the settings and the window alone.
    pub(super) fn apply_first_line(&mut self) {
        let (settings, tokens) = (self.view.policy.settings, self.tokens.len());
        for at in self.list_results(0..tokens) {
            let block = self.blocks.get(&at).map_or(0, TextSizes::total_chars);
            let bytes = chars_within_bytes(self.view, at, block).unwrap_or(usize::MAX);
            let rule = TruncationRule {
                chars: settings.max_tool_result_chars.min(bytes),
                share: FIRST_SHARE,
                ends: Some((settings.truncate_head_chars, settings.truncate_tail_chars)),
                marker: TruncationMarker::Plain,
            };
            self.cut_by_rule(at, &rule);
        }
    }

    /// Cuts results from message `from` on that are longer than `chars` characters, or than a
    /// small part of the window. The limits are remembered, since the next request's may be others;
    /// by digest, so one that was sent whole before, call id and all, is left alone.
    pub(super) fn cut_nearly_full(&mut self, from: usize, chars: usize) {
        let rule = TruncationRule {
            chars: chars.max(LEAST_CHARS),
            share: TIGHT_SHARE,
            ends: None,
            marker: TruncationMarker::NearlyFull,
        };
        let digest = |at: usize| self.view.item(at).digest;
        let known: HashSet<u128> = self.list_results(0..from).into_iter().map(digest).collect();
        let mut fresh = self.list_results(from..self.tokens.len());
        fresh.retain(|&at| !known.contains(&digest(at)));
        for at in fresh {
            if let Some(chars) = self.cut_by_rule(at, &rule) {
                self.tight
                    .insert(at, RememberedLimit::new(chars, rule.marker));
            }
        }
    }

    /// Cuts a result by a rule; gives the limit that it was cut to.
    ///
    /// What stays may be of a denser kind of text than the whole was. So a cut is measured like
    /// any other result, and made again until it is within its share: a second pass over what
    /// was sent then finds nothing to do.
    fn cut_by_rule(&mut self, at: usize, rule: &TruncationRule) -> Option<usize> {
        let now = self.remaining_sizes(at);
        let mut chars = self.max_chars(at, &now, rule);
        if now.total_chars() <= chars {
            return None;
        }
        for round in 1.. {
            if !self.cut_result(at, rule.limit_for_chars(chars), rule.marker) {
                break;
            }
            let left = self.remaining_sizes(at);
            let mut next = self.max_chars(at, &left, rule);
            if left.total_chars() <= next {
                return Some(chars);
            }
            if round == FIRST_ROUNDS {
                next = next.min(self.surely_within(rule.share)).max(LEAST_CHARS);
            }
            if next >= chars {
                return Some(chars);
            }
            chars = next;
        }
        None
    }

    /// The sizes of the text of a result, as far as it was cut.
    fn remaining_sizes(&self, at: usize) -> TextSizes {
        self.cuts.get(&at).map_or_else(
            || self.view.conversation.result_text_sizes(self.view.item(at)),
            |cut| cut.sizes,
        )
    }

    /// The longest result of this kind of text that a rule leaves alone, in characters; what of
    /// ours goes to its end counts with it.
    fn max_chars(&self, at: usize, sizes: &TextSizes, rule: &TruncationRule) -> usize {
        let Some(&block) = self.blocks.get(&at) else {
            return max_chars_for_rule(sizes, rule, &self.view.policy);
        };
        let mut whole = *sizes;
        whole += block;
        let most = max_chars_for_rule(&whole, rule, &self.view.policy);
        most.saturating_sub(block.total_chars()).max(LEAST_CHARS)
    }

    /// Applies the limits that the session remembers, by the messages' digests.
    pub(super) fn apply_remembered(&mut self, limits: &[(u128, RememberedLimit)]) {
        if limits.is_empty() {
            return;
        }
        let limits: HashMap<u128, RememberedLimit> = limits.iter().rev().copied().collect();
        for (at, message) in self.view.conversation.items.iter().enumerate() {
            match limits.get(&message.digest) {
                Some(&held) if message.author.is_tool() => self.apply_limit(at, held),
                Some(held) if !message.calls.is_empty() => self.limit_call_values(at, held.chars()),
                _ => {}
            }
        }
    }

    /// Whether what a message that makes calls says is cut.
    pub(super) fn has_cut_calls(&self, at: usize) -> bool {
        self.calls.contains_key(&at)
    }

    /// What was truncated of the results that `goes` names, with its edits.
    pub(super) fn collect_edits(
        &self,
        goes: impl Fn(usize) -> bool,
        known: usize,
        edits: &mut Edits,
    ) -> Vec<TruncationReport> {
        let mut made = Vec::new();
        let mut names = ToolNames::default();
        for (&at, cut) in self.cuts.iter().filter(|(at, _)| goes(**at)) {
            edits.merge(cut.edits.clone());
            made.push(TruncationReport {
                message: at,
                tool: names.shown_name(self.view, at),
                before: cut.before,
                after: cut.after,
                tighter: self.tight.contains_key(&at),
                new: at >= known,
                call: false,
            });
        }
        for (&at, cut) in self.calls.iter().filter(|(at, _)| goes(**at)) {
            edits.merge(cut.edits.clone());
            made.extend(cut.parts.iter().map(|part| TruncationReport {
                new: at >= known,
                ..part.clone()
            }));
        }
        made.sort_by_key(|cut| cut.message);
        made
    }

    /// The limits to remember: those of messages that are still part of the conversation.
    pub(super) fn limits_to_remember(
        &self,
        kept: &[bool],
    ) -> impl Iterator<Item = (u128, RememberedLimit)> {
        self.tight
            .iter()
            .filter(|(at, _)| kept[**at])
            .map(|(&at, &held)| (self.view.item(at).digest, held))
    }

    fn list_results(&self, messages: Range<usize>) -> Vec<usize> {
        messages
            .filter(|&at| self.view.item(at).author.is_tool())
            .collect()
    }

    /// Characters that are within the share of the window whatever their kind.
    fn surely_within(&self, share: f64) -> usize {
        let share = share * f64::from(self.view.policy.window);
        (share / self.view.policy.token_weights().max_char_weight()) as usize
    }

    /// Holds one result to a limit of its own.
    fn apply_limit(&mut self, at: usize, held: RememberedLimit) {
        let chars = held.chars();
        if self.cut_result(at, TruncationLimit::with_halves(chars), held.marker()) {
            self.tight.insert(at, held);
        }
    }

    fn cut_result(&mut self, at: usize, limit: TruncationLimit, marker: TruncationMarker) -> bool {
        let message = self.view.item(at);
        let Some(cut) = truncate::cut_result(self.view.conversation, message, limit, marker) else {
            return false;
        };
        let mut sizes = cut.sizes;
        sizes += self.view.conversation.opaque_sizes(message);
        self.tokens[at] = self.view.weigh_item(at, &sizes);
        self.cuts.insert(at, cut);
        true
    }
}
