//! What is injected between two messages of the client's: prompts and whole turns.

use super::{
    injected_turns,
    lint::Item,
    place::{self, LABEL, Place},
    record::{Said, What},
    view::View,
};
use crate::{
    conversation::{Author, edit::Edits},
    json::text::{self, Sizes},
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
    view: View<'a>,
    before: usize,
    /// The role of the message after it.
    next: Option<Author>,
    /// The role of what was put there last; none while that is the client's message.
    last: Option<Author>,
    pub(super) between: Between,
}

impl<'a> Gap<'a> {
    pub(super) fn new(view: View<'a>, before: usize, answer: Option<usize>) -> Self {
        Self {
            view,
            before,
            next: answer.map(|answer| view.item(answer).author),
            last: None,
            between: Between::default(),
        }
    }

    /// Adds a prompt or a turn, where it can stand there.
    pub(super) fn add(&mut self, what: &What) -> bool {
        let before = self.view.item(self.before).author;
        let (conversation, profile) = (self.view.conversation, self.view.policy.profile);
        // Only what was asked has anything injected after it.
        let place = place::of_prompt(conversation, self.before, profile);
        match (what, place) {
            (What::Round(said), Some(_)) => self.add_turn(said),
            (What::Round(said), None) if before == Author::User || before.answers() => {
                self.add_turn(said)
            }
            (What::Prompt(text), Some(place)) => self.add_prompt(text, place),
            _ => false,
        }
    }

    fn add_prompt(&mut self, text: &str, place: Place) -> bool {
        let weights = self.view.weights();
        if self.last.is_some() || place == Place::Message {
            let note = text::escape(text);
            let json = self.view.conversation.format.text_item(Author::User, &note);
            let tokens = weights
                .spelled(note.as_bytes())
                .saturating_add(FRAME_TOKENS);
            return self.say(&[Item::Ours(Author::User)], &json, tokens);
        }
        let note = match place {
            Place::Block => text::escape(&format!("{LABEL}\n{text}")),
            _ => text::escape(text),
        };
        let between = &mut self.between;
        let conversation = self.view.conversation;
        conversation.append_text(self.before, &note, &mut between.edits);
        if place == Place::Block {
            // With the empty line before it.
            between.block += text::measure(b"\\n\\n");
            between.block += text::measure(note.as_bytes());
        }
        let tokens = weights.spelled(note.as_bytes()).saturating_add(1);
        between.tokens = between.tokens.saturating_add(tokens);
        true
    }

    fn add_turn(&mut self, said: &[Said]) -> bool {
        let Some(turn) = injected_turns::read_turn(said, self.view) else {
            return false;
        };
        let json: Vec<&str> = said.iter().map(|message| &*message.json).collect();
        let stands = self.say(&turn.items, &json.join(","), turn.tokens);
        self.between.round |= stands;
        stands
    }

    /// Puts whole messages there, where each may follow the one before it.
    fn say(&mut self, items: &[Item], json: &str, tokens: u32) -> bool {
        let profile = self.view.policy.profile;
        let before = self.view.item(self.before);
        let mut last = self.last.unwrap_or(before.author);
        for item in items {
            let role = item.role(self.view.conversation);
            if !place::follows(last, role, profile) {
                return false;
            }
            last = role;
        }
        let ends = match self.next {
            // A rule that the client's own two messages break does not hold here.
            Some(next) => {
                place::follows(last, next, profile) || !place::follows(before.author, next, profile)
            }
            None => last != Author::Model,
        };
        if !ends {
            return false;
        }
        self.last = Some(last);
        self.between.items.extend(items);
        let at = before.span.end;
        self.between.edits.insert(at, format!(",{json}"));
        self.between.tokens = self.between.tokens.saturating_add(tokens);
        true
    }
}
