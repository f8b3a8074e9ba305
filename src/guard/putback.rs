//! Puts the records of a course back at their places: what was sent once is sent ever after, so
//! that the prefix stays the same and the model sees what it was told and what it did.
//!
//! A record stands and falls with the messages around it: where one of them is folded away, so is
//! the record. One that cannot stand where it should is left out alone, and counted.

use std::collections::BTreeMap;

use super::{
    Policy,
    echo::{self, Echo},
    estimate::Weights,
    lint::Item,
    place::{self, LABEL, Place},
    profile::Profile,
    record::{Ours, Record, What},
    rounds,
    units::{self, Unit},
};
use crate::wire::{
    chat::{Conversation, Role},
    edit::Edits,
    text::{self, Sizes},
};

/// What frames a prompt that is a message of its own; raw tokens.
const FRAME_TOKENS: u32 = 6;

/// All records of a conversation, and what becomes of each.
pub(super) struct Putback<'a> {
    conversation: &'a Conversation,
    weights: Weights,
    standing: Vec<Standing<'a>>,
    /// Records without a place in this conversation.
    astray: usize,
}

/// What stands at one place.
struct Standing<'a> {
    /// In messages without system ones.
    place: u32,
    /// The message before it.
    before: usize,
    /// The answer there, where it was echoed.
    answer: Option<usize>,
    between: Between,
    /// What belongs into the answer.
    into: Vec<&'a What>,
}

/// What stands between two messages.
#[derive(Default)]
struct Between {
    edits: Edits,
    items: Vec<Item>,
    /// Raw tokens.
    tokens: u32,
    /// Text at the end of the tool result before it.
    block: Sizes,
    /// Whether a round is among it.
    round: bool,
    left_out: usize,
}

/// What the records weigh; raw tokens.
pub(super) struct Weighed {
    /// To be added to each unit.
    pub(super) units: Vec<i64>,
    /// Beside all units that may go.
    pub(super) beside: i64,
    /// Of all that, what came since the last request.
    pub(super) fresh: i64,
}

impl<'a> Putback<'a> {
    pub(super) fn new(
        conversation: &'a Conversation,
        units: &[Unit],
        policy: &Policy<'_>,
        ours: &'a Ours,
    ) -> Self {
        let mut this = Self {
            conversation,
            weights: policy.weights(),
            standing: Vec::new(),
            astray: 0,
        };
        if ours.records.is_empty() {
            return this;
        }
        let messages = conversation.messages.iter().enumerate();
        let said: Vec<usize> = messages
            .filter(|(_, message)| !message.role.instructs())
            .map(|(at, _)| at)
            .collect();
        let past = ours.course.as_ref().map_or(0, |course| course.boundary);
        let mut places: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
        for record in ours.records.iter().filter(|record| record.place >= past) {
            places.entry(record.place).or_default().push(record);
        }
        for (place, records) in places {
            let before = (place as usize).checked_sub(1);
            let Some(&before) = before.and_then(|before| said.get(before)) else {
                this.astray += records.len();
                continue;
            };
            let answer = said.get(place as usize).copied();
            let (between, into): (Vec<_>, Vec<_>) = records
                .iter()
                .map(|record| &record.what)
                .partition(|what| matches!(what, What::Prompt(_) | What::Round(_)));
            // Not in the middle of a step.
            let apart = answer.is_none_or(|answer| unit(units, answer) != unit(units, before));
            let mut gap = Gap::new(conversation, before, answer, policy);
            for what in between {
                let stands = apart && gap.add(what, &this.weights);
                gap.between.left_out += usize::from(!stands);
            }
            this.standing.push(Standing {
                place,
                before,
                answer,
                between: gap.between,
                into,
            });
        }
        this
    }

    /// Texts that stand at the end of tool results, by their messages.
    pub(super) fn blocks(&self) -> BTreeMap<usize, Sizes> {
        let blocks = self.standing.iter();
        blocks
            .filter(|standing| standing.between.block.chars() > 0)
            .map(|standing| (standing.before, standing.between.block))
            .collect()
    }

    /// What the records weigh beside each unit; a request with `known` messages came before.
    pub(super) fn weigh(&self, units: &[Unit], known: usize) -> Weighed {
        let mut weighed = Weighed {
            units: vec![0; units.len()],
            beside: 0,
            fresh: 0,
        };
        let pinned = units::pinned(units);
        let goes = |at: usize| at >= pinned && !units[at].stays;
        for standing in &self.standing {
            let echo = self.echo(standing, true);
            let between = i64::from(standing.between.tokens) - i64::from(echo.spared);
            let answer = standing.answer.map(|answer| unit(units, answer));
            let before = Some(unit(units, standing.before)).filter(|&at| goes(at));
            // What is pinned never goes, but the record goes with what follows.
            match before.or(answer.filter(|&at| goes(at))) {
                Some(at) => weighed.units[at] += between,
                None => weighed.beside += between,
            }
            if let Some(at) = answer {
                weighed.units[at] += i64::from(echo.tokens);
            }
            let place = standing.place as usize;
            if place > known {
                weighed.fresh += between;
            }
            if place >= known {
                weighed.fresh += i64::from(echo.tokens);
            }
        }
        weighed
    }

    /// Puts everything back that stands among the messages that are `kept`: notes the edits, and
    /// gives the messages of the edited conversation and how many records had to be left out.
    pub(super) fn put(
        &self,
        kept: &[bool],
        outline: Vec<Item>,
        edits: &mut Edits,
    ) -> (Vec<Item>, usize) {
        let mut left_out = self.astray;
        let mut after: BTreeMap<usize, Vec<Item>> = BTreeMap::new();
        let mut calls: BTreeMap<usize, u32> = BTreeMap::new();
        for standing in &self.standing {
            let answered = standing.answer.is_none_or(|answer| kept[answer]);
            let stands = kept[standing.before] && answered;
            if stands {
                let between = &standing.between;
                edits.merge(between.edits.clone());
                let items = after.entry(standing.before).or_default();
                items.extend(&between.items);
                left_out += between.left_out;
            }
            let Some(answer) = standing.answer else {
                left_out += standing.into.len();
                continue;
            };
            if kept[answer] {
                let echo = self.echo(standing, stands);
                edits.merge(echo.edits);
                left_out += echo.left_out;
                *calls.entry(answer).or_default() += echo.calls;
                let items = after.entry(answer).or_default();
                items.extend((0..echo.results).map(|_| Item::Answers));
            }
        }
        if after.is_empty() {
            return (outline, left_out);
        }
        let mut whole = Vec::with_capacity(outline.len() + after.len());
        for item in outline {
            let Item::Theirs(at) = item else {
                whole.push(item);
                continue;
            };
            whole.push(match calls.get(&at) {
                Some(&calls) if calls > 0 => Item::With(at, calls),
                _ => item,
            });
            whole.extend(after.remove(&at).unwrap_or_default());
        }
        (whole, left_out)
    }

    /// What becomes of the echoed answer of a place, whose rounds stand before it or not.
    fn echo(&self, standing: &Standing<'_>, stands: bool) -> Echo {
        let answer = standing
            .answer
            .filter(|&at| self.conversation.messages[at].role == Role::Assistant);
        match answer {
            Some(answer) if !standing.into.is_empty() => echo::echo(
                self.conversation,
                answer,
                &standing.into,
                stands && standing.between.round,
                &self.weights,
            ),
            _ => Echo {
                left_out: standing.into.len(),
                ..Echo::default()
            },
        }
    }
}

/// The gap between two messages while it is filled.
struct Gap<'a> {
    conversation: &'a Conversation,
    profile: &'a Profile,
    before: usize,
    /// The role of the message after it.
    next: Option<Role>,
    /// The role of what was put there last; none while that is the client's message.
    last: Option<Role>,
    between: Between,
}

impl<'a> Gap<'a> {
    fn new(
        conversation: &'a Conversation,
        before: usize,
        answer: Option<usize>,
        policy: &Policy<'a>,
    ) -> Self {
        Self {
            conversation,
            profile: policy.profile,
            before,
            next: answer.map(|answer| conversation.messages[answer].role),
            last: None,
            between: Between::default(),
        }
    }

    /// Adds a prompt or a round, where it can stand there.
    fn add(&mut self, what: &What, weights: &Weights) -> bool {
        // Only what was asked has anything of ours after it.
        let Some(place) = place::of_prompt(self.conversation, self.before, self.profile) else {
            return matches!(what, What::Round(_)) && self.asks() && self.round(what, weights);
        };
        match what {
            What::Prompt(text) if self.last.is_some() || place == Place::Message => {
                let note = text::escape(text);
                let json = format!(r#"{{"role":"user","content":"{note}"}}"#);
                let tokens = rounds::tokens(&note, weights).saturating_add(FRAME_TOKENS);
                self.say(&[(Role::User, Item::Ours(Role::User))], &json, tokens)
            }
            What::Prompt(text) => {
                let note = match place {
                    Place::Block => text::escape(&format!("{LABEL}\n{text}")),
                    _ => text::escape(text),
                };
                let edits = &mut self.between.edits;
                place::paragraph(self.conversation, self.before, &note, edits);
                if place == Place::Block {
                    // With the empty line before it.
                    self.between.block += text::measure(b"\\n\\n");
                    self.between.block += text::measure(note.as_bytes());
                }
                let tokens = rounds::tokens(&note, weights).saturating_add(1);
                self.between.tokens = self.between.tokens.saturating_add(tokens);
                true
            }
            _ => self.round(what, weights),
        }
    }

    fn asks(&self) -> bool {
        let role = self.conversation.messages[self.before].role;
        role == Role::User || role.answers()
    }

    fn round(&mut self, what: &What, weights: &Weights) -> bool {
        let What::Round(said) = what else {
            return false;
        };
        let Some(round) = rounds::round(said, weights, self.profile) else {
            return false;
        };
        let items: Vec<_> = round.roles.into_iter().zip(round.items).collect();
        let json: Vec<&str> = said.iter().map(|message| &*message.json).collect();
        let stands = self.say(&items, &json.join(","), round.tokens);
        self.between.round |= stands;
        stands
    }

    /// Puts whole messages there, where each may follow the one before it.
    fn say(&mut self, items: &[(Role, Item)], json: &str, tokens: u32) -> bool {
        let mut last = self
            .last
            .unwrap_or(self.conversation.messages[self.before].role);
        for &(role, _) in items {
            if !place::follows(last, role, self.profile) {
                return false;
            }
            last = role;
        }
        let ends = match self.next {
            Some(next) => place::follows(last, next, self.profile),
            None => last != Role::Assistant,
        };
        if !ends {
            return false;
        }
        self.last = Some(last);
        self.between
            .items
            .extend(items.iter().map(|(_, item)| *item));
        let at = self.conversation.messages[self.before].span.end;
        self.between.edits.insert(at, format!(",{json}"));
        self.between.tokens = self.between.tokens.saturating_add(tokens);
        true
    }
}

/// The unit that a message is part of.
fn unit(units: &[Unit], message: usize) -> usize {
    units.partition_point(|unit| unit.messages.end <= message)
}
