//! The names of the tools that results come from.

use std::{collections::HashMap, ops::Range};

use crate::{
    conversation::{
        Conversation,
        texts::decode_chars,
        units::{self, Unit},
    },
    json::scan::JsonString,
};

/// Characters of a tool's name that are shown. Providers allow 64.
const NAME_CHARS: usize = 64;

/// The names of the tools of one step by call id, or of all where results may stand apart from their calls. One message
/// may have thousands of calls, so none is searched.
#[derive(Default)]
pub struct ToolNames {
    step: Range<usize>,
    by_id: HashMap<Option<u128>, Option<JsonString>>,
}

impl ToolNames {
    /// The name of the tool that the result `at` comes from, cut to what is shown; empty without one.
    pub fn name_tool(&mut self, conversation: &Conversation, units: &[Unit], at: usize) -> String {
        let name = self.find_name(conversation, units, at);
        let format = |name| format_tool_name(conversation, name);
        name.map(format).unwrap_or_default()
    }

    /// The name of the tool that a result comes from: in the result, else in its call.
    pub(in crate::guard) fn find_name(
        &mut self,
        conversation: &Conversation,
        units: &[Unit],
        at: usize,
    ) -> Option<JsonString> {
        let message = &conversation.items[at];
        if !self.step.contains(&at) {
            self.index_step(conversation, units, at);
        }
        let id = message.call_id.map(|id| conversation.digest_text(id));
        let called = self.by_id.get(&id);
        message.name.or(called.copied().flatten())
    }

    fn index_step(&mut self, conversation: &Conversation, units: &[Unit], at: usize) {
        *self = Self::default();
        let Some(unit) = units.get(units::find_unit_of_message(units, at)) else {
            return;
        };
        let first = &conversation.items[unit.messages.start];
        let mut calls = conversation.calls_of(first);
        self.step = unit.messages.clone();
        if conversation.format.rules().pairs_apart {
            (self.step, calls) = (0..conversation.items.len(), &conversation.calls);
        }
        for call in calls {
            let id = call.id.map(|id| conversation.digest_text(id));
            self.by_id.entry(id).or_insert(call.name);
        }
    }
}

/// A tool's name, cut to what is shown.
pub(super) fn format_tool_name(conversation: &Conversation, name: JsonString) -> String {
    let chars = decode_chars(conversation.raw_bytes(name));
    chars.take(NAME_CHARS).collect()
}
