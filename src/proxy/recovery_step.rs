//! Recovery in one request: what is due with it, before it is sent; `after_answer.rs` has what follows.
//!
//! Decides only; sends nothing. Where the plan with what recovery adds cannot be carried out, all that
//! was decided is taken back, and the request goes on as it would have without recovery.

mod after_answer;
mod kept_answer;

use std::sync::Arc;

use self::{after_answer::BilledTokens, kept_answer::has_proxy_calls};
use super::request_options::GuardMode;
use crate::{
    config::RecoveryConfig,
    conversation::{Conversation, Format},
    guard::{
        self, Policy,
        injections::{InjectedTools, InjectionContent, InjectionRecord, Injections},
        profile::{Acceptance, Profile},
    },
    health::HealthLevel,
    recovery::{
        self, Language, RecoveryAction, RecoveryMemory, RefusedAdditions,
        clock::{GenerationEvents, RecoveryPace},
        course::{self, Wording},
        prompt::{NoteMethod, Prompts},
        tool::{self, Offer},
    },
    relay::AnswerFilter,
    session::InheritedSession,
};

/// What one request goes by.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryRules<'a> {
    pub settings: &'a RecoveryConfig,
    pub pace: RecoveryPace,
    /// Neither the model, nor the client key, nor the request switch it off.
    pub wanted: bool,
    /// Another model than that of the generation before: what that one refused says nothing of it.
    pub other_model: bool,
    /// A caution prompt that is due waits, and so do the tools that would come with it.
    pub caution_waits: bool,
}

/// Recovery in one request.
#[derive(Clone)]
pub struct RecoveryStep {
    /// As it will be, if the generation comes about.
    memory: RecoveryMemory,
    /// As it was inherited.
    before: RecoveryMemory,
    pace: RecoveryPace,
    prompts: Arc<Prompts>,
    language: Language,
    /// Prompts and new courses may be begun.
    may_begin: bool,
    /// Nothing of ours goes out.
    adds_nothing: bool,
    /// The request lists tools: without any, calls of ours are refused in it.
    lists_tools: bool,
    /// Of the conversation.
    format: Format,
    offer: Offer,
    injected: Option<RecoveryAction>,
    tight_chars: Option<usize>,
    did: GenerationEvents,
    /// Where this request's answer will stand.
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
        let state = inherited.state.as_ref();
        let mut before = state.map_or_else(RecoveryMemory::default, |state| state.recovery.clone());
        if rules.other_model {
            before.refused = RefusedAdditions::Nothing;
        }
        let bare = before.refused == RefusedAdditions::All;
        let on = rules.wanted && mode != GuardMode::Off && !bare && !conversation.is_auxiliary();
        let configured = rules.settings.language;
        let language =
            recovery::language::choose_language(configured, before.language, conversation);
        let mut this = Self {
            memory: before.clone(),
            pace: rules.pace,
            prompts: Arc::clone(&rules.settings.prompts),
            language,
            may_begin: on,
            adds_nothing: bare,
            lists_tools: conversation.names_tools(),
            format: conversation.format,
            offer: Offer::Nothing,
            injected: None,
            tight_chars: None,
            did: GenerationEvents::default(),
            place: inherited.lineage.messages(),
            rounds: 0,
            max_rounds: rules.settings.max_rounds,
            billed: BilledTokens::default(),
            before,
        };
        if this.adds_nothing {
            return this;
        }
        // What is offered is worded in it.
        this.memory.language = Some(language);
        if rules.settings.enabled && !conversation.is_auxiliary() {
            this.offer = tool::decide_offer(conversation, rules.settings, &this.memory);
        }
        if !on {
            // A list of tools that changes costs the cache: what was added stays.
            if !this.memory.tools {
                this.offer = Offer::Nothing;
            }
            this.memory.language = this.before.language;
            return this;
        }
        let unwell =
            state.is_some_and(|s| matches!(s.health, HealthLevel::Caution | HealthLevel::Critical));
        this.tight_chars = unwell.then_some(rules.settings.max_tool_result_chars);
        if rules.caution_waits && !this.memory.tools {
            this.offer = Offer::Nothing;
        }
        this.decide_due(conversation, inherited, policy, rules.caution_waits);
        let tools = matches!(this.offer, Offer::Tools { .. });
        this.memory.tools |= tools;
        if !(tools || this.did.carried_prompt || this.did.cleared) {
            this.memory.language = this.before.language;
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
            if self.did.cleared {
                self.memory.clears = inherited.commands.clears;
            }
            return;
        }
        let Some(due) = due.filter(|due| !(caution_waits && *due == RecoveryAction::Caution))
        else {
            return;
        };
        let way = match self.offer {
            Offer::Tools { callable: true, .. } => NoteMethod::Tools,
            Offer::Text => NoteMethod::Text,
            _ => return,
        };
        let urgent = matches!(due, RecoveryAction::Critical { .. });
        let state = inherited.state.as_ref();
        let alternates = state.and_then(|state| state.guard.alternates);
        let profile = self.prompt_profile(policy.profile);
        if !guard::may_prompt(conversation, profile, alternates, urgent) {
            return;
        }
        let text = match due {
            RecoveryAction::Critical { left } => {
                let first = left == self.pace.critical_countdown || self.memory.records.is_empty();
                self.prompts
                    .critical_prompt(self.language, way, left, first)
            }
            _ => self.prompts.caution_prompt(self.language, way).to_owned(),
        };
        self.push_record(InjectionContent::Prompt(text.into()));
        self.did.carried_prompt = true;
        self.injected = Some(due);
    }

    /// The profile by which prompts are placed: that of the provider, without what it refused.
    pub fn prompt_profile<'p>(&self, profile: &'p Profile) -> &'p Profile {
        match self.memory.refused {
            RefusedAdditions::UserAfterTool => profile.without_user_after_tool(),
            RefusedAdditions::Nothing | RefusedAdditions::All => profile,
        }
    }

    /// The provider refused the request: puts its prompt no longer after a tool result, from here on in the
    /// session. A caution prompt then waits for a user message. Returns whether that changes anything; not
    /// where such a prompt was accepted before, or the conversation has a user message after a result.
    pub fn avoid_prompt_after_tool(
        &mut self,
        conversation: &Conversation,
        profile: &Profile,
    ) -> bool {
        let roles = conversation.items.iter().map(|message| message.author);
        let roles: Vec<_> = roles.filter(|role| !role.is_system()).collect();
        let follows_result = |place: u32| {
            let before = (place as usize).checked_sub(1);
            let before = before.and_then(|before| roles.get(before));
            before.is_some_and(|role| role.is_tool())
        };
        let accepted = self.before.records.iter();
        let avoids = self.injected.is_some()
            && self.rounds == 0
            && self.memory.refused == RefusedAdditions::Nothing
            && profile.user_after_tool != Acceptance::No
            && follows_result(self.place)
            && !accepted.map(|record| record.place).any(follows_result)
            && guard::alternates_without_steps(conversation);
        if avoids {
            self.memory.refused = RefusedAdditions::UserAfterTool;
            if self.injected == Some(RecoveryAction::Caution) {
                self.withdraw_prompt();
            }
        }
        avoids
    }

    /// Whether a caution prompt is due with the request, given or not.
    pub fn caution_is_due(&self) -> bool {
        self.may_begin
            && !self.did.cleared
            && self.before.clock.due_action() == Some(RecoveryAction::Caution)
    }

    /// Begins a new course, if the conversation can be divided.
    fn begin_course(&mut self, conversation: &Conversation, policy: &Policy<'_>) {
        let Some(boundary) = guard::find_course_boundary(conversation, policy) else {
            return;
        };
        let memory = &mut self.memory;
        // What an older course left out never comes back.
        let before = memory.course.as_ref().map_or(0, |course| course.boundary);
        let boundary = boundary.max(before);
        let removed = guard::list_removed_messages(conversation, boundary);
        let wording = Wording {
            prompts: &self.prompts,
            language: self.language,
        };
        let room = guard::preface_fit_check(conversation, policy);
        let course = course::begin_course(conversation, &removed, boundary, memory, wording, room);
        memory.course = Some(course);
        memory.records.clear();
        memory.clear_due = false;
        memory.language = Some(self.language);
        self.did.cleared = true;
    }

    /// What the request carries.
    pub fn collect_injections(&self) -> Injections {
        if self.adds_nothing {
            return Injections::default();
        }
        Injections {
            course: self.memory.course.clone(),
            summary: None,
            records: self.sendable_records().cloned().collect(),
            tools: self.offered_tools().cloned(),
            tight_chars: self.tight_chars,
        }
    }

    /// What is taken out of the answer.
    pub fn answer_filter(&self) -> AnswerFilter {
        if self.adds_nothing {
            return AnswerFilter::default();
        }
        let asked = |record: &InjectionRecord| matches!(record.what, InjectionContent::Prompt(_));
        let tools = matches!(self.offer, Offer::Tools { .. });
        AnswerFilter {
            tools: if tools { tool::TOOL_NAMES } else { &[] },
            // A model may answer a prompt late, in a request that could not have been asked.
            package: !self.lists_tools && self.memory.records.iter().any(asked),
        }
    }

    /// Whether the request carries anything of ours.
    pub fn adds_anything(&self) -> bool {
        let tools = self.offered_tools().is_some();
        let stands =
            tools || self.memory.course.is_some() || self.sendable_records().next().is_some();
        stands && !self.adds_nothing
    }

    /// The tools of ours that go with the request. The last round is without them, so that the
    /// model must come to an end.
    fn offered_tools(&self) -> Option<&InjectedTools> {
        match &self.offer {
            Offer::Tools { schemas: own, .. } if self.rounds < self.max_rounds => Some(own),
            _ => None,
        }
    }

    /// The records that can stand in the request.
    fn sendable_records(&self) -> impl Iterator<Item = &InjectionRecord> {
        let stands = |record: &&InjectionRecord| self.lists_tools || !has_proxy_calls(record);
        self.memory.records.iter().filter(stands)
    }

    /// Nothing of what was decided can be carried out: all of it is taken back, reminders apart.
    pub fn withdraw_all(&mut self) {
        self.adds_nothing = true;
        let reminders = std::mem::take(&mut self.memory.reminders);
        self.memory = RecoveryMemory {
            reminders,
            ..self.before.clone()
        };
        self.did = GenerationEvents::default();
        self.injected = None;
        self.tight_chars = None;
    }

    /// Leaves out our tools and the prompt of this request. Returns whether there were any. To be
    /// done before any round.
    pub fn withdraw_tools_and_prompt(&mut self) -> bool {
        let tools = matches!(self.offer, Offer::Tools { .. });
        self.offer = Offer::Nothing;
        self.withdraw_prompt() || tools
    }

    /// Leaves out the prompt of this request. Returns whether there was one.
    fn withdraw_prompt(&mut self) -> bool {
        let asked = std::mem::take(&mut self.did.carried_prompt);
        if asked {
            self.memory.records.pop();
            self.injected = None;
        }
        asked
    }

    /// The provider takes the request only without what is ours: this session goes on without.
    pub fn mark_refused(&mut self) {
        self.memory.refused = RefusedAdditions::All;
    }

    /// No further round may be made: the last one was without our tools.
    pub const fn is_exhausted(&self) -> bool {
        self.rounds > self.max_rounds
    }

    /// The language of what is ours.
    pub const fn language(&self) -> Language {
        self.language
    }

    pub const fn memory(&self) -> &RecoveryMemory {
        &self.memory
    }

    /// As it was inherited: where nothing of what was decided is done.
    pub const fn inherited_memory(&self) -> &RecoveryMemory {
        &self.before
    }

    /// Whether a new course begins with this request.
    pub const fn begins_course(&self) -> bool {
        self.did.cleared
    }

    /// What the client is told was done.
    pub fn action_words(&self) -> Vec<String> {
        let mut words = Vec::new();
        words.extend(
            self.injected_prompt()
                .map(|kind| format!("injected={kind}")),
        );
        if self.did.cleared {
            words.push(format!("course={}", self.memory.course_number()));
        }
        words
    }

    /// The level of which the request has a prompt that none before it did.
    pub const fn injected_prompt(&self) -> Option<&'static str> {
        match self.injected {
            Some(RecoveryAction::Caution) => Some("caution"),
            Some(RecoveryAction::Critical { .. }) => Some("critical"),
            _ => None,
        }
    }

    fn push_record(&mut self, what: InjectionContent) {
        self.memory.records.push(InjectionRecord {
            place: self.place,
            what,
        });
    }
}
