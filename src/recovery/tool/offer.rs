//! Whether the proxy's tools may be added to a request, and whether its answer may hold a continuation
//! block.
//!
//! In doubt nothing is added: an unchanged request works as it does without the proxy.

use super::{TOOL_NAMES, schema};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::Conversation,
    guard::injections::InjectedTools,
    recovery::{RecoveryAction, RecoveryClock, RecoveryMemory, language},
};

/// What recovery may add to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The proxy's tools.
    Tools {
        schemas: InjectedTools,
        /// The model may call them. If not, they are added for the prompt cache only, without a
        /// prompt.
        callable: bool,
    },
    /// A prompt for a continuation block, if one is due.
    Text,
    Nothing,
}

/// Decides by the fields of a request and by the state of the session.
pub fn decide_offer(
    conversation: &Conversation,
    settings: &RecoveryConfig,
    memory: &RecoveryMemory,
) -> Offer {
    if !settings.enabled || conversation.is_auxiliary() || conversation.asks_for_many() {
        return Offer::Nothing;
    }
    if !conversation.lists_tools() {
        let is_text = conversation.takes_plain_text();
        return if is_text { Offer::Text } else { Offer::Nothing };
    }
    let callable = conversation.may_call_tools() && !conversation.begins_answer();
    let added = match settings.tools {
        AddTools::Never => false,
        AddTools::Always => true,
        // A change of the prefix is not worth tools that cannot be called.
        AddTools::WhenDue => memory.tools || (callable && is_prompt_due(memory.clock)),
    };
    // Schemas may be most of a body, so they are read only if tools are to be added.
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
