//! Cuts messages with calls, as the last resort: long strings and arrays in the arguments, and the message's text.
//! The newest step cannot be removed, since a call and its results stay together.
//!
//! One limit in characters applies to each value of the message. The session remembers it like the limit of a result.

use super::{CutPart, ShortenedMessage, ShortenedMessages, tool_names};
use crate::{
    conversation::Call,
    guard::{
        request::estimate::find_last_fit,
        shrink::result_limits::RememberedLimit,
        text::{
            arguments::{CallArguments, Keep, cut_arguments},
            truncate::{self, TruncationLimit, TruncationMarker},
        },
    },
};

/// No value is cut below this; characters. The marker takes up to 52 of them.
const LEAST_CHARS: usize = 80;
/// Rounds in which the limit is searched for. Then the least limit applies.
const ROUNDS: usize = 6;

impl ShortenedMessages<'_> {
    /// Makes message `at` smaller by `excess` raw tokens, its longest values first. Returns the tokens removed,
    /// which are fewer where nothing more can go.
    pub(super) fn tighten_calls(&mut self, at: usize, excess: u32) -> u32 {
        let before = self.tokens[at];
        let target = before.saturating_sub(excess);
        let conversation = self.view.conversation;
        let message = self.view.item(at);
        let calls = conversation.calls_of(message).iter();
        let arguments: Vec<CallArguments> = calls
            .filter_map(|call| CallArguments::read(conversation, call.editable_arguments()?))
            .collect();
        let text_chars = if self.echoes.contains(&at) {
            0
        } else {
            conversation.text_sizes(message).total_chars()
        };
        let chars_within = |most: usize| -> usize {
            let arguments = arguments.iter().map(|it| it.chars_within(most));
            arguments.sum::<usize>() + text_chars.min(most)
        };
        let tight = self.limit_of(at).map_or(usize::MAX, |it| it.amount());
        let mut most = chars_within(usize::MAX).min(tight);
        for round in 0.. {
            let over = self.tokens[at].saturating_sub(target);
            if over == 0 || most <= LEAST_CHARS {
                break;
            }
            let chars = chars_within(most);
            // The rest of the message weighs too, so this removes too little rather than too much.
            let per_token = chars as f64 / f64::from(self.tokens[at].max(1));
            let excess_chars = (f64::from(over) * per_token).ceil() as usize;
            let aim = chars.saturating_sub(excess_chars);
            // The largest limit below the last one within which no more than `aim` characters stay.
            let fits = |more: usize| round < ROUNDS && chars_within(LEAST_CHARS + more) <= aim;
            most = LEAST_CHARS + find_last_fit(most - LEAST_CHARS - 1, fits);
            self.limit_call_values(at, most);
        }
        before.saturating_sub(self.tokens[at])
    }

    /// Cuts every value of message `at` to `most` characters.
    pub(super) fn limit_call_values(&mut self, at: usize, most: usize) {
        let most = most.max(LEAST_CHARS);
        let conversation = self.view.conversation;
        let message = self.view.item(at);
        let calls = conversation.calls_of(message);
        let mut cut = ShortenedMessage::default();
        let mut sizes = message.sizes;
        for call in calls {
            let Some(arguments) = call.editable_arguments() else {
                continue;
            };
            let Some(cut_values) = cut_arguments(conversation, arguments, Keep::Ends(most)) else {
                continue;
            };
            let (removed, inserted) = (cut_values.removed, cut_values.inserted);
            // All of the arguments are measured as they came and as they are cut.
            let (before, after) = (removed.total_chars(), inserted.total_chars());
            cut.parts.push(self.describe_cut(call, before, after));
            sizes -= removed;
            sizes += inserted;
            cut.edits.merge(cut_values.edits);
        }
        let limit = TruncationLimit::with_halves(most);
        let marker = TruncationMarker::Plain;
        let text_cut = (!self.echoes.contains(&at))
            .then(|| truncate::cut_result(conversation, message, limit, marker, None, None));
        if let Some(text_cut) = text_cut.flatten() {
            sizes -= conversation.text_sizes(message);
            sizes += text_cut.sizes;
            cut.edits.merge(text_cut.edits);
            let report = |call| self.describe_cut(call, text_cut.before, text_cut.after);
            cut.parts.extend(calls.first().map(report));
        }
        if cut.parts.is_empty() {
            return;
        }
        self.tokens[at] = self.view.weigh_item(at, &sizes);
        cut.limit = Some(RememberedLimit::new(most, marker));
        self.shortened.insert(at, cut);
    }

    /// Describes a cut of `before` characters to `after`, by the tool of `call`.
    fn describe_cut(&self, call: &Call, before: usize, after: usize) -> CutPart {
        let format = |name| tool_names::format_tool_name(self.view.conversation, name);
        CutPart {
            called: Some(call.name.map(format).unwrap_or_default()),
            before,
            after,
        }
    }
}
