//! The tool results of one conversation: what each weighs, and how far each is cut.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use super::{
    Policy, estimate,
    truncate::{self, Cut, Limit},
    units::Unit,
};
use crate::wire::{
    chat::{Conversation, Message, PartKind, Role},
    edit::Edits,
    scan::Text,
    text::{self, Sizes, Walk},
};

/// No result is cut below this; characters.
const LEAST_CHARS: usize = 200;
/// The largest share of the window that one result may take.
const RESULT_SHARE: f64 = 0.3;
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
    /// Cut harder than the first line would, because the step did not fit.
    pub tighter: bool,
    /// First seen in this request.
    pub new: bool,
}

pub(super) struct Results<'a> {
    conversation: &'a Conversation,
    policy: &'a Policy<'a>,
    /// Raw tokens of every message, as it goes out.
    pub(super) tokens: Vec<u32>,
    cuts: BTreeMap<usize, Cut>,
    /// Messages with a limit of their own; characters.
    tight: BTreeMap<usize, u32>,
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
            tight: BTreeMap::new(),
        }
    }

    /// Cuts every result that is too large by the settings and the window alone.
    pub(super) fn first_line(&mut self) {
        for at in self.answers(0..self.tokens.len()) {
            self.first_cut(at);
        }
    }

    /// What stays may be of a denser kind of text than the whole was. So a cut is measured like
    /// any other result, and made again until it is within its share: a second pass over what
    /// was sent then finds nothing to do.
    fn first_cut(&mut self, at: usize) {
        let settings = self.policy.settings;
        let message = &self.conversation.messages[at];
        let mut chars = most_chars(&text_sizes(self.conversation, message), self.policy);
        for round in 1.. {
            let limit = Limit {
                chars,
                head: settings.truncate_head_chars,
                tail: settings.truncate_tail_chars,
            };
            if !self.cut(at, limit) {
                return;
            }
            let left = self
                .cuts
                .get(&at)
                .map_or_else(Sizes::default, |cut| cut.sizes);
            let mut next = most_chars(&left, self.policy);
            if left.chars() <= next {
                return;
            }
            if round == FIRST_ROUNDS {
                next = next.min(self.surely_within()).max(LEAST_CHARS);
            }
            chars = next;
        }
    }

    /// Applies the limits that the session remembers, by the messages' digests.
    pub(super) fn remembered(&mut self, limits: &[(u128, u32)]) {
        if limits.is_empty() {
            return;
        }
        let limits: HashMap<u128, u32> = limits.iter().rev().copied().collect();
        for at in self.answers(0..self.tokens.len()) {
            if let Some(&chars) = limits.get(&self.conversation.messages[at].digest) {
                self.hold(at, chars as usize);
            }
        }
    }

    /// Makes the results of one step smaller by `excess` raw tokens, the largest first. Returns
    /// what it took, which is less where nothing more can go.
    pub(super) fn tighten(&mut self, messages: Range<usize>, excess: u32) -> u32 {
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

    /// What was truncated and is still part of the conversation, with its edits.
    pub(super) fn made(
        &self,
        units: &[Unit],
        kept: &[bool],
        known: usize,
        edits: &mut Edits,
    ) -> Vec<Truncated> {
        let mut made = Vec::new();
        let mut names = Names::default();
        for (&at, cut) in self.cuts.iter().filter(|(at, _)| kept[**at]) {
            edits.merge(cut.edits.clone());
            made.push(Truncated {
                message: at,
                tool: names.tool(self.conversation, units, at),
                before: cut.before,
                after: cut.after,
                tighter: self.tight.contains_key(&at),
                new: at >= known,
            });
        }
        made
    }

    /// The limits to remember: those of messages that are still part of the conversation.
    pub(super) fn limits(&self, kept: &[bool]) -> Vec<(u128, u32)> {
        self.tight
            .iter()
            .filter(|(at, _)| kept[**at])
            .map(|(&at, &chars)| (self.conversation.messages[at].digest, chars))
            .collect()
    }

    fn answers(&self, messages: Range<usize>) -> Vec<usize> {
        messages
            .filter(|&at| self.conversation.messages[at].role.answers())
            .collect()
    }

    /// Characters that are within the share of the window whatever their kind.
    fn surely_within(&self) -> usize {
        let share = RESULT_SHARE * f64::from(self.policy.window);
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
        self.hold(at, (chars as usize).max(LEAST_CHARS));
    }

    /// Holds one result to a limit of its own.
    fn hold(&mut self, at: usize, chars: usize) {
        let limit = Limit {
            chars,
            head: chars / 2,
            tail: chars / 2,
        };
        if self.cut(at, limit) {
            self.tight.insert(at, chars as u32);
        }
    }

    fn cut(&mut self, at: usize, limit: Limit) -> bool {
        let message = &self.conversation.messages[at];
        let Some(cut) = truncate::cut(self.conversation, message, limit) else {
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

/// The longest result of this kind of text that is left alone, in characters: the configured
/// length, or the share of the window in tokens.
pub fn most_chars(sizes: &Sizes, policy: &Policy<'_>) -> usize {
    let configured = policy.settings.max_tool_result_chars;
    let share = RESULT_SHARE * f64::from(policy.window);
    let tokens = policy.weights().text(sizes);
    let chars = (sizes.chars() as f64 * share / tokens) as usize;
    if tokens <= share {
        // Rounding must not cut what is within its share.
        return configured.min(chars.max(sizes.chars()));
    }
    configured.min(chars).max(LEAST_CHARS)
}

/// The name of the tool that gave the result `at`: its own, or that of the call it answers; empty
/// where neither says.
pub fn tool(conversation: &Conversation, units: &[Unit], at: usize) -> String {
    Names::default().tool(conversation, units, at)
}

/// The names of the tools of one step, by the ids of its calls: one message may make very many.
#[derive(Default)]
struct Names {
    step: Range<usize>,
    first: Option<Text>,
    by_id: HashMap<Option<u128>, Option<Text>>,
}

impl Names {
    /// The name of the tool that gave a result: its own, or that of the call it answers.
    fn tool(&mut self, conversation: &Conversation, units: &[Unit], at: usize) -> String {
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
        message.name.or(called).map_or_else(String::new, |name| {
            Walk::new(conversation.raw(name))
                .take(NAME_CHARS)
                .map(|character| char::from_u32(character.code).unwrap_or('\u{FFFD}'))
                .collect()
        })
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

/// The sizes of the parts of a message that are neither text nor media: never cut.
fn other_sizes(conversation: &Conversation, message: &Message) -> Sizes {
    let mut sizes = Sizes::default();
    for part in conversation.parts(message) {
        if part.kind == PartKind::Other {
            sizes += text::measure(conversation.bytes(part.span));
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

/// The level to which the largest must come down so that all together weigh `target`.
fn level(mut weights: Vec<u32>, target: u32) -> u32 {
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
