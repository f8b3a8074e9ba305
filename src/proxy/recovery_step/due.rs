//! What is due with a request: a prompt, or a new course.

use super::{RecoveryStep, is_prompt};
use crate::{
    conversation::Conversation,
    guard::{
        self, Policy, dropped_rounds,
        injections::{InjectionContent, InjectionRecord},
        profile::Profile,
    },
    recovery::{
        RecoveryAction, RefusedAdditions,
        course::{self, Wording},
        prompt::NoteMethod,
        tool::{Offer, ToolOffer},
    },
    session::InheritedSession,
};

impl RecoveryStep {
    /// Adds the due prompt, or begins the due or ordered course.
    pub(super) fn decide_due(
        &mut self,
        conversation: &Conversation,
        inherited: &InheritedSession,
        policy: &Policy<'_>,
        due: Option<RecoveryAction>,
    ) {
        // A guessed window begins no course, since the real one may have room.
        let due = due.filter(|due| !(policy.is_open() && *due == RecoveryAction::Course));
        if due == Some(RecoveryAction::Course) || self.memory.clear_due || inherited.clear_requested
        {
            self.begin_ordered_course(conversation, inherited, policy);
            return;
        }
        let Some(due) = due else { return };
        let added = match &self.offer {
            Offer::Tools(offer) => offer.with_prompt.clone(),
            Offer::Text | Offer::Nothing => None,
        };
        let method = match self.offer {
            Offer::Tools(ToolOffer { callable: true, .. })
                if self.offer.sure_tools().has_reminders() || added.is_some() =>
            {
                NoteMethod::Tools
            }
            Offer::Text
            | Offer::Tools(ToolOffer {
                callable: true,
                takes_text: true,
                ..
            }) => NoteMethod::Text,
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
            _ => {
                let limit = state.and_then(|state| state.optimal_max_tokens);
                prompts.caution_prompt(language, method, limit.unwrap_or(0))
            }
        };
        self.push_record(InjectionContent::Prompt(text.into()));
        if let Some(tools) = added {
            let json = String::from_utf8_lossy(&tools.json).into();
            let set = tools.set;
            self.push_record(InjectionContent::Tools { set, json });
        }
        self.events.carried_prompt = true;
        self.injected = Some(due);
    }

    /// Begins a new course. If it begins, all API commands for a new course are carried out.
    pub(super) fn begin_ordered_course(
        &mut self,
        conversation: &Conversation,
        inherited: &InheritedSession,
        policy: &Policy<'_>,
    ) {
        self.begin_course(conversation, policy);
        if self.events.cleared {
            self.memory.clears = inherited.commands.clears;
        }
    }

    /// Begins a new course, if the conversation can be divided.
    pub(super) fn begin_course(&mut self, conversation: &Conversation, policy: &Policy<'_>) {
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
        memory.records = dropped_rounds::end_records(self.format, &memory.records, boundary);
        memory.clear_due = false;
        memory.language = Some(self.language);
        self.events.cleared = true;
    }

    /// Returns the profile for placing prompts: that of the provider, without what the provider refused.
    pub fn prompt_profile<'p>(&self, profile: &'p Profile) -> &'p Profile {
        match self.memory.refused {
            RefusedAdditions::UserAfterTool => profile.without_user_after_tool(),
            RefusedAdditions::Nothing | RefusedAdditions::All => profile,
        }
    }

    /// Whether a caution prompt is due with the request, even if it waits.
    pub fn caution_is_due(&self) -> bool {
        self.may_begin
            && self.memory.held.is_none()
            && !self.events.cleared
            && self.inherited.clock.due_action() == Some(RecoveryAction::Caution)
    }

    pub(super) fn push_record(&mut self, what: InjectionContent) {
        let place = self.place;
        self.memory.records.push(InjectionRecord { place, what });
    }
}
