//! The tool results of one conversation: what each weighs, and how far each is cut. Where the newest step
//! is too large all the same, what its calls say is cut too.

mod calls;
mod names;
mod tighten;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use serde::Serialize;

use self::calls::CallCut;
pub use self::names::tool;
pub(super) use self::{names::Names, tighten::level};
use super::{
    injected::Injected,
    limits::{FIRST_SHARE, Held, LEAST_CHARS, Rule, TIGHT_SHARE, chars_within_bytes, within},
    truncate::{self, Cut, Limit, Marker},
    view::View,
};
use crate::{conversation::edit::Edits, json::text::Sizes};

/// Rounds in which a result is brought within its share by what it is made of.
const FIRST_ROUNDS: usize = 4;

/// A result that was truncated, for the log and for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truncated {
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
pub(super) struct Results<'a> {
    view: View<'a>,
    /// Raw tokens of every message, as it goes out.
    pub(super) tokens: Vec<u32>,
    cuts: BTreeMap<usize, Cut>,
    /// Messages whose calls are cut.
    calls: BTreeMap<usize, CallCut>,
    /// Messages with a limit of their own.
    tight: BTreeMap<usize, Held>,
    /// Injected texts that go to the end of results.
    blocks: BTreeMap<usize, Sizes>,
    /// Answers whose text is edited otherwise: it is not cut.
    echoes: BTreeSet<usize>,
}

impl<'a> Results<'a> {
    /// `tokens`: raw ones of every message.
    pub(super) const fn new(view: View<'a>, tokens: Vec<u32>) -> Self {
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
    pub(super) fn make_room(&mut self, injected: &Injected<'_>) {
        self.blocks = injected.blocks();
        self.echoes = injected.echoes();
    }

    /// Cuts every result that is too large by the settings and the window alone.
    pub(super) fn first_line(&mut self) {
        let (settings, tokens) = (self.view.policy.settings, self.tokens.len());
        for at in self.answers(0..tokens) {
            let block = self.blocks.get(&at).map_or(0, Sizes::chars);
            let bytes = chars_within_bytes(self.view, at, block).unwrap_or(usize::MAX);
            let rule = Rule {
                chars: settings.max_tool_result_chars.min(bytes),
                share: FIRST_SHARE,
                ends: Some((settings.truncate_head_chars, settings.truncate_tail_chars)),
                marker: Marker::Plain,
            };
            self.cut_by(at, &rule);
        }
    }

    /// Cuts results from message `from` on that are longer than `chars` characters, or than a
    /// small part of the window. The limits are remembered, since the next request's may be others;
    /// by digest, so one that was sent whole before, call id and all, is left alone.
    pub(super) fn cut_nearly_full(&mut self, from: usize, chars: usize) {
        let rule = Rule {
            chars: chars.max(LEAST_CHARS),
            share: TIGHT_SHARE,
            ends: None,
            marker: Marker::NearlyFull,
        };
        let digest = |at: usize| self.view.item(at).digest;
        let known: HashSet<u128> = self.answers(0..from).into_iter().map(digest).collect();
        let mut fresh = self.answers(from..self.tokens.len());
        fresh.retain(|&at| !known.contains(&digest(at)));
        for at in fresh {
            if let Some(chars) = self.cut_by(at, &rule) {
                self.tight.insert(at, Held::new(chars, rule.marker));
            }
        }
    }

    /// Cuts a result by a rule; gives the limit that it was cut to.
    ///
    /// What stays may be of a denser kind of text than the whole was. So a cut is measured like
    /// any other result, and made again until it is within its share: a second pass over what
    /// was sent then finds nothing to do.
    fn cut_by(&mut self, at: usize, rule: &Rule) -> Option<usize> {
        let now = self.left(at);
        let mut chars = self.most(at, &now, rule);
        if now.chars() <= chars {
            return None;
        }
        for round in 1.. {
            if !self.cut(at, rule.limit(chars), rule.marker) {
                break;
            }
            let left = self.left(at);
            let mut next = self.most(at, &left, rule);
            if left.chars() <= next {
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
    fn left(&self, at: usize) -> Sizes {
        self.cuts.get(&at).map_or_else(
            || self.view.conversation.result_text_sizes(self.view.item(at)),
            |cut| cut.sizes,
        )
    }

    /// The longest result of this kind of text that a rule leaves alone, in characters; what of
    /// ours goes to its end counts with it.
    fn most(&self, at: usize, sizes: &Sizes, rule: &Rule) -> usize {
        let Some(&block) = self.blocks.get(&at) else {
            return within(sizes, rule, &self.view.policy);
        };
        let mut whole = *sizes;
        whole += block;
        let most = within(&whole, rule, &self.view.policy);
        most.saturating_sub(block.chars()).max(LEAST_CHARS)
    }

    /// Applies the limits that the session remembers, by the messages' digests.
    pub(super) fn apply_remembered(&mut self, limits: &[(u128, Held)]) {
        if limits.is_empty() {
            return;
        }
        let limits: HashMap<u128, Held> = limits.iter().rev().copied().collect();
        for (at, message) in self.view.conversation.items.iter().enumerate() {
            match limits.get(&message.digest) {
                Some(&held) if message.author.answers() => self.hold(at, held),
                Some(held) if !message.calls.is_empty() => self.hold_calls(at, held.chars()),
                _ => {}
            }
        }
    }

    /// Whether what a message that makes calls says is cut.
    pub(super) fn has_cut_calls(&self, at: usize) -> bool {
        self.calls.contains_key(&at)
    }

    /// What was truncated of the results that `goes` names, with its edits.
    pub(super) fn made(
        &self,
        goes: impl Fn(usize) -> bool,
        known: usize,
        edits: &mut Edits,
    ) -> Vec<Truncated> {
        let mut made = Vec::new();
        let mut names = Names::default();
        for (&at, cut) in self.cuts.iter().filter(|(at, _)| goes(**at)) {
            edits.merge(cut.edits.clone());
            made.push(Truncated {
                message: at,
                tool: names.shown(self.view, at),
                before: cut.before,
                after: cut.after,
                tighter: self.tight.contains_key(&at),
                new: at >= known,
                call: false,
            });
        }
        for (&at, cut) in self.calls.iter().filter(|(at, _)| goes(**at)) {
            edits.merge(cut.edits.clone());
            made.extend(cut.parts.iter().map(|part| Truncated {
                new: at >= known,
                ..part.clone()
            }));
        }
        made.sort_by_key(|cut| cut.message);
        made
    }

    /// The limits to remember: those of messages that are still part of the conversation.
    pub(super) fn limits(&self, kept: &[bool]) -> impl Iterator<Item = (u128, Held)> {
        self.tight
            .iter()
            .filter(|(at, _)| kept[**at])
            .map(|(&at, &held)| (self.view.item(at).digest, held))
    }

    fn answers(&self, messages: Range<usize>) -> Vec<usize> {
        messages
            .filter(|&at| self.view.item(at).author.answers())
            .collect()
    }

    /// Characters that are within the share of the window whatever their kind.
    fn surely_within(&self, share: f64) -> usize {
        let share = share * f64::from(self.view.policy.window);
        (share / self.view.policy.weights().heaviest()) as usize
    }

    /// Holds one result to a limit of its own.
    fn hold(&mut self, at: usize, held: Held) {
        let chars = held.chars();
        if self.cut(at, Limit::halves(chars), held.marker()) {
            self.tight.insert(at, held);
        }
    }

    fn cut(&mut self, at: usize, limit: Limit, marker: Marker) -> bool {
        let message = self.view.item(at);
        let Some(cut) = truncate::cut(self.view.conversation, message, limit, marker) else {
            return false;
        };
        let mut sizes = cut.sizes;
        sizes += self.view.conversation.opaque_sizes(message);
        self.tokens[at] = self.view.weigh(at, &sizes);
        self.cuts.insert(at, cut);
        true
    }
}
