//! Whether the proxy's tools may be added to a request, and whether its answer may hold a continuation
//! block.
//!
//! In doubt nothing is added: an unchanged request works as it does without the proxy.

use super::{RECALL, TOOL_NAMES, list_names, schema};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::Conversation,
    guard::injections::{InjectedTools, ToolSet},
    recovery::{RecoveryAction, RecoveryClock, RecoveryMemory, language},
};

/// What may be added to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    Tools(ToolOffer),
    /// A prompt for a continuation block, if one is due.
    Text,
    Nothing,
}

/// The proxy's tools in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOffer {
    /// Those that go out in any case.
    pub now: Option<InjectedTools>,
    /// Those that go out in their place where anything is cut.
    pub when_cut: Option<InjectedTools>,
    /// The same, where the prompt of this request brings them as an entry beside it.
    pub with_prompt: Option<InjectedTools>,
    /// The model may call them. If not, they are added for the prompt cache only, without a prompt.
    pub callable: bool,
    /// While the reminder tools wait for a cut, a prompt may ask for a continuation block.
    pub takes_text: bool,
}

/// The settings of an offer.
#[derive(Clone, Copy, Debug)]
pub struct OfferRules<'a> {
    pub recovery: &'a RecoveryConfig,
    /// What is cut may be recalled.
    pub recalls: bool,
    /// Reminder tools may begin with this request where a prompt is due.
    pub may_prompt: bool,
    /// Reminder tools may begin with this request.
    pub may_begin: bool,
    /// The model's reasoning is bound to the list of tools: more of them come with a cut alone, which makes all
    /// reasoning before it stale anyway.
    pub waits_for_cut: bool,
    /// An entry beside a prompt may bring the tools, which leaves the list, and the reasoning, as they are.
    pub takes_entry: bool,
}

/// Decides by the fields of a request and by the state of the session.
///
/// Each change of the list of tools loses the provider's whole cache of the conversation, since tools stand before
/// it. So all tools are added at once, at the first moment at which some are due, and stay. From the first request on
/// would cost no cache, but would change every request with tools, and most sessions are never cut. A fold or
/// a placeholder loses most of the cache anyway. A truncated result loses none; but such results come early, while
/// there is little to lose, and are what models look up most. Where the list is part of what the model's reasoning is
/// bound to, it changes with a cut alone, if the provider takes the tools as an entry beside the prompt.
pub fn decide_offer(
    conversation: &Conversation,
    rules: OfferRules<'_>,
    memory: &RecoveryMemory,
) -> Offer {
    let settings = rules.recovery;
    if conversation.is_auxiliary() || conversation.asks_for_many() {
        return Offer::Nothing;
    }
    if !conversation.lists_tools() {
        let is_text = settings.enabled && conversation.takes_plain_text();
        return if is_text { Offer::Text } else { Offer::Nothing };
    }
    if !conversation.sends_history() {
        return Offer::Nothing;
    }
    let callable = conversation.may_call_tools() && !conversation.begins_answer();
    let had = memory.tools;
    let may_remind = settings.enabled
        && settings.tools != AddTools::Never
        && (had.has_reminders() || rules.may_begin);
    if !may_remind && !rules.recalls {
        return Offer::Nothing;
    }
    let is_due = match settings.tools {
        AddTools::Always => true,
        // A change of the prefix is not worth tools that cannot be called.
        AddTools::WhenDue => callable && is_prompt_due(memory.clock),
        AddTools::Never => false,
    };
    let is_due = may_remind && rules.may_prompt && !had.has_reminders() && is_due;
    if had.is_empty() && !is_due && !rules.recalls {
        return Offer::Nothing;
    }
    let Some(client) = conversation.read_client_tools(TOOL_NAMES.iter().copied()) else {
        return Offer::Nothing;
    };
    let is_free = |name: &&str| !client.taken.contains(name);
    let may_remind = may_remind && list_names(ToolSet::Reminders).iter().all(is_free);
    let may_recall = rules.recalls && is_free(&RECALL);
    // A client's list of which the model sees nothing in the beginning would begin to change with the first entry.
    let has_entry = rules.takes_entry && had.is_empty() && !client.defers_all;
    let may_wait = is_due && settings.tools == AddTools::WhenDue;
    let waits = may_wait && (rules.waits_for_cut || has_entry);
    let begins = is_due && !waits && may_remind;
    let now = ToolSet::new(
        may_remind && (begins || had.has_reminders()),
        may_recall && (begins || had.has_recall()),
    );
    let when_cut = match may_recall {
        true => ToolSet::new(may_remind, true),
        false => ToolSet::new(now.has_reminders() || may_remind && waits, false),
    };
    let language = language::choose_language(settings.language, memory.language, conversation);
    let schemas = |set: ToolSet| {
        (!set.is_empty()).then(|| schema::get_tool_schemas(client.form, language, set))
    };
    if when_cut.is_empty() {
        return Offer::Nothing;
    }
    Offer::Tools(ToolOffer {
        now: schemas(now),
        when_cut: schemas(when_cut).filter(|_| when_cut != now),
        with_prompt: schemas(when_cut).filter(|_| waits && has_entry && may_remind),
        callable,
        takes_text: waits && conversation.takes_plain_text(),
    })
}

impl Offer {
    /// The tools that go out in any case.
    pub fn sure_tools(&self) -> ToolSet {
        match self {
            Self::Tools(tools) => tools.now.as_ref().map_or(ToolSet::Nothing, |now| now.set),
            Self::Text | Self::Nothing => ToolSet::Nothing,
        }
    }

    /// Whether placeholders name the ids of what they stand for: `recall` is among the tools, or will be with the
    /// first cut.
    pub fn can_recall(&self) -> bool {
        let Self::Tools(ToolOffer { now, when_cut, .. }) = self else {
            return false;
        };
        let mut tools = now.iter().chain(when_cut);
        tools.any(|tools| tools.set.has_recall())
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
