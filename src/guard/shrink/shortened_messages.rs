//! The messages of one conversation as they are sent: their tokens, and what is cut of them. Tool results are cut by the
//! settings and the window. If the newest step is still too large, its calls are cut too. If the newest message is the
//! user's, its attachments are cut.

mod calls;
mod tighten;
mod tool_names;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128_with_seed;

pub(in crate::guard) use self::tighten::find_common_level;
pub use self::tool_names::ToolNames;
use crate::{
    conversation::{
        Author,
        edit::Edits,
        units::{self, UnitKind},
    },
    guard::{
        inject::placed_injections::PlacedInjections,
        request::view::RequestView,
        shrink::{
            clearing::{
                self,
                attachments::{self, AttachmentLimit},
            },
            result_limits::{
                FIRST_SHARE, KeyedLimit, LEAST_CHARS, RememberedLimit, TIGHT_SHARE, TruncationRule,
                chars_within_bytes, max_chars_for_rule, max_whole_chars,
            },
        },
        text::{
            asked_lines::AskedLines,
            truncate::{self, TruncationLimit, TruncationMarker},
        },
    },
    json::text::TextSizes,
};

/// Attempts to find a cut by the kinds of the text that is left. After these, every character counts as the heaviest.
const FIRST_ROUNDS: usize = 4;

/// A truncated message, for the log and for the client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruncationReport {
    pub message: usize,
    /// Empty for a message of the user.
    pub tool: String,
    /// Characters.
    #[serde(rename = "chars_before")]
    pub before: usize,
    #[serde(rename = "chars_after")]
    pub after: usize,
    /// Cut harder than by settings and window, because the step did not fit or the session was not healthy.
    pub tighter: bool,
    /// First cut so in this request.
    #[serde(skip)]
    pub new: bool,
    /// Not a result, but the arguments or the text of a message with calls.
    #[serde(skip)]
    pub call: bool,
}

/// A message that is cut: a result, a message with calls, or a user message with attachments.
#[derive(Clone, Debug, Default)]
struct ShortenedMessage {
    edits: Edits,
    /// The sizes of the text that is left of a result.
    sizes: TextSizes,
    /// What the session remembers; `None` if settings and window alone give the length of the message. In characters; for a
    /// user message, in raw tokens of its attachments.
    limit: Option<RememberedLimit>,
    /// One part; for a message with calls, one for the arguments of each cut call and one for the text.
    parts: Vec<CutPart>,
}

#[derive(Clone, Debug)]
struct CutPart {
    /// The tool that is called; `None` if the part is not of a message with calls.
    called: Option<String>,
    /// Characters.
    before: usize,
    after: usize,
}

/// All messages of a conversation, and those that are shortened: tool results; as the last resort the newest calls and
/// attachments.
pub(in crate::guard) struct ShortenedMessages<'a> {
    view: RequestView<'a>,
    /// Whether calls and results that do not pair stay as they came. If the provider manages the history, they do not: it
    /// holds their other halves. Found once, since it is needed for each unit.
    keeps_unpaired: bool,
    /// Raw tokens of every message as it goes out.
    pub(in crate::guard) tokens: Vec<u32>,
    shortened: BTreeMap<usize, ShortenedMessage>,
    /// Injected texts at the end of results, by message.
    blocks: BTreeMap<usize, TextSizes>,
    /// Answers whose text is edited for injected records, and so is not cut.
    echoes: BTreeSet<usize>,
}

impl<'a> ShortenedMessages<'a> {
    /// `tokens`: raw tokens of every message.
    pub(in crate::guard) fn new(view: RequestView<'a>, tokens: Vec<u32>) -> Self {
        Self {
            view,
            keeps_unpaired: view.conversation.managed_by_provider().is_none(),
            tokens,
            shortened: BTreeMap::new(),
            blocks: BTreeMap::new(),
            echoes: BTreeSet::new(),
        }
    }

    /// Leaves room for injected texts. A result and the block injected at its end are held to the limit together, so that a
    /// second pass, which takes both for the result, changes nothing.
    pub(in crate::guard) fn make_room(&mut self, injected: &PlacedInjections<'_>) {
        self.blocks = injected.measure_blocks();
        self.echoes = injected.list_echoed_answers();
    }

    /// Cuts every result that is too large for the settings or the window.
    pub(in crate::guard) fn truncate_long_results(&mut self) {
        let policy = self.view.policy;
        let (ends, tokens) = (policy.settings.truncated_ends(), self.tokens.len());
        let mut names = ToolNames::default();
        for at in self.list_results(0..tokens) {
            let block = self.blocks.get(&at).copied().unwrap_or_default();
            let bytes = chars_within_bytes(self.view, at, block.total_chars());
            let mut sizes = self.remaining_sizes(at);
            sizes += block;
            let rule = TruncationRule {
                chars: max_whole_chars(&sizes, &policy).min(bytes.unwrap_or(usize::MAX)),
                share: FIRST_SHARE,
                ends: Some(ends),
                marker: TruncationMarker::Plain,
            };
            self.cut_by_rule(at, &rule, Some(&mut names));
        }
    }

    /// What the call of a result asked for; `None` if the settings let a result keep nothing but its ends.
    fn find_asked_lines(&self, at: usize, names: &mut ToolNames) -> Option<AskedLines> {
        let RequestView {
            conversation,
            units,
            policy,
            ..
        } = self.view;
        if policy.settings.sets_result_form() {
            return None;
        }
        let call = names.find_call(conversation, units, at);
        let arguments = call.map(|call| conversation.decode_call(&call).1.into_owned());
        Some(AskedLines::from_arguments(&arguments.unwrap_or_default()))
    }

    /// Cuts results from message `from` on that are longer than `chars` characters or a small share of the window. Results
    /// of tools that the settings exclude from clearing stay. The session remembers the limits by digest, since the next
    /// request may have other limits. A result that equals an earlier one, call id included, is therefore not cut: its limit
    /// would cut the earlier one too.
    pub(in crate::guard) fn cut_nearly_full(&mut self, from: usize, chars: usize) {
        let rule = TruncationRule {
            chars: chars.max(LEAST_CHARS),
            share: TIGHT_SHARE,
            ends: None,
            marker: TruncationMarker::NearlyFull,
        };
        let digest = |at: &usize| self.view.item(*at).digest;
        let known: HashSet<u128> = self.list_results(0..from).iter().map(digest).collect();
        let mut new_results = self.list_results(from..self.tokens.len());
        let mut names = ToolNames::default();
        new_results.retain(|at| {
            !known.contains(&digest(at)) && !clearing::excludes_result(self.view, *at, &mut names)
        });
        for at in new_results {
            let limit = self.cut_by_rule(at, &rule, None);
            let limit = limit.map(|chars| RememberedLimit::new(chars, rule.marker));
            if let Some(cut) = self.shortened.get_mut(&at) {
                cut.limit = limit.or(cut.limit);
            }
        }
    }

    /// Cuts a result by a rule. Returns the limit that it was cut to. With the `names` of tools, lines that its call asked
    /// for stay between its ends.
    ///
    /// The text that is left may be denser than the whole text. It is therefore measured like any other result, and cut
    /// again until it is within its share. A second pass then changes nothing.
    fn cut_by_rule(
        &mut self,
        at: usize,
        rule: &TruncationRule,
        names: Option<&mut ToolNames>,
    ) -> Option<usize> {
        let now = self.remaining_sizes(at);
        let mut chars = self.max_chars(at, &now, rule);
        if now.total_chars() <= chars {
            return None;
        }
        let asked = names.and_then(|names| self.find_asked_lines(at, names));
        for round in 1.. {
            let limit = rule.limit_for_chars(chars);
            if !self.cut_result(at, limit, rule.marker, asked.as_ref(), None) {
                break;
            }
            let left = self.remaining_sizes(at);
            let mut next = self.max_chars(at, &left, rule);
            if left.total_chars() <= next {
                return Some(chars);
            }
            if round == FIRST_ROUNDS {
                next = next.min(self.min_chars_of(rule.share)).max(LEAST_CHARS);
            }
            if next >= chars {
                return Some(chars);
            }
            chars = next;
        }
        None
    }

    /// The sizes of a result's text as it is sent.
    fn remaining_sizes(&self, at: usize) -> TextSizes {
        let whole = || self.view.conversation.result_text_sizes(self.view.item(at));
        self.shortened.get(&at).map_or_else(whole, |cut| cut.sizes)
    }

    /// The longest result of this kind of text that a rule does not cut, in characters. An injected text at its end
    /// counts with it.
    fn max_chars(&self, at: usize, sizes: &TextSizes, rule: &TruncationRule) -> usize {
        let Some(&block) = self.blocks.get(&at) else {
            return max_chars_for_rule(sizes, rule, &self.view.policy);
        };
        let mut whole = *sizes;
        whole += block;
        let most = max_chars_for_rule(&whole, rule, &self.view.policy);
        most.saturating_sub(block.total_chars()).max(LEAST_CHARS)
    }

    /// Applies the limits that the session remembers.
    pub(in crate::guard) fn apply_remembered(&mut self, limits: &HashMap<u128, RememberedLimit>) {
        for at in 0..self.tokens.len() {
            if let Some(&limit) = limits.get(&self.limit_key(at)) {
                self.apply_limit(at, limit);
            }
        }
    }

    /// Cuts a message to a limit, which the session then remembers.
    fn apply_limit(&mut self, at: usize, limit: RememberedLimit) {
        let message = self.view.item(at);
        if message.author.is_tool() {
            let halves = TruncationLimit::with_halves(limit.amount());
            self.cut_result(at, halves, limit.marker(), None, Some(limit));
        } else if message.author == Author::User {
            self.limit_attachments(at, limit.amount());
        } else if !message.calls.is_empty() {
            self.limit_call_values(at, limit.amount());
        }
    }

    /// The edits of a message that is cut.
    pub(in crate::guard) fn edits_of(&self, at: usize) -> Option<&Edits> {
        self.shortened.get(&at).map(|cut| &cut.edits)
    }

    /// The remembered limit that message `at` has been cut to; `None` if settings and window alone limit it.
    fn limit_of(&self, at: usize) -> Option<RememberedLimit> {
        self.shortened.get(&at)?.limit
    }

    /// Whether the arguments or the text of a message with calls are cut.
    pub(in crate::guard) fn has_cut_calls(&self, at: usize) -> bool {
        self.view.item(at).author == Author::Model && self.shortened.contains_key(&at)
    }

    /// Adds the edits of the messages that are `sent`, and reports the cuts. The last request had the messages before
    /// `known`, and was cut with the limits that are `remembered`.
    pub(in crate::guard) fn collect_edits(
        &self,
        sent: impl Fn(usize) -> bool,
        known: usize,
        remembered: &[KeyedLimit],
        edits: &mut Edits,
    ) -> Vec<TruncationReport> {
        let remembered: HashMap<u128, RememberedLimit> = remembered.iter().copied().collect();
        let is_new = |at: usize, limit: RememberedLimit| {
            let before = remembered.get(&self.limit_key(at));
            before.is_none_or(|before| before.amount() != limit.amount())
        };
        let mut reports = Vec::new();
        let mut names = ToolNames::default();
        for (&at, cut) in self.shortened.iter().filter(|(at, _)| sent(**at)) {
            edits.merge(cut.edits.clone());
            let is_result = self.view.item(at).author.is_tool();
            let new = at >= known || cut.limit.is_some_and(|limit| is_new(at, limit));
            for part in &cut.parts {
                let RequestView {
                    conversation,
                    units,
                    ..
                } = self.view;
                let result_of = is_result.then(|| names.name_tool(conversation, units, at));
                reports.push(TruncationReport {
                    message: at,
                    tool: result_of
                        .or_else(|| part.called.clone())
                        .unwrap_or_default(),
                    before: part.before,
                    after: part.after,
                    tighter: cut.limit.is_some(),
                    new,
                    call: part.called.is_some(),
                });
            }
        }
        reports
    }

    /// The limits of the messages that are kept, by their keys.
    pub(in crate::guard) fn limits_to_remember(
        &self,
        kept: &[bool],
    ) -> impl Iterator<Item = KeyedLimit> {
        let cuts = self.shortened.iter().filter(|(at, _)| kept[**at]);
        cuts.filter_map(|(&at, cut)| Some((self.limit_key(at), cut.limit?)))
    }

    /// The key of a limit: the digest of its message. Users repeat themselves, so the place of a user message is part of its
    /// key; the place does not count system messages, which come and go.
    fn limit_key(&self, at: usize) -> u128 {
        let message = self.view.item(at);
        if message.author != Author::User {
            return message.digest;
        }
        let unit = &self.view.units[units::find_unit_of_message(self.view.units, at)];
        let place = unit.messages_before + at - unit.messages.start;
        xxh3_128_with_seed(&message.digest.to_le_bytes(), place as u64 + 1)
    }

    /// The results that may be cut.
    fn list_results(&self, messages: Range<usize>) -> Vec<usize> {
        let units = self.view.units;
        let is_kept = |at: usize| {
            let unit = units.get(units::find_unit_of_message(units, at));
            self.keeps_unpaired && unit.is_some_and(|unit| unit.kind == UnitKind::Other)
        };
        let is_result = |at: &usize| {
            let item = self.view.item(*at);
            item.author.is_tool() && !item.read_by_program && !is_kept(*at)
        };
        messages.filter(is_result).collect()
    }

    /// Characters of the heaviest kind of text that a share of the window holds.
    fn min_chars_of(&self, share: f64) -> usize {
        let share = self.view.policy.window_share(share);
        (share / self.view.token_weights().max_char_weight()) as usize
    }

    /// Cuts the attachments of a user message to `most` raw tokens, which the session then remembers.
    fn limit_attachments(&mut self, at: usize, most: usize) {
        let tokens = u32::try_from(most).unwrap_or(u32::MAX);
        let limit = AttachmentLimit::of_newest(tokens);
        if let Some(cut) = attachments::shorten_attachments(self.view, at, limit) {
            self.tokens[at] = cut.tokens;
            let part = CutPart {
                called: None,
                before: self.view.item(at).sizes.total_chars(),
                after: cut.sizes.total_chars(),
            };
            let cut = ShortenedMessage {
                edits: cut.edits,
                limit: Some(RememberedLimit::new(most, TruncationMarker::Plain)),
                parts: vec![part],
                ..ShortenedMessage::default()
            };
            self.shortened.insert(at, cut);
        }
    }

    /// Cuts one result. Returns whether it was cut. `remembered`: the limit that the session remembers from now on; with
    /// `None` it keeps the one that it has.
    fn cut_result(
        &mut self,
        at: usize,
        limit: TruncationLimit,
        marker: TruncationMarker,
        asked: Option<&AskedLines>,
        remembered: Option<RememberedLimit>,
    ) -> bool {
        let message = self.view.item(at);
        let (conversation, id) = (self.view.conversation, self.view.recall_id(at));
        let cut = truncate::cut_result(conversation, message, limit, marker, asked, id);
        let Some(cut) = cut else {
            return false;
        };
        let mut sizes = cut.sizes;
        sizes += self.view.conversation.opaque_sizes(message);
        self.tokens[at] = self.view.weigh_item(at, &sizes);
        let part = CutPart {
            called: None,
            before: cut.before,
            after: cut.after,
        };
        let cut = ShortenedMessage {
            edits: cut.edits,
            sizes: cut.sizes,
            limit: remembered.or(self.limit_of(at)),
            parts: vec![part],
        };
        self.shortened.insert(at, cut);
        true
    }
}
