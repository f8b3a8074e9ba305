//! What a message that makes calls says, cut as the last resort: long strings and arrays in the arguments of
//! its calls, and its own text. A call and its results stay together, so the newest step cannot go, and nothing
//! else is left to cut.
//!
//! The limit is one number of characters for each value of the message, and remembered like that of a result.

use super::{Results, Truncated, names};
use crate::{
    conversation::{Call, edit::Edits},
    guard::{
        arguments::{Arguments, Keep, cut_arguments},
        limits::Held,
        truncate::{self, Limit, Marker},
    },
    json::text,
};

/// No value is cut below this; characters. The marker takes 52 of them at most.
const LEAST_CHARS: usize = 80;
/// Rounds in which values are brought down in proportion to their characters.
const ROUNDS: usize = 6;

/// What goes of a message that makes calls.
#[derive(Clone, Debug, Default)]
pub(super) struct CallCut {
    pub(super) edits: Edits,
    /// Its arguments by call, and its text.
    pub(super) parts: Vec<Truncated>,
}

impl Results<'_> {
    /// Makes message `at` smaller by `excess` raw tokens, its longest values first. Returns what it took,
    /// which is less where nothing more can go.
    pub(super) fn tighten_calls(&mut self, at: usize, excess: u32) -> u32 {
        let before = self.tokens[at];
        let target = before.saturating_sub(excess);
        let message = self.view.item(at);
        let calls = self.view.conversation.calls(message).iter();
        let arguments = calls.filter_map(|call| call.arguments);
        let arguments: Vec<Arguments> = arguments
            .filter_map(|it| Arguments::read(self.view.conversation.raw(it)))
            .collect();
        let said = match self.echoes.contains(&at) {
            true => 0,
            false => self.view.conversation.text_sizes(message).chars(),
        };
        let chars_within = |most: usize| -> usize {
            let arguments = arguments.iter().map(|it| it.chars_within(most));
            arguments.sum::<usize>() + said.min(most)
        };
        let whole = chars_within(usize::MAX);
        let mut most = match self.tight.get(&at) {
            Some(held) => whole.min(held.chars()),
            None => whole,
        };
        for round in 0.. {
            let over = self.tokens[at].saturating_sub(target);
            if over == 0 || most <= LEAST_CHARS {
                break;
            }
            let chars = chars_within(most);
            // What is said beside the values weighs too, so this takes rather too little than too much.
            let per_token = chars as f64 / f64::from(self.tokens[at].max(1));
            let gone = (f64::from(over) * per_token).ceil() as usize;
            let aim = chars.saturating_sub(gone);
            let mut beyond = most;
            most = LEAST_CHARS;
            // The largest limit with which no more than that stays.
            while round < ROUNDS && beyond - most > 1 {
                let middle = most + (beyond - most) / 2;
                if chars_within(middle) <= aim {
                    most = middle;
                } else {
                    beyond = middle;
                }
            }
            self.hold_calls(at, most);
        }
        before.saturating_sub(self.tokens[at])
    }

    /// Holds every value of message `at` to so many characters.
    pub(super) fn hold_calls(&mut self, at: usize, most: usize) {
        let most = most.max(LEAST_CHARS);
        let message = self.view.item(at);
        let mut cut = CallCut::default();
        let mut sizes = message.sizes;
        for call in self.view.conversation.calls(message) {
            let Some(arguments) = call.arguments else {
                continue;
            };
            let ends = Keep::Ends(most);
            let Some(made) = cut_arguments(self.view.conversation, arguments, ends) else {
                continue;
            };
            let before = text::measure(self.view.conversation.raw(arguments)).chars();
            let after = (before + made.put.chars()).saturating_sub(made.gone.chars());
            cut.parts.push(self.truncated_call(at, call, before, after));
            sizes -= made.gone;
            sizes += made.put;
            cut.edits.merge(made.edits);
        }
        let limit = Limit::halves(most);
        let said = (!self.echoes.contains(&at))
            .then(|| truncate::cut(self.view.conversation, message, limit, Marker::Plain));
        if let Some(said) = said.flatten() {
            sizes -= self.view.conversation.text_sizes(message);
            sizes += said.sizes;
            cut.edits.merge(said.edits);
            let calls = self.view.conversation.calls(message).first();
            cut.parts
                .extend(calls.map(|call| self.truncated_call(at, call, said.before, said.after)));
        }
        if cut.parts.is_empty() {
            return;
        }
        self.tokens[at] = self.view.weigh(at, &sizes);
        self.calls.insert(at, cut);
        self.tight.insert(at, Held::new(most, Marker::Plain));
    }

    /// What was cut of a message that makes calls, for the report; characters.
    fn truncated_call(
        &self,
        message: usize,
        call: &Call,
        before: usize,
        after: usize,
    ) -> Truncated {
        let tool = call.name;
        let tool = tool.map(|name| names::show(self.view.conversation, name));
        Truncated {
            message,
            tool: tool.unwrap_or_default(),
            before,
            after,
            tighter: true,
            new: false,
            call: true,
        }
    }
}
