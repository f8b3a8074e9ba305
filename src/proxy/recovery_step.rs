//! Recovery in one request: decides what is due before it is sent. `after_answer.rs` has what follows.
//!
//! Sends nothing. Where the plan with its additions is unsound, all decisions are withdrawn.

mod after_answer;

use std::{borrow::Cow, sync::Arc};

use self::after_answer::BilledTokens;
use super::GuardMode;
use crate::{
    config::{RecallMode, RecoveryConfig},
    conversation::{Conversation, Format},
    guard::{
        self, Policy, dropped_rounds,
        injections::{
            InjectedAuthor, InjectedTools, InjectionContent, InjectionRecord, Injections, ToolSet,
        },
        profile::{Acceptance, Profile},
    },
    health::HealthLevel,
    recovery::{
        Language, RecoveryAction, RecoveryMemory, RefusedAdditions,
        clock::{GenerationEvents, RecoveryPace},
        course::{self, Wording},
        language::choose_language,
        prompt::{NoteMethod, Prompts},
        tool::{self, Offer, OfferRules, RecallCount, ToolOffer},
    },
    relay::AnswerFilter,
    session::InheritedSession,
};

/// The rules for one request.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryRules<'a> {
    pub settings: &'a RecoveryConfig,
    pub pace: RecoveryPace,
    /// Recovery is on for this model, this client key and this request.
    pub wanted: bool,
    /// The model differs from the previous generation's, whose refusals do not count.
    pub other_model: bool,
    /// A due caution prompt waits, and so do the tools that would come with it.
    pub caution_waits: bool,
}

/// Recovery in one request.
#[derive(Clone)]
pub struct RecoveryStep {
    /// The memory to store if the request is answered.
    memory: RecoveryMemory,
    inherited: RecoveryMemory,
    pace: RecoveryPace,
    prompts: Arc<Prompts>,
    language: Language,
    /// Prompts and new courses may begin.
    may_begin: bool,
    /// The request is sent without additions.
    adds_nothing: bool,
    /// The request lists tools. Without any, providers refuse records of proxy-executed calls.
    lists_tools: bool,
    /// The model differs from the previous generation's.
    other_model: bool,
    format: Format,
    offer: Offer,
    /// The proxy's tools of all requests so far.
    sent_tools: ToolSet,
    recalls: RecallCount,
    injected: Option<RecoveryAction>,
    tight_chars: Option<usize>,
    events: GenerationEvents,
    /// The position of this request's answer among the messages.
    place: u32,
    rounds: u32,
    max_rounds: u32,
    billed: BilledTokens,
}

impl RecoveryStep {
    /// Decides what goes with a request.
    pub fn begin(
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
        let adds_nothing = memory.refused == RefusedAdditions::All;
        let is_auxiliary = conversation.is_auxiliary();
        let may_begin = rules.wanted && mode != GuardMode::Off && !adds_nothing && !is_auxiliary;
        let language = choose_language(settings.language, memory.language, conversation);
        let mut this = Self {
            inherited: memory.clone(),
            memory,
            pace: rules.pace,
            prompts: Arc::clone(&settings.prompts),
            language,
            may_begin,
            adds_nothing,
            lists_tools: conversation.names_tools(),
            other_model: rules.other_model,
            format: conversation.format,
            offer: Offer::Nothing,
            sent_tools: ToolSet::Nothing,
            recalls: RecallCount::default(),
            injected: None,
            tight_chars: None,
            events: GenerationEvents::default(),
            place: inherited.lineage.messages(),
            rounds: 0,
            max_rounds: settings.max_rounds,
            billed: BilledTokens::default(),
        };
        if adds_nothing {
            return this;
        }
        // The offer is worded in this language.
        this.memory.language = Some(language);
        let guard = policy.settings;
        let offer_rules = OfferRules {
            recovery: settings,
            recalls: guard.recall == RecallMode::Auto && guard.enabled && mode != GuardMode::Off,
            // New reminder tools wait with the prompt, unless a cut brings them.
            may_prompt: may_begin && !rules.caution_waits,
            may_begin,
        };
        this.offer = tool::decide_offer(conversation, offer_rules, &this.memory);
        if this.offer == Offer::Text && (!may_begin || rules.caution_waits) {
            this.offer = Offer::Nothing;
        }
        if may_begin {
            let is_unwell = |health| matches!(health, HealthLevel::Caution | HealthLevel::Critical);
            let is_tight = state.is_some_and(|state| is_unwell(state.health));
            this.tight_chars = is_tight.then_some(settings.max_tool_result_chars);
            this.decide_due(conversation, inherited, policy, rules.caution_waits);
        }
        let offers_reminders = this.offer.sure_tools().has_reminders();
        if !may_begin || !(offers_reminders || this.events.carried_prompt || this.events.cleared) {
            this.memory.language = this.inherited.language;
        }
        this
    }

    fn decide_due(
        &mut self,
        conversation: &Conversation,
        inherited: &InheritedSession,
        policy: &Policy<'_>,
        caution_waits: bool,
    ) {
        let due = self.memory.clock.due_action();
        if due == Some(RecoveryAction::Course) || self.memory.clear_due || inherited.clear_requested
        {
            self.begin_course(conversation, policy);
            if self.events.cleared {
                self.memory.clears = inherited.commands.clears;
            }
            return;
        }
        let due = due.filter(|due| !(caution_waits && *due == RecoveryAction::Caution));
        let Some(due) = due else { return };
        let method = match self.offer {
            Offer::Tools(ToolOffer { callable: true, .. })
                if self.offer.sure_tools().has_reminders() =>
            {
                NoteMethod::Tools
            }
            Offer::Text => NoteMethod::Text,
            _ => return,
        };
        let is_urgent = matches!(due, RecoveryAction::Critical { .. });
        let state = inherited.state.as_ref();
        let alternates = state.and_then(|state| state.guard.alternates);
        let profile = self.prompt_profile(policy.profile);
        if !guard::may_prompt(conversation, profile, alternates, is_urgent) {
            return;
        }
        let (prompts, language) = (&self.prompts, self.language);
        let text = match due {
            RecoveryAction::Critical { left } => {
                let first = left == self.pace.critical_countdown
                    || !self.memory.records.iter().any(is_prompt);
                prompts.critical_prompt(language, method, left, first)
            }
            _ => prompts.caution_prompt(language, method).to_owned(),
        };
        self.push_record(InjectionContent::Prompt(text.into()));
        self.events.carried_prompt = true;
        self.injected = Some(due);
    }

    /// The profile for placing prompts: the provider's, without what it refused.
    pub fn prompt_profile<'p>(&self, profile: &'p Profile) -> &'p Profile {
        match self.memory.refused {
            RefusedAdditions::UserAfterTool => profile.without_user_after_tool(),
            RefusedAdditions::Nothing | RefusedAdditions::All => profile,
        }
    }

    /// After a refusal: places no prompt after a tool result any more in this session, and none as a system message.
    /// Where a prompt may be no block there, a caution prompt then waits for a user message. Returns whether that changes anything: not where such a prompt was accepted before, or the
    /// conversation has a user message after a result.
    pub fn avoid_prompt_after_tool(
        &mut self,
        conversation: &Conversation,
        profile: &Profile,
    ) -> bool {
        let authors = conversation.items.iter().map(|message| message.author);
        let authors: Vec<_> = authors.filter(|author| !author.is_system()).collect();
        let follows_result = |place: u32| {
            let previous = (place as usize).checked_sub(1);
            previous
                .and_then(|at| authors.get(at))
                .is_some_and(|author| author.is_tool())
        };
        if self.rounds > 0 || self.memory.refused != RefusedAdditions::Nothing {
            return false;
        }
        if self.format.refine_profile(*profile).system_prompts {
            let has_prompt = |memory: &RecoveryMemory| memory.records.iter().any(is_prompt);
            let avoids =
                has_prompt(&self.memory) && (self.other_model || !has_prompt(&self.inherited));
            if avoids {
                self.memory.refused = RefusedAdditions::UserAfterTool;
            }
            return avoids;
        }
        let mut accepted = self.inherited.records.iter();
        let avoids = self.injected.is_some()
            && profile.user_after_tool != Acceptance::No
            && follows_result(self.place)
            && !accepted.any(|record| follows_result(record.place))
            && guard::alternates_without_steps(conversation);
        if avoids {
            self.memory.refused = RefusedAdditions::UserAfterTool;
            if self.injected == Some(RecoveryAction::Caution) {
                self.withdraw_prompt();
            }
        }
        avoids
    }

    /// Whether a caution prompt is due with the request, also where it waits.
    pub fn caution_is_due(&self) -> bool {
        self.may_begin
            && !self.events.cleared
            && self.inherited.clock.due_action() == Some(RecoveryAction::Caution)
    }

    /// Notes the tools of the plan. Where a cut brought them, they stay like those that a prompt brought.
    pub fn note_sent_tools(&mut self, sent: ToolSet) {
        if self.adds_nothing {
            return;
        }
        self.sent_tools = self.sent_tools.union(sent);
        self.memory.tools = self.memory.tools.union(sent);
        if sent.has_reminders() && self.memory.language.is_none() {
            self.memory.language = Some(self.language);
        }
    }

    /// Begins a new course, where the conversation can be divided.
    fn begin_course(&mut self, conversation: &Conversation, policy: &Policy<'_>) {
        let Some(boundary) = guard::find_course_boundary(conversation, policy) else {
            return;
        };
        let memory = &mut self.memory;
        // Messages that an older course left out stay out.
        let old_boundary = memory.course.as_ref().map_or(0, |course| course.boundary);
        let boundary = boundary.max(old_boundary);
        let removed = guard::list_removed_messages(conversation, boundary);
        let wording = Wording {
            prompts: &self.prompts,
            language: self.language,
        };
        let room = guard::preface_fit_check(conversation, policy);
        let course = course::begin_course(conversation, &removed, boundary, memory, wording, room);
        memory.course = Some(course);
        let records = std::mem::take(&mut memory.records);
        memory.records = dropped_rounds::end_records(self.format, records, boundary);
        memory.clear_due = false;
        memory.language = Some(self.language);
        self.events.cleared = true;
    }

    /// Recovery's additions to the request.
    pub fn collect_injections(&self, conversation: &Conversation) -> Injections {
        if self.adds_nothing {
            return Injections::default();
        }
        let records = self.sendable_records();
        let records = records.map(|record| restore_results(record, conversation));
        let (tools, tools_when_cut) = self.offered_tools();
        Injections {
            course: self.memory.course.clone(),
            summary: None,
            records: records.collect(),
            tools,
            tools_when_cut,
            names_ids: self.offer.can_recall(),
            tight_chars: self.tight_chars,
        }
    }

    /// What is taken out of the answer.
    pub fn answer_filter(&self) -> AnswerFilter {
        if self.adds_nothing {
            return AnswerFilter::default();
        }
        AnswerFilter {
            tools: tool::list_names(self.sent_tools),
            // A model may answer a prompt late, in a request that could not carry one.
            package: !self.lists_tools && self.memory.records.iter().any(is_prompt),
        }
    }

    /// Whether the request has any of recovery's additions.
    pub fn adds_anything(&self) -> bool {
        !self.adds_nothing
            && (!self.sent_tools.is_empty()
                || self.memory.course.is_some()
                || self.sendable_records().next().is_some())
    }

    /// The proxy-executed tools in the request. The last round has none, so that the model must answer.
    fn offered_tools(&self) -> (Option<InjectedTools>, Option<InjectedTools>) {
        match &self.offer {
            Offer::Tools(tools) if self.rounds < self.max_rounds => {
                (tools.now.clone(), tools.when_cut.clone())
            }
            _ => (None, None),
        }
    }

    /// The records that the provider accepts in the request.
    fn sendable_records(&self) -> impl Iterator<Item = &InjectionRecord> {
        let is_sendable = |record: &&InjectionRecord| self.lists_tools || !has_proxy_calls(record);
        self.memory.records.iter().filter(is_sendable)
    }

    /// Withdraws all decisions, since they cannot be carried out. Reminders stay, and digests of the rounds so far.
    pub fn withdraw_all(&mut self) {
        self.adds_nothing = true;
        let records = std::mem::take(&mut self.memory.records);
        let dropped = dropped_rounds::end_records(self.format, records, self.place);
        let reminders = std::mem::take(&mut self.memory.reminders);
        self.memory = RecoveryMemory {
            reminders,
            ..self.inherited.clone()
        };
        self.memory.records.extend(dropped);
        self.events = GenerationEvents::default();
        self.injected = None;
        self.tight_chars = None;
    }

    /// Withdraws the tools and the prompt of this request before its first round. Returns whether there were any.
    pub fn withdraw_tools_and_prompt(&mut self) -> bool {
        self.offer = Offer::Nothing;
        let sent = std::mem::take(&mut self.sent_tools);
        self.withdraw_prompt() || !sent.is_empty()
    }

    /// Withdraws the prompt of this request. Returns whether there was one.
    fn withdraw_prompt(&mut self) -> bool {
        let had_prompt = std::mem::take(&mut self.events.carried_prompt);
        if had_prompt {
            self.memory.records.pop();
            self.injected = None;
        }
        had_prompt
    }

    /// Ends additions in this session: the provider accepts the request only without them.
    pub fn mark_refused(&mut self) {
        self.memory.refused = RefusedAdditions::All;
    }

    /// Whether no further round may begin: the last one offered no tools.
    pub const fn is_exhausted(&self) -> bool {
        self.rounds > self.max_rounds
    }

    pub const fn language(&self) -> Language {
        self.language
    }

    pub const fn memory(&self) -> &RecoveryMemory {
        &self.memory
    }

    /// The memory to store where the decisions are not carried out.
    pub const fn inherited_memory(&self) -> &RecoveryMemory {
        &self.inherited
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

    /// Calls of `recall` that were answered in this request.
    pub const fn count_recalls(&self) -> RecallCount {
        self.recalls
    }

    /// The level of the prompt that is new with this request.
    pub const fn injected_prompt(&self) -> Option<&'static str> {
        match self.injected {
            Some(RecoveryAction::Caution) => Some("caution"),
            Some(RecoveryAction::Critical { .. }) => Some("critical"),
            _ => None,
        }
    }

    fn push_record(&mut self, what: InjectionContent) {
        let place = self.place;
        self.memory.records.push(InjectionRecord { place, what });
    }
}

/// A record as it goes out: recalled texts are not stored, and made of the client's messages.
fn restore_results(record: &InjectionRecord, conversation: &Conversation) -> InjectionRecord {
    let mut record = record.clone();
    let restore = |result: &mut Box<str>| {
        if let Cow::Owned(restored) = tool::restore_result(result, conversation) {
            *result = restored.into();
        }
    };
    match &mut record.what {
        InjectionContent::Round(messages) => {
            let results = messages.iter_mut();
            let results = results.filter(|message| message.by == InjectedAuthor::Tool);
            results.for_each(|message| restore(&mut message.json));
        }
        InjectionContent::Calls { results, .. } => results.iter_mut().for_each(restore),
        _ => {}
    }
    record
}

fn is_prompt(record: &InjectionRecord) -> bool {
    matches!(record.what, InjectionContent::Prompt(_))
}

fn has_proxy_calls(record: &InjectionRecord) -> bool {
    match &record.what {
        InjectionContent::Calls { .. } => true,
        InjectionContent::Round(messages) => messages
            .iter()
            .any(|message| matches!(message.by, InjectedAuthor::Model { calls } if calls > 0)),
        _ => false,
    }
}
