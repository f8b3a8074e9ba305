//! What a message that makes calls says, cut as the last resort: long strings and arrays in the arguments of
//! its calls, and its own text. A call and its results stay together, so the newest step cannot go, and nothing
//! else is left to cut.
//!
//! The limit is one number of characters for each value of the message, and remembered like that of a result.

use super::{ToolResults, TruncationReport, tool_names};
use crate::{
    conversation::{Call, edit::Edits},
    guard::{
        arguments::{CallArguments, Keep, cut_arguments},
        result_limits::RememberedLimit,
        truncate::{self, TruncationLimit, TruncationMarker},
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
    pub(super) parts: Vec<TruncationReport>,
}

impl ToolResults<'_> {
    /// Makes message `at` smaller by `excess` raw tokens, its longest values first. Returns what it took,
    /// which is less where nothing more can go.
    pub(super) fn tighten_calls(&mut self, at: usize, excess: u32) -> u32 {
        let before = self.tokens[at];
        let target = before.saturating_sub(excess);
        let message = self.view.item(at);
        let calls = self.view.conversation.calls_of(message).iter();
        let arguments = calls.filter_map(|call| call.arguments);
        let arguments: Vec<CallArguments> = arguments
            .filter_map(|it| CallArguments::from_raw(self.view.conversation.raw_bytes(it)))
            .collect();
        let said = match self.echoes.contains(&at) {
            true => 0,
            false => self.view.conversation.text_sizes(message).total_chars(),
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
            self.limit_call_values(at, most);
        }
        before.saturating_sub(self.tokens[at])
    }

    /// Holds every value of message `at` to so many characters.
    pub(super) fn limit_call_values(&mut self, at: usize, most: usize) {
        let most = most.max(LEAST_CHARS);
        let message = self.view.item(at);
        let mut cut = CallCut::default();
        let mut sizes = message.sizes;
        for call in self.view.conversation.calls_of(message) {
            let Some(arguments) = call.arguments else {
                continue;
            };
            let ends = Keep::Ends(most);
            let Some(made) = cut_arguments(self.view.conversation, arguments, ends) else {
                continue;
            };
            let before =
                text::measure_text(self.view.conversation.raw_bytes(arguments)).total_chars();
            let after =
                (before + made.inserted.total_chars()).saturating_sub(made.removed.total_chars());
            cut.parts.push(self.truncated_call(at, call, before, after));
            sizes -= made.removed;
            sizes += made.inserted;
            cut.edits.merge(made.edits);
        }
        let limit = TruncationLimit::with_halves(most);
        let said = (!self.echoes.contains(&at)).then(|| {
            truncate::cut_result(
                self.view.conversation,
                message,
                limit,
                TruncationMarker::Plain,
            )
        });
        if let Some(said) = said.flatten() {
            sizes -= self.view.conversation.text_sizes(message);
            sizes += said.sizes;
            cut.edits.merge(said.edits);
            let calls = self.view.conversation.calls_of(message).first();
            cut.parts
                .extend(calls.map(|call| self.truncated_call(at, call, said.before, said.after)));
        }
        if cut.parts.is_empty() {
            return;
        }
        self.tokens[at] = self.view.weigh_item(at, &sizes);
        self.calls.insert(at, cut);
        self.tight
            .insert(at, RememberedLimit::new(most, TruncationMarker::Plain));
    }

    /// What was cut of a message that makes calls, for the report; characters.
    fn truncated_call(
        &self,
        message: usize,
        call: &Call,
        before: usize,
        after: usize,
    ) -> TruncationReport {
        let tool = call.name;
        let tool = tool.map(|name| tool_names::format_tool_name(self.view.conversation, name));
        TruncationReport {
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
