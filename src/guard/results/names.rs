//! The names of the tools that gave results.

use std::{collections::HashMap, ops::Range};

use crate::{
    conversation::{
        Conversation,
        texts::decode,
        units::{self, Unit},
    },
    guard::view::View,
    json::{scan::Text, text},
};

/// Characters of a tool's name that are shown. Providers allow 64.
const NAME_CHARS: usize = 64;

/// The name of the tool that gave the result `at`: its own, or that of the call it answers; empty
/// where neither says.
pub fn tool(conversation: &Conversation, units: &[Unit], at: usize) -> String {
    let name = Names::default().whole(conversation, units, at);
    name.map_or_else(String::new, |name| show(conversation, name))
}

/// The names of the tools of one step, by the ids of its calls: one message may make very many.
#[derive(Default)]
pub(in crate::guard) struct Names {
    step: Range<usize>,
    by_id: HashMap<Option<u128>, Option<Text>>,
}

impl Names {
    /// The name of the tool that gave a result, as far as it is shown.
    pub(super) fn shown(&mut self, view: View<'_>, at: usize) -> String {
        let name = self.whole(view.conversation, view.units, at);
        name.map_or_else(String::new, |name| show(view.conversation, name))
    }

    /// The name of the tool that gave a result: its own, or that of the call it answers.
    pub(in crate::guard) fn whole(
        &mut self,
        conversation: &Conversation,
        units: &[Unit],
        at: usize,
    ) -> Option<Text> {
        let message = &conversation.items[at];
        if !self.step.contains(&at) {
            self.enter(conversation, units, at);
        }
        let digest = |id: Text| text::digest(conversation.raw(id));
        let called = self.by_id.get(&message.call_id.map(digest));
        message.name.or(called.copied().flatten())
    }

    fn enter(&mut self, conversation: &Conversation, units: &[Unit], at: usize) {
        *self = Self::default();
        let Some(unit) = units.get(units::holding(units, at)) else {
            return;
        };
        self.step = unit.messages.clone();
        let calls = conversation.calls(&conversation.items[unit.messages.start]);
        for call in calls {
            let id = call.id.map(|id| text::digest(conversation.raw(id)));
            self.by_id.entry(id).or_insert(call.name);
        }
    }
}

/// A tool's name, as far as it is shown.
pub(super) fn show(conversation: &Conversation, name: Text) -> String {
    decode(conversation.raw(name)).take(NAME_CHARS).collect()
}
