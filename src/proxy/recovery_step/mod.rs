//! Recovery in one request. `due.rs` decides what is due before the request is sent, `additions.rs` collects what recovery
//! adds to it, `withdrawal.rs` takes back what cannot be sent, and `after_answer.rs` executes the calls of the answer and
//! advances the clock.
//!
//! Nothing here sends a request. If the plan with recovery's additions is unsound, all decisions are withdrawn.

mod additions;
mod after_answer;
mod due;
mod withdrawal;

use std::sync::Arc;

use self::after_answer::BilledTokens;
pub use self::withdrawal::KeptRecovery;
use crate::{
    config::{RecallMode, RecoveryConfig, profile::PastReasoning},
    conversation::{Conversation, Format},
    guard::{
        Policy,
        injections::{InjectionContent, InjectionRecord, ToolSet},
    },
    health::HealthLevel,
    proxy::GuardMode,
    recovery::{
        Language, RecoveryAction, RecoveryClock, RecoveryHold, RecoveryMemory, RefusedAdditions,
        clock::{GenerationEvents, RecoveryPace},
        language::choose_language,
        prompt::Prompts,
        tool::{self, Offer, OfferRules, RecallCount},
    },
    session::InheritedSession,
};

/// The rules for one request.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryRules<'a> {
    pub settings: &'a RecoveryConfig,
    pub pace: RecoveryPace,
    /// Recovery is on for this model, this client key and this request.
    pub wanted: bool,
    /// The model is not that of the previous generation, so refusals of the previous model do not count.
    pub other_model: bool,
    pub timing: PromptTiming,
    /// Set when a plan has shown that the request's fixed part is beyond a level; `None` for the first plan.
    pub hold: Option<RecoveryHold>,
    /// Set when a plan has shown too little room for the tool `recall`, which the session has not had yet.
    pub holds_recall: bool,
}

/// Which prompt may be sent with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptTiming {
    /// As the clock says.
    WhenDue,
    /// A due prompt waits, and so do the tools that would come with it: a summary is expected, or a cut makes the prompt
    /// needless.
    Waits,
    /// A caution prompt is sent before it is due, since the next request would be cut.
    AheadOfCut,
}

/// Recovery in one request.
#[derive(Clone)]
pub struct RecoveryStep {
    /// The memory to store if the request is answered.
    pub memory: RecoveryMemory,
    /// The memory to store if the decisions are not carried out.
    pub inherited: RecoveryMemory,
    pace: RecoveryPace,
    prompts: Arc<Prompts>,
    pub language: Language,
    /// Prompts and new courses may begin.
    may_begin: bool,
    /// The request is sent without additions.
    adds_nothing: bool,
    /// The request lists tools. Without any, providers refuse records of proxy-executed calls.
    lists_tools: bool,
    /// The model differs from the previous generation's.
    other_model: bool,
    pub format: Format,
    offer: Offer,
    /// Prompts may ask for a continuation block although the request lists tools.
    asks_for_text: bool,
    /// The model's reasoning is bound to what was before it: what is left out once stays out.
    binds_reasoning: bool,
    /// The proxy's tools of all requests so far.
    sent_tools: ToolSet,
    /// Calls of `recall` that were answered in this request.
    pub recalls: RecallCount,
    /// The store failed, so new reminders may be lost.
    may_be_lost: bool,
    injected: Option<RecoveryAction>,
    /// The tool `recall` is not added, for lack of room.
    pub holds_recall: bool,
    tight_chars: Option<usize>,
    events: GenerationEvents,
    /// The position of this request's answer among the messages.
    place: u32,
    rounds: u32,
    max_rounds: u32,
    billed: BilledTokens,
}

impl RecoveryStep {
    /// Decides what recovery adds to a request.
    pub fn begin(
        conversation: &Conversation,
        inherited: &InheritedSession,
        policy: &Policy<'_>,
        rules: RecoveryRules<'_>,
        mode: GuardMode,
    ) -> Self {
        let mut this = Self::inherit(conversation, inherited, policy, rules, mode);
        if this.adds_nothing {
            return this;
        }
        // The offer is worded in this language.
        this.memory.language = Some(this.language);
        let due = this.choose_due(rules.timing);
        this.choose_offer(conversation, policy, rules, mode, due);
        if this.may_begin {
            let state = inherited.state.as_ref();
            let is_critical = state.is_some_and(|state| state.health == HealthLevel::Critical);
            let is_tight = is_critical && !policy.is_open();
            let tight = rules.settings.max_tool_result_chars;
            this.tight_chars = Some(tight).filter(|&chars| is_tight && chars > 0);
            this.decide_due(conversation, inherited, policy, due);
        } else if this.memory.held.is_some() && (inherited.clear_requested || this.memory.clear_due)
        {
            this.begin_ordered_course(conversation, inherited, policy);
        }
        let offers_reminders = this.offer.sure_tools().has_reminders();
        let adds_words = this.may_begin && (offers_reminders || this.events.carried_prompt);
        if !adds_words && !this.events.cleared {
            this.memory.language = this.inherited.language;
        }
        this
    }

    /// Chooses the action for this request: that of the clock, or a caution prompt ahead of a cut. Returns `None` if the
    /// action waits or is held back. A course never waits.
    fn choose_due(&self, timing: PromptTiming) -> Option<RecoveryAction> {
        choose_action(timing, self.memory.clock.due_action(), self.memory.held)
    }

    /// The step with what the session remembers, before anything is offered or due.
    fn inherit(
        conversation: &Conversation,
        inherited: &InheritedSession,
        policy: &Policy<'_>,
        rules: RecoveryRules<'_>,
        mode: GuardMode,
    ) -> Self {
        let settings = rules.settings;
        let state = inherited.state.as_ref();
        let mut memory = state.map_or_else(RecoveryMemory::default, |state| state.recovery.clone());
        if rules.other_model {
            memory.refused = RefusedAdditions::Nothing;
        }
        // A request that compacts the conversation only reads it once more, and needs no additions.
        let adds_nothing =
            memory.refused == RefusedAdditions::All || conversation.asks_to_compact();
        let is_auxiliary = conversation.is_auxiliary();
        let acts = rules.wanted && mode != GuardMode::Off && !adds_nothing && !is_auxiliary;
        let chat = RecoveryHold::of_chat(conversation, policy.window, settings.chats);
        let held = chat.or(rules.hold).filter(|_| acts);
        let language = choose_language(settings.language, memory.language, conversation);
        Self {
            inherited: memory.clone(),
            memory: RecoveryMemory { held, ..memory },
            pace: rules.pace,
            prompts: Arc::clone(&settings.prompts),
            language,
            may_begin: acts && !held.is_some_and(RecoveryHold::holds_all),
            adds_nothing,
            lists_tools: conversation.names_tools(),
            other_model: rules.other_model,
            format: conversation.format,
            offer: Offer::Nothing,
            asks_for_text: policy.profile.past_reasoning == PastReasoning::Refused,
            binds_reasoning: policy.profile.past_reasoning != PastReasoning::Read,
            sent_tools: ToolSet::Nothing,
            recalls: RecallCount::default(),
            may_be_lost: inherited.save_failed || inherited.store_failed,
            injected: None,
            tight_chars: None,
            events: GenerationEvents::default(),
            place: inherited.lineage.messages,
            rounds: 0,
            max_rounds: settings.max_rounds,
            holds_recall: false,
            billed: BilledTokens::default(),
        }
    }

    /// Chooses how the model may write reminders down and look up what was cut: by tools, in its text, or not at all.
    fn choose_offer(
        &mut self,
        conversation: &Conversation,
        policy: &Policy<'_>,
        rules: RecoveryRules<'_>,
        mode: GuardMode,
        due: Option<RecoveryAction>,
    ) {
        let guard = policy.settings;
        let recalls = guard.recall == RecallMode::Auto && guard.enabled && mode != GuardMode::Off;
        self.holds_recall = recalls && rules.holds_recall;
        let profile = *self.prompt_profile(policy.profile);
        let profile = self.format.refine_profile(profile);
        let offer_rules = OfferRules {
            recovery: rules.settings,
            recalls: recalls && !rules.holds_recall,
            prompt_is_due: due.is_some_and(|due| due != RecoveryAction::Course),
            may_begin: self.may_begin,
            tools_are_bound: policy.profile.past_reasoning == PastReasoning::Refused,
            takes_entry: profile.tools_entry.is_some(),
        };
        self.offer = tool::decide_offer(conversation, offer_rules, &self.memory);
        if self.offer == Offer::Text && !self.may_begin {
            self.offer = Offer::Nothing;
        }
    }

    /// Whether no further round may begin: the last one offered no tools.
    pub const fn is_exhausted(&self) -> bool {
        self.rounds > self.max_rounds
    }

    /// Whether a new course begins with this request.
    pub const fn begins_course(&self) -> bool {
        self.events.cleared
    }

    /// The actions that the client reads in a header.
    pub fn action_words(&self) -> Vec<String> {
        let prompt = self.injected_prompt();
        let prompt = prompt.map(|kind| format!("injected={kind}"));
        let number = self.memory.course_number();
        let course = self.events.cleared.then(|| format!("course={number}"));
        let found = Some(self.recalls.found).filter(|found| *found > 0);
        let recalled = found.map(|found| format!("recalled={found}"));
        prompt.into_iter().chain(course).chain(recalled).collect()
    }

    /// The prompt or the course that is new with this request.
    pub const fn injected(&self) -> Option<RecoveryAction> {
        self.injected
    }

    /// Whether a cut of this request brings the tool `recall` for the first time.
    pub fn offers_first_recall(&self) -> bool {
        self.offer.can_recall() && !self.inherited.tools.has_recall()
    }

    /// Whether prompts and new courses may begin with this request.
    pub const fn may_begin(&self) -> bool {
        self.may_begin
    }

    /// Whether a caution prompt may be sent ahead of a cut.
    pub fn may_prompt_ahead(&self) -> bool {
        let is_calm = self.inherited.clock == RecoveryClock::Calm;
        self.may_begin && is_calm && self.memory.held.is_none() && !self.events.cleared
    }

    /// Returns what holds recovery back, if the hold begins with this request or has another reason than before. Only then
    /// it is logged.
    pub fn new_hold(&self) -> Option<RecoveryHold> {
        let (kind, known) = (self.memory.held, self.inherited.held);
        let is_known = kind.map(|it| it.word()) == known.map(|it| it.word());
        kind.filter(|_| !is_known)
    }

    /// The level of the prompt that is new with this request.
    pub const fn injected_prompt(&self) -> Option<&'static str> {
        match self.injected {
            Some(RecoveryAction::Caution) => Some("caution"),
            Some(RecoveryAction::Critical { .. }) => Some("critical"),
            _ => None,
        }
    }
}

/// See [`RecoveryStep::choose_due`].
fn choose_action(
    timing: PromptTiming,
    by_clock: Option<RecoveryAction>,
    held: Option<RecoveryHold>,
) -> Option<RecoveryAction> {
    let due = match timing {
        PromptTiming::AheadOfCut => Some(RecoveryAction::Caution),
        _ => by_clock,
    };
    match (timing, due?) {
        (_, RecoveryAction::Course) => due,
        (PromptTiming::Waits, _) => None,
        (_, RecoveryAction::Caution) => due.filter(|_| held.is_none()),
        (_, RecoveryAction::Critical { .. }) => due,
    }
}

fn is_prompt(record: &InjectionRecord) -> bool {
    matches!(record.what, InjectionContent::Prompt(_))
}

fn is_tools(record: &InjectionRecord) -> bool {
    matches!(record.what, InjectionContent::Tools { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[rustfmt::skip]
    fn a_course_never_waits_and_a_hold_stops_cautions_only() {
        use PromptTiming::{AheadOfCut, Waits, WhenDue};
        use RecoveryAction::{Caution, Course};
        let critical = RecoveryAction::Critical { left: 2 };
        let held = Some(RecoveryHold::SmallChat);
        for (name, timing, by_clock, held, expected) in [
            ("nothing is due", WhenDue, None, None, None),
            ("a caution", WhenDue, Some(Caution), None, Some(Caution)),
            ("a caution that is held back", WhenDue, Some(Caution), held, None),
            ("a caution that waits", Waits, Some(Caution), None, None),
            ("the countdown", WhenDue, Some(critical), None, Some(critical)),
            ("the countdown in spite of a hold", WhenDue, Some(critical), held, Some(critical)),
            ("the countdown that a cut makes needless", Waits, Some(critical), None, None),
            ("a course", WhenDue, Some(Course), None, Some(Course)),
            ("a course in spite of all", Waits, Some(Course), held, Some(Course)),
            ("ahead of a cut", AheadOfCut, None, None, Some(Caution)),
            ("ahead of a cut, but held back", AheadOfCut, None, held, None),
        ] {
            assert_eq!(choose_action(timing, by_clock, held), expected, "{name}");
        }
    }
}
