//! What a request can be asked: whether our tools may be added to it, and whether its answer may
//! hold a continuation block.
//!
//! Where in doubt, nothing: a request that is left alone works as it did without us.

use super::{NAMES, schema};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::Conversation,
    guard::record::OwnTools,
    recovery::{Clock, Due, Memory, language},
};

/// What a request can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Our tools go with it.
    Tools {
        own: OwnTools,
        /// The model may call them. Where it may not, they stay for the sake of the prefix, and no
        /// prompt is given.
        callable: bool,
    },
    /// A prompt of the text kind may be given. Says nothing of whether one is due.
    Text,
    Nothing,
}

/// Decides what a request can be asked, by its own fields and by what was done before.
pub fn offered(conversation: &Conversation, settings: &RecoveryConfig, memory: &Memory) -> Offer {
    if !settings.enabled || conversation.is_auxiliary() || conversation.asks_for_many() {
        return Offer::Nothing;
    }
    if !conversation.lists_tools() {
        return match conversation.takes_plain_text() {
            true => Offer::Text,
            false => Offer::Nothing,
        };
    }
    let callable = conversation.may_call_tools() && !conversation.begins_answer();
    let added = match settings.tools {
        AddTools::Never => false,
        AddTools::Always => true,
        // Tools that cannot be called are not worth a change of the prefix.
        AddTools::WhenDue => memory.tools || (callable && asks(memory.clock)),
    };
    // Schemas may be most of a body: they are read only where ours are to stand beside them.
    match added.then(|| conversation.tool_form(NAMES)).flatten() {
        Some(form) => Offer::Tools {
            own: schema::own(
                form,
                language::choose(settings.language, memory.language, conversation),
            ),
            callable,
        },
        None => Offer::Nothing,
    }
}

const fn asks(clock: Clock) -> bool {
    matches!(clock.due(), Some(Due::Caution | Due::Critical { .. }))
}

#[cfg(test)]
mod tests;
