//! What of ours stands between two messages of the client's: prompts and whole rounds.

use super::{
    Policy,
    estimate::Weights,
    lint::Item,
    place::{self, LABEL, Place},
    profile::Profile,
    record::What,
    rounds,
};
use crate::{
    json::text::{self, Sizes},
    wire::{
        chat::{Conversation, Role},
        edit::Edits,
    },
};

/// What frames a prompt that is a message of its own; raw tokens.
const FRAME_TOKENS: u32 = 6;

/// What stands between two messages.
#[derive(Default)]
pub(super) struct Between {
    pub(super) edits: Edits,
    pub(super) items: Vec<Item>,
    /// Raw tokens.
    pub(super) tokens: u32,
    /// Text at the end of the tool result before it.
    pub(super) block: Sizes,
    /// Whether a round is among it.
    pub(super) round: bool,
    pub(super) left_out: usize,
}

/// The gap between two messages while it is filled.
pub(super) struct Gap<'a> {
    conversation: &'a Conversation,
    profile: &'a Profile,
    before: usize,
    /// The role of the message after it.
    next: Option<Role>,
    /// The role of what was put there last; none while that is the client's message.
    last: Option<Role>,
    pub(super) between: Between,
}

impl<'a> Gap<'a> {
    pub(super) fn new(
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
    pub(super) fn add(&mut self, what: &What, weights: &Weights) -> bool {
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
        let before = self.conversation.messages[self.before].role;
        let mut last = self.last.unwrap_or(before);
        for &(role, _) in items {
            if !place::follows(last, role, self.profile) {
                return false;
            }
            last = role;
        }
        let ends = match self.next {
            // A rule that the client's own two messages break does not hold here.
            Some(next) => {
                place::follows(last, next, self.profile)
                    || !place::follows(before, next, self.profile)
            }
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
