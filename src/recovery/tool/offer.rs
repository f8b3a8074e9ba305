//! What a request can be asked: whether our tools may be added to it, and whether its answer may
//! hold a continuation block.
//!
//! Where in doubt, nothing: a request that is left alone works as it did without us.

use super::{TOOL_NAMES, schema};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::Conversation,
    guard::injections::InjectedTools,
    recovery::{RecoveryAction, RecoveryClock, RecoveryMemory, language},
};

/// What a request can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Our tools go with it.
    Tools {
        schemas: InjectedTools,
        /// The model may call them. Where it may not, they stay for the sake of the prefix, and no
        /// prompt is given.
        callable: bool,
    },
    /// A prompt of the text kind may be given. Says nothing of whether one is due.
    Text,
    Nothing,
}

/// Decides what a request can be asked, by its own fields and by what was done before.
pub fn decide_offer(
    conversation: &Conversation,
    settings: &RecoveryConfig,
    memory: &RecoveryMemory,
) -> Offer {
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
        AddTools::WhenDue => memory.tools || (callable && is_prompt_due(memory.clock)),
    };
    // Schemas may be most of a body: they are read only where ours are to stand beside them.
    match added.then(|| conversation.tool_form(TOOL_NAMES)).flatten() {
        Some(form) => Offer::Tools {
            schemas: schema::get_tool_schemas(
                form,
                language::choose_language(settings.language, memory.language, conversation),
            ),
            callable,
        },
        None => Offer::Nothing,
    }
}

const fn is_prompt_due(clock: RecoveryClock) -> bool {
    matches!(
        clock.due_action(),
        Some(RecoveryAction::Caution | RecoveryAction::Critical { .. })
    )
}

#[cfg(test)]
mod tests;
