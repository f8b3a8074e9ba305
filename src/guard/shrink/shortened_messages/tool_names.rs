//! The names of the tools that results come from.

use std::{collections::HashMap, ops::Range};

use crate::{
    conversation::{
        Call, Conversation,
        texts::decode_chars,
        units::{self, Unit},
    },
    json::scan::JsonString,
};

/// Characters of a tool's name that are shown. Providers allow 64.
const NAME_CHARS: usize = 64;

/// The calls of one step by their ids; of the whole conversation if its format lets results be apart from their calls. One
/// message may have thousands of calls, so they are indexed instead of searched.
#[derive(Default)]
pub struct ToolNames {
    step: Range<usize>,
    by_id: HashMap<Option<u128>, Call>,
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
        let called = self.find_call(conversation, units, at);
        let name = called.and_then(|call| call.name);
        conversation.items[at].name.or(name)
    }

    /// The call that a result answers.
    pub(super) fn find_call(
        &mut self,
        conversation: &Conversation,
        units: &[Unit],
        at: usize,
    ) -> Option<Call> {
        if !self.step.contains(&at) {
            self.index_step(conversation, units, at);
        }
        let id = conversation.items[at].call_id;
        let id = id.map(|id| conversation.digest_text(id));
        self.by_id.get(&id).cloned()
    }

    fn index_step(&mut self, conversation: &Conversation, units: &[Unit], at: usize) {
        *self = Self::default();
        let Some(unit) = units.get(units::find_unit_of_message(units, at)) else {
            return;
        };
        let first = &conversation.items[unit.messages.start];
        let mut calls = conversation.calls_of(first);
        self.step = unit.messages.clone();
        if conversation.format.rules().results_may_be_apart {
            (self.step, calls) = (0..conversation.items.len(), &conversation.calls);
        }
        for call in calls {
            let id = call.id.map(|id| conversation.digest_text(id));
            self.by_id.entry(id).or_insert_with(|| call.clone());
        }
    }
}

/// A tool's name, cut to what is shown.
pub(super) fn format_tool_name(conversation: &Conversation, name: JsonString) -> String {
    let chars = decode_chars(conversation.raw_bytes(name));
    chars.take(NAME_CHARS).collect()
}
