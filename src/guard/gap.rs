//! What is injected between two messages of the client's: prompts and whole turns.

use super::{
    injected_turns,
    injections::{InjectedMessage, InjectionContent},
    lint::OutlineItem,
    prompt_placement::{self, LABEL, PromptPlacement},
    view::RequestView,
};
use crate::{
    conversation::{Author, edit::Edits},
    json::text::{self, TextSizes},
};

/// What frames a prompt that is a message of its own; raw tokens.
const FRAME_TOKENS: u32 = 6;

/// What stands between two messages.
#[derive(Default)]
pub(super) struct GapContents {
    pub(super) edits: Edits,
    pub(super) items: Vec<OutlineItem>,
    /// Raw tokens.
    pub(super) tokens: u32,
    /// Text at the end of the tool result before it.
    pub(super) block: TextSizes,
    /// Whether a round is among it.
    pub(super) round: bool,
    pub(super) left_out: usize,
}

/// The gap between two messages while it is filled.
pub(super) struct Gap<'a> {
    view: RequestView<'a>,
    before: usize,
    /// The role of the message after it.
    next: Option<Author>,
    /// The role of what was put there last; none while that is the client's message.
    last: Option<Author>,
    pub(super) between: GapContents,
}

impl<'a> Gap<'a> {
    pub(super) fn new(view: RequestView<'a>, before: usize, answer: Option<usize>) -> Self {
        Self {
            view,
            before,
            next: answer.map(|answer| view.item(answer).author),
            last: None,
            between: GapContents::default(),
        }
    }

    /// Adds a prompt or a turn, where it can stand there.
    pub(super) fn add_content(&mut self, what: &InjectionContent) -> bool {
        let before = self.view.item(self.before).author;
        let (conversation, profile) = (self.view.conversation, self.view.policy.profile);
        // Only what was asked has anything injected after it.
        let place = prompt_placement::find_prompt_placement(conversation, self.before, profile);
        match (what, place) {
            (InjectionContent::Round(said), Some(_)) => self.add_turn(said),
            (InjectionContent::Round(said), None) if before == Author::User || before.is_tool() => {
                self.add_turn(said)
            }
            (InjectionContent::Prompt(text), Some(place)) => self.add_prompt(text, place),
            _ => false,
        }
    }

    fn add_prompt(&mut self, text: &str, place: PromptPlacement) -> bool {
        let weights = self.view.token_weights();
        if self.last.is_some() || place == PromptPlacement::Message {
            let note = text::escape_text(text);
            let json = self.view.conversation.format.text_item(Author::User, &note);
            let tokens = weights
                .count_json_tokens(note.as_bytes())
                .saturating_add(FRAME_TOKENS);
            return self.insert_messages(&[OutlineItem::Injected(Author::User)], &json, tokens);
        }
        let note = match place {
            PromptPlacement::Block => text::escape_text(&format!("{LABEL}\n{text}")),
            _ => text::escape_text(text),
        };
        let between = &mut self.between;
        let conversation = self.view.conversation;
        conversation.append_text(self.before, &note, &mut between.edits);
        if place == PromptPlacement::Block {
            // With the empty line before it.
            between.block += text::measure_text(b"\\n\\n");
            between.block += text::measure_text(note.as_bytes());
        }
        let tokens = weights.count_json_tokens(note.as_bytes()).saturating_add(1);
        between.tokens = between.tokens.saturating_add(tokens);
        true
    }

    fn add_turn(&mut self, said: &[InjectedMessage]) -> bool {
        let Some(turn) = injected_turns::parse_turn(said, self.view) else {
            return false;
        };
        let json: Vec<&str> = said.iter().map(|message| &*message.json).collect();
        let stands = self.insert_messages(&turn.items, &json.join(","), turn.tokens);
        self.between.round |= stands;
        stands
    }

    /// Puts whole messages there, where each may follow the one before it.
    fn insert_messages(&mut self, items: &[OutlineItem], json: &str, tokens: u32) -> bool {
        let profile = self.view.policy.profile;
        let before = self.view.item(self.before);
        let mut last = self.last.unwrap_or(before.author);
        for item in items {
            let role = item.role(self.view.conversation);
            if !prompt_placement::can_follow(last, role, profile) {
                return false;
            }
            last = role;
        }
        let ends = match self.next {
            // A rule that the client's own two messages break does not hold here.
            Some(next) => {
                prompt_placement::can_follow(last, next, profile)
                    || !prompt_placement::can_follow(before.author, next, profile)
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
