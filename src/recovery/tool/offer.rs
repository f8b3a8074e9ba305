//! Whether the proxy's tools may be added to a request, and whether its answer may hold a continuation block.
//!
//! In doubt nothing is added: an unchanged request works as it does without the proxy.

use super::{RECALL, TOOL_NAMES, list_names, schema};
use crate::{
    config::{AddTools, RecoveryConfig},
    conversation::Conversation,
    guard::injections::{InjectedTools, ToolSet},
    recovery::{RecoveryMemory, language},
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
    /// Sent in any case.
    pub now: Option<InjectedTools>,
    /// Sent in place of `now` if anything is cut.
    pub when_cut: Option<InjectedTools>,
    /// Sent as an entry next to this request's prompt, if the request has one.
    pub with_prompt: Option<InjectedTools>,
    /// The model may call the tools. If not, they are added for the prompt cache only, without a prompt.
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
    /// A prompt is due with this request. It is sent only if the answer may hold what the prompt asks for.
    pub prompt_is_due: bool,
    /// Reminder tools may begin with this request.
    pub may_begin: bool,
    /// The model's reasoning is bound to the list of tools. So the list grows only with a cut, which makes all earlier
    /// reasoning stale anyway.
    pub tools_are_bound: bool,
    /// An entry next to a prompt may bring the tools. The entry changes neither the list nor the reasoning.
    pub takes_entry: bool,
}

/// Decides what is offered, by the fields of a request and by the state of the session.
///
/// In a provider's cache, tools are before the conversation: each change of the list of tools loses the whole cache. So all
/// tools are added at once, when the first of them are due, and then stay. In the first request they would cost no cache,
/// but they would change every request with tools, and most sessions are never cut. A prompt makes the tools for reminders
/// due, a cut makes `recall` due. A fold or a placeholder loses most of the cache anyway. A truncated result loses none of
/// it; but such results come early, while there is little to lose, and models look them up most.
///
/// If the model's reasoning is bound to the list of tools, or if the provider takes tools as an entry next to a prompt, then
/// the list does not change with a prompt, only with a cut.
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
        // Tools that cannot be called are not worth a change of the prefix.
        AddTools::WhenDue => callable && rules.prompt_is_due,
        AddTools::Never => false,
    };
    let is_due = may_remind && !had.has_reminders() && is_due;
    if had.is_empty() && !is_due && !rules.recalls {
        return Offer::Nothing;
    }
    let Some(client) = conversation.read_client_tools(TOOL_NAMES.iter().copied()) else {
        return Offer::Nothing;
    };
    let is_free = |name: &&str| !client.taken.contains(name);
    let may_remind = may_remind && list_names(ToolSet::Reminders).iter().all(is_free);
    let may_recall = rules.recalls && is_free(&RECALL);
    // If the client defers all its tools, the model sees no list at first, and an entry would begin one.
    let has_entry = rules.takes_entry && had.is_empty() && !client.defers_all;
    let may_wait = is_due && settings.tools == AddTools::WhenDue;
    let waits = may_wait && (rules.tools_are_bound || has_entry);
    let begins = is_due && !waits && may_remind;
    let now = ToolSet::new(
        may_remind && (begins || had.has_reminders()),
        may_recall && (begins || had.has_recall()),
    );
    let when_cut = if may_recall {
        ToolSet::new(may_remind, true)
    } else {
        ToolSet::new(now.has_reminders() || may_remind && waits, false)
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
    /// Returns the tools that are sent in any case.
    pub fn sure_tools(&self) -> ToolSet {
        match self {
            Self::Tools(tools) => tools.now.as_ref().map_or(ToolSet::Nothing, |now| now.set),
            Self::Text | Self::Nothing => ToolSet::Nothing,
        }
    }

    /// Whether placeholders name the ids of what they replace: `recall` is among the tools, or will be with the first
    /// cut.
    pub fn can_recall(&self) -> bool {
        let Self::Tools(ToolOffer { now, when_cut, .. }) = self else {
            return false;
        };
        let mut tools = now.iter().chain(when_cut);
        tools.any(|tools| tools.set.has_recall())
    }
}

#[cfg(test)]
mod tests;
