//! The tool results of one conversation: what each weighs, and how far each is cut. Where the newest step
//! is too large all the same, what its calls say is cut too.

mod calls;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::Range,
};

use self::calls::CallCut;
use super::{
    Policy, estimate,
    limits::{FIRST_SHARE, Held, LEAST_CHARS, Rule, TIGHT_SHARE, chars_within_bytes, within},
    truncate::{self, Cut, Limit, Marker},
    units::Unit,
};
use crate::{
    json::{
        scan::Text,
        text::{self, Sizes, Walk},
    },
    wire::{
        chat::{Content, Conversation, Message, PartKind, Role},
        edit::Edits,
    },
};

/// Rounds in which a step's results are brought down to what is left for them.
const TIGHTEN_ROUNDS: usize = 4;
/// Rounds in which a result is brought within its share by what it is made of.
const FIRST_ROUNDS: usize = 4;
/// Characters of a tool's name that are shown. Providers allow 64.
const NAME_CHARS: usize = 64;

/// A result that was truncated, for the log and for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// Its message.
    pub message: usize,
    pub tool: String,
    /// Characters.
    pub before: usize,
    pub after: usize,
    /// Cut harder than the first line would, because the step did not fit or the session was not
    /// healthy.
    pub tighter: bool,
    /// First seen in this request.
    pub new: bool,
    /// It is no result, but what a message that makes calls says: its arguments or its text.
    pub call: bool,
}

pub(super) struct Results<'a> {
    conversation: &'a Conversation,
    policy: &'a Policy<'a>,
    /// Raw tokens of every message, as it goes out.
    pub(super) tokens: Vec<u32>,
    cuts: BTreeMap<usize, Cut>,
    /// Messages whose calls are cut.
    calls: BTreeMap<usize, CallCut>,
    /// Messages with a limit of their own.
    tight: BTreeMap<usize, Held>,
    /// Texts of ours that go to the end of results.
    blocks: BTreeMap<usize, Sizes>,
    /// Answers whose text is edited otherwise: it is not cut.
    echoes: BTreeSet<usize>,
}

impl<'a> Results<'a> {
    pub(super) fn new(conversation: &'a Conversation, policy: &'a Policy<'a>) -> Self {
        let weights = policy.weights();
        let tokens = conversation
            .messages
            .iter()
            .map(|message| {
                estimate::message(
                    conversation,
                    message,
                    &message.sizes,
                    &weights,
                    policy.profile,
                )
            })
            .collect();
        Self {
            conversation,
            policy,
            tokens,
            cuts: BTreeMap::new(),
            calls: BTreeMap::new(),
            tight: BTreeMap::new(),
            blocks: BTreeMap::new(),
            echoes: BTreeSet::new(),
        }
    }

    /// Texts that will stand at the end of results: a result and its block together are held to
    /// the limits, so that a second pass finds nothing to do.
    pub(super) fn with_blocks(mut self, blocks: BTreeMap<usize, Sizes>) -> Self {
        self.blocks = blocks;
        self
    }

    /// Answers whose own text is edited by what echoes in it.
    pub(super) fn with_echoes(mut self, echoes: BTreeSet<usize>) -> Self {
        self.echoes = echoes;
        self
    }

    /// Cuts every result that is too large by the settings and the window alone.
    pub(super) fn first_line(&mut self) {
        for at in self.answers(0..self.tokens.len()) {
            self.first_cut(at);
        }
    }

    fn first_cut(&mut self, at: usize) {
        let settings = self.policy.settings;
        let message = &self.conversation.messages[at];
        let block = self.blocks.get(&at).map_or(0, Sizes::chars);
        let bytes = chars_within_bytes(self.conversation, message, block, self.policy.profile);
        let rule = Rule {
            chars: settings
                .max_tool_result_chars
                .min(bytes.unwrap_or(usize::MAX)),
            share: FIRST_SHARE,
            ends: Some((settings.truncate_head_chars, settings.truncate_tail_chars)),
            marker: Marker::Plain,
        };
        self.cut_by(at, &rule);
    }

    /// Cuts results from message `from` on that are longer than `chars` characters, or than a
    /// small part of the window. The limits are remembered, since the next request's may be others;
    /// by digest, so one that was sent whole before, call id and all, is left alone.
    pub(super) fn nearly_full(&mut self, from: usize, chars: usize) {
        let rule = Rule {
            chars: chars.max(LEAST_CHARS),
            share: TIGHT_SHARE,
            ends: None,
            marker: Marker::NearlyFull,
        };
        let digest = |at: usize| self.conversation.messages[at].digest;
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
            || text_sizes(self.conversation, &self.conversation.messages[at]),
            |cut| cut.sizes,
        )
    }

    /// The longest result of this kind of text that a rule leaves alone, in characters; what of
    /// ours goes to its end counts with it.
    fn most(&self, at: usize, sizes: &Sizes, rule: &Rule) -> usize {
        let Some(&block) = self.blocks.get(&at) else {
            return within(sizes, rule, self.policy);
        };
        let mut whole = *sizes;
        whole += block;
        let most = within(&whole, rule, self.policy);
        most.saturating_sub(block.chars()).max(LEAST_CHARS)
    }

    /// Applies the limits that the session remembers, by the messages' digests.
    pub(super) fn remembered(&mut self, limits: &[(u128, Held)]) {
        if limits.is_empty() {
            return;
        }
        let limits: HashMap<u128, Held> = limits.iter().rev().copied().collect();
        for (at, message) in self.conversation.messages.iter().enumerate() {
            match limits.get(&message.digest) {
                Some(&held) if message.role.answers() => self.hold(at, held),
                Some(held) if !message.calls.is_empty() => self.hold_calls(at, held.chars()),
                _ => {}
            }
        }
    }

    /// Whether what a message that makes calls says is cut.
    pub(super) fn has_cut_calls(&self, at: usize) -> bool {
        self.calls.contains_key(&at)
    }

    /// Makes one step smaller by `excess` raw tokens: its results, the largest first, and where that is
    /// not enough, what its calls say. Returns what it took, which is less where nothing more can go.
    pub(super) fn tighten(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let call = messages.start;
        let taken = self.tighten_results(messages, excess);
        match excess.saturating_sub(taken) {
            0 => taken,
            left => taken.saturating_add(self.tighten_calls(call, left)),
        }
    }

    fn tighten_results(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let answers = self.answers(messages);
        let weight = |this: &Self| {
            let tokens = answers.iter().map(|&at| this.tokens[at]);
            tokens.fold(0, u32::saturating_add)
        };
        let before = weight(self);
        let target = before.saturating_sub(excess);
        // Tokens are not spread evenly over a text: what is left may be denser than the whole.
        let mut aim = target;
        for _ in 0..TIGHTEN_ROUNDS {
            let now = weight(self);
            if now <= target {
                break;
            }
            let level = level(answers.iter().map(|&at| self.tokens[at]).collect(), aim);
            for &at in &answers {
                self.lower(at, level);
            }
            let over = weight(self).saturating_sub(target);
            aim = aim.saturating_sub(over.saturating_add(1));
        }
        before.saturating_sub(weight(self))
    }

    /// What was truncated of the results that `goes` names, with its edits.
    pub(super) fn made(
        &self,
        units: &[Unit],
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
                tool: names.tool(self.conversation, units, at),
                before: cut.before,
                after: cut.after,
                tighter: self.tight.contains_key(&at),
                new: at >= known,
                call: false,
            });
        }
        for (&at, cut) in self.calls.iter().filter(|(at, _)| goes(**at)) {
            edits.merge(cut.edits.clone());
            made.extend(cut.parts.iter().map(|part| {
                Truncated {
                    message: at,
                    tool: part
                        .tool
                        .map_or_else(String::new, |name| shown(self.conversation, name)),
                    before: part.before,
                    after: part.after,
                    tighter: true,
                    new: at >= known,
                    call: true,
                }
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
            .map(|(&at, &held)| (self.conversation.messages[at].digest, held))
    }

    fn answers(&self, messages: Range<usize>) -> Vec<usize> {
        messages
            .filter(|&at| self.conversation.messages[at].role.answers())
            .collect()
    }

    /// Characters that are within the share of the window whatever their kind.
    fn surely_within(&self, share: f64) -> usize {
        let share = share * f64::from(self.policy.window);
        (share / self.policy.weights().heaviest()) as usize
    }

    /// Brings one result down to so many raw tokens, in the proportion of its characters.
    fn lower(&mut self, at: usize, level: u32) {
        let now = self.tokens[at];
        if now <= level {
            return;
        }
        let chars = self
            .cuts
            .get(&at)
            .map_or(self.conversation.messages[at].sizes.chars(), |cut| {
                cut.after
            });
        let chars = chars as u64 * u64::from(level) / u64::from(now.max(1));
        let marker = self.tight.get(&at).map_or(Marker::Plain, |it| it.marker());
        self.hold(at, Held::new((chars as usize).max(LEAST_CHARS), marker));
    }

    /// Holds one result to a limit of its own.
    fn hold(&mut self, at: usize, held: Held) {
        let chars = held.chars();
        let limit = Limit {
            chars,
            head: chars / 2,
            tail: chars / 2,
        };
        if self.cut(at, limit, held.marker()) {
            self.tight.insert(at, held);
        }
    }

    fn cut(&mut self, at: usize, limit: Limit, marker: Marker) -> bool {
        let message = &self.conversation.messages[at];
        let Some(cut) = truncate::cut(self.conversation, message, limit, marker) else {
            return false;
        };
        let mut sizes = cut.sizes;
        sizes += other_sizes(self.conversation, message);
        self.tokens[at] = self.weigh(message, &sizes);
        self.cuts.insert(at, cut);
        true
    }

    fn weigh(&self, message: &Message, sizes: &Sizes) -> u32 {
        let weights = self.policy.weights();
        estimate::message(
            self.conversation,
            message,
            sizes,
            &weights,
            self.policy.profile,
        )
    }
}

/// The name of the tool that gave the result `at`: its own, or that of the call it answers; empty
/// where neither says.
pub fn tool(conversation: &Conversation, units: &[Unit], at: usize) -> String {
    Names::default().tool(conversation, units, at)
}

/// The names of the tools of one step, by the ids of its calls: one message may make very many.
#[derive(Default)]
pub(super) struct Names {
    step: Range<usize>,
    first: Option<Text>,
    by_id: HashMap<Option<u128>, Option<Text>>,
}

impl Names {
    /// The name of the tool that gave a result, as far as it is shown.
    pub(super) fn tool(
        &mut self,
        conversation: &Conversation,
        units: &[Unit],
        at: usize,
    ) -> String {
        let name = self.whole(conversation, units, at);
        name.map_or_else(String::new, |name| shown(conversation, name))
    }

    /// The name of the tool that gave a result: its own, or that of the call it answers.
    pub(super) fn whole(
        &mut self,
        conversation: &Conversation,
        units: &[Unit],
        at: usize,
    ) -> Option<Text> {
        let message = &conversation.messages[at];
        if !self.step.contains(&at) {
            self.enter(conversation, units, at);
        }
        let digest = |id: Text| text::digest(conversation.raw(id));
        let called = match message.role {
            Role::Function => self.first,
            _ => self
                .by_id
                .get(&message.call_id.map(digest))
                .copied()
                .flatten(),
        };
        message.name.or(called)
    }

    fn enter(&mut self, conversation: &Conversation, units: &[Unit], at: usize) {
        *self = Self::default();
        let Some(unit) = units.get(units.partition_point(|unit| unit.messages.end <= at)) else {
            return;
        };
        self.step = unit.messages.clone();
        let calls = conversation.calls(&conversation.messages[unit.messages.start]);
        self.first = calls.first().and_then(|call| call.name);
        for call in calls {
            let id = call.id.map(|id| text::digest(conversation.raw(id)));
            self.by_id.entry(id).or_insert(call.name);
        }
    }
}

/// A tool's name, as far as it is shown.
fn shown(conversation: &Conversation, name: Text) -> String {
    Walk::new(conversation.raw(name))
        .take(NAME_CHARS)
        .map(|character| char::from_u32(character.code).unwrap_or('\u{FFFD}'))
        .collect()
}

/// The sizes of the parts of a message that are neither text nor media: never cut.
fn other_sizes(conversation: &Conversation, message: &Message) -> Sizes {
    let mut sizes = Sizes::default();
    for part in conversation.parts(message) {
        if part.kind == PartKind::Other {
            sizes += conversation.measure(part.span);
        }
    }
    sizes
}

/// The sizes of the text of a result: what can be cut.
fn text_sizes(conversation: &Conversation, message: &Message) -> Sizes {
    let parts = conversation.parts(message);
    if parts.iter().all(|part| part.kind != PartKind::Other) {
        return message.sizes;
    }
    let mut sizes = Sizes::default();
    for part in parts {
        if let PartKind::Text(text) = part.kind {
            sizes += text::measure(conversation.raw(text));
        }
    }
    sizes
}

/// The sizes of the text beside the calls of a message that makes some.
fn text_sizes_of(conversation: &Conversation, message: &Message) -> Sizes {
    match &message.content {
        Content::Text(text) => text::measure(conversation.raw(*text)),
        Content::Parts(..) => {
            let mut sizes = Sizes::default();
            for part in conversation.parts(message) {
                if let PartKind::Text(text) = part.kind {
                    sizes += text::measure(conversation.raw(text));
                }
            }
            sizes
        }
        _ => Sizes::default(),
    }
}

/// The level to which the largest must come down so that all together weigh `target`.
pub(super) fn level(mut weights: Vec<u32>, target: u32) -> u32 {
    weights.sort_unstable();
    let mut left = target;
    for (place, &weight) in weights.iter().enumerate() {
        let share = left / (weights.len() - place) as u32;
        if weight > share {
            return share;
        }
        left -= weight;
    }
    weights.last().copied().unwrap_or(0)
}
