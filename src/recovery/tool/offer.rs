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
    let wish = ReminderTools::choose(rules, had, callable);
    let recall = RecallTool::choose(rules, had);
    if choose_sets(wish, recall).when_cut.is_empty() {
        return Offer::Nothing;
    }
    let Some(client) = conversation.read_client_tools(TOOL_NAMES.iter().copied()) else {
        return Offer::Nothing;
    };
    // If the client defers all its tools, the model sees no list at first, and an entry would begin one.
    let has_entry = rules.takes_entry && had.is_empty() && !client.defers_all;
    let may_wait = settings.tools == AddTools::WhenDue && (rules.tools_are_bound || has_entry);
    let wish = wish.or_wait(may_wait);
    let is_free = |name: &&str| !client.taken.contains(name);
    let are_free = list_names(ToolSet::Reminders).iter().all(is_free);
    let reminders = Some(wish).filter(|_| are_free).unwrap_or_default();
    let recall = Some(recall)
        .filter(|_| is_free(&RECALL))
        .unwrap_or_default();
    let sets = choose_sets(reminders, recall);
    if sets.when_cut.is_empty() {
        return Offer::Nothing;
    }
    let language = language::choose_language(settings.language, memory.language, conversation);
    let schemas = |set: ToolSet| {
        (!set.is_empty()).then(|| schema::get_tool_schemas(client.form, language, set))
    };
    let comes_with_prompt = has_entry && reminders == ReminderTools::Wait;
    Offer::Tools(ToolOffer {
        now: schemas(sets.now),
        when_cut: schemas(sets.when_cut).filter(|_| sets.when_cut != sets.now),
        with_prompt: schemas(sets.when_cut).filter(|_| comes_with_prompt),
        callable,
        takes_text: wish == ReminderTools::Wait && conversation.takes_plain_text(),
    })
}

/// What becomes of the tools for reminders in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReminderTools {
    /// The settings, a hold or the client's own tools rule them out.
    #[default]
    Never,
    /// They are not due.
    Later,
    /// They are due, but wait for the next cut or come next to a prompt.
    Wait,
    Begin,
    /// Earlier requests had them.
    Stay,
}

impl ReminderTools {
    fn choose(rules: OfferRules<'_>, had: ToolSet, callable: bool) -> Self {
        let tools = rules.recovery.tools;
        let is_on = rules.recovery.enabled && tools != AddTools::Never;
        match tools {
            _ if !is_on => Self::Never,
            _ if had.has_reminders() => Self::Stay,
            _ if !rules.may_begin => Self::Never,
            AddTools::Always => Self::Begin,
            // Tools that cannot be called are not worth a change of the prefix.
            _ if callable && rules.prompt_is_due => Self::Begin,
            _ => Self::Later,
        }
    }

    const fn or_wait(self, may_wait: bool) -> Self {
        if may_wait && matches!(self, Self::Begin) {
            Self::Wait
        } else {
            self
        }
    }
}

/// What becomes of the tool `recall` in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum RecallTool {
    #[default]
    Never,
    /// It comes with the next cut, or with the tools for reminders.
    Later,
    /// Earlier requests had it.
    Stay,
}

impl RecallTool {
    const fn choose(rules: OfferRules<'_>, had: ToolSet) -> Self {
        if !rules.recalls {
            Self::Never
        } else if had.has_recall() {
            Self::Stay
        } else {
            Self::Later
        }
    }
}

/// The proxy's tools in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ToolSets {
    /// In any case.
    now: ToolSet,
    /// If anything is cut.
    when_cut: ToolSet,
}

/// The table of the tools that are sent.
const fn choose_sets(reminders: ReminderTools, recall: RecallTool) -> ToolSets {
    use ReminderTools::{Begin, Later, Never, Stay, Wait};
    use ToolSet::{All, Nothing, Recall, Reminders};
    let (now, when_cut) = match (reminders, recall) {
        (Never | Later, RecallTool::Never) => (Nothing, Nothing),
        (Wait, RecallTool::Never) => (Nothing, Reminders),
        (Begin | Stay, RecallTool::Never) => (Reminders, Reminders),
        (Never, RecallTool::Later) => (Nothing, Recall),
        (Later | Wait, RecallTool::Later) => (Nothing, All),
        (Begin, RecallTool::Later) => (All, All),
        (Stay, RecallTool::Later) => (Reminders, All),
        (Never, RecallTool::Stay) => (Recall, Recall),
        (Later | Wait, RecallTool::Stay) => (Recall, All),
        (Begin | Stay, RecallTool::Stay) => (All, All),
    };
    ToolSets { now, when_cut }
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
