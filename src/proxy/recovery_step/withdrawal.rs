//! Takes back additions of recovery with which a request cannot be sent.

use super::{RecoveryStep, is_prompt, is_tools};
use crate::{
    conversation::Conversation,
    guard::{
        self, dropped_rounds,
        injections::{InjectionContent, InjectionRecord, ToolSet},
        profile::{Acceptance, Profile},
    },
    recovery::{
        RecoveryAction, RecoveryMemory, RefusedAdditions, clock::GenerationEvents, tool::Offer,
    },
};

/// What a request keeps of recovery's additions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum KeptRecovery {
    All,
    AllButToolsAndPrompt,
    Nothing,
}

impl RecoveryStep {
    /// Withdraws all other additions. Returns whether the request may differ from one that keeps more of them.
    pub fn keep_only(&mut self, kept: KeptRecovery) -> bool {
        match kept {
            KeptRecovery::All => true,
            _ if self.adds_nothing => false,
            // If an entry with tools were left out and came back later, it would change once more what reasoning is bound
            // to.
            KeptRecovery::AllButToolsAndPrompt => {
                let has_entry = self.binds_reasoning && self.inherited.records.iter().any(is_tools);
                !has_entry && self.withdraw_tools_and_prompt()
            }
            KeptRecovery::Nothing => {
                let had_any = self.adds_anything();
                self.withdraw_all();
                had_any
            }
        }
    }

    /// After a refusal: places no prompt after a tool result any more in this session, and none as a system message. If the
    /// prompt cannot be a block in the result either, a caution prompt then waits for a user message. Returns whether that
    /// changes anything: it does not if such a prompt was accepted before, or if the conversation has a user message after a
    /// result.
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
        if self.events.carried_prompt && self.memory.records.last().is_some_and(is_tools) {
            // Without its tools, the prompt would ask for what the model cannot do. The next prompt is placed in another
            // way.
            self.memory.refused = RefusedAdditions::UserAfterTool;
            self.withdraw_prompt();
            return true;
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

    /// Withdraws all decisions, since they cannot be carried out. Reminders stay, and so do digests of the tool rounds so
    /// far. Tool rounds of earlier requests are sent again with the next request, unless reasoning is bound to them.
    pub fn withdraw_all(&mut self) {
        self.adds_nothing = true;
        let records = &self.memory.records;
        let new = records.partition_point(|record| record.place < self.place);
        let ended = dropped_rounds::end_records(self.format, &records[new..], 0);
        let reminders = std::mem::take(&mut self.memory.reminders);
        self.memory = RecoveryMemory {
            reminders,
            ..self.inherited.clone()
        };
        if self.binds_reasoning {
            // The inherited records are taken, since a new course may have ended those of this request.
            let before = &self.inherited.records;
            self.memory.records = dropped_rounds::end_records(self.format, before, 0);
        }
        self.memory.records.extend(ended);
        self.events = GenerationEvents::default();
        self.injected = None;
        self.tight_chars = None;
    }

    /// After a refusal: withdraws the tool rounds of this request, which continues without the proxy's tools. If it has no
    /// tool rounds, withdraws those of earlier requests, which another model accepted. Returns whether there were any.
    pub fn withdraw_rounds(&mut self) -> bool {
        if self.adds_nothing {
            return false;
        }
        if self.rounds > 0 {
            self.rounds = self.max_rounds;
            return self.drop_rounds_from(self.place);
        }
        self.other_model && self.drop_rounds_from(0)
    }

    /// Drops the tool rounds from a place on. Keeps of them only what takes their blocks out of the answers that the client
    /// echoes. Returns whether there were any.
    pub(super) fn drop_rounds_from(&mut self, place: u32) -> bool {
        let records = std::mem::take(&mut self.memory.records);
        let mut dropped = false;
        for record in records {
            let is_round = match record.what {
                InjectionContent::Round(_) | InjectionContent::Calls { .. } => true,
                InjectionContent::Spoken { .. } | InjectionContent::HiddenPlaces(_) => dropped,
                _ => false,
            };
            if record.place < place || !is_round {
                self.memory.records.push(record);
                continue;
            }
            dropped = true;
            let kept = &self.memory.records;
            let rest = dropped_rounds::drop_record_after(self.format, &record, kept);
            self.memory.records.extend(rest);
        }
        dropped
    }

    /// Withdraws the tools and the prompt of this request. Returns whether there were any.
    fn withdraw_tools_and_prompt(&mut self) -> bool {
        let offer = std::mem::replace(&mut self.offer, Offer::Nothing);
        let sent = std::mem::take(&mut self.sent_tools);
        let had_prompt = self.withdraw_prompt();
        had_prompt || !sent.is_empty() || matches!(offer, Offer::Tools(_))
    }

    /// Withdraws the prompt of this request. Returns whether there was one.
    pub fn withdraw_prompt(&mut self) -> bool {
        let had_prompt = std::mem::take(&mut self.events.carried_prompt);
        if had_prompt {
            // The records of tool rounds may follow that of the prompt.
            let is_new = |it: &InjectionRecord| it.place == self.place;
            let records = &mut self.memory.records;
            records.retain(|it| !(is_new(it) && (is_prompt(it) || is_tools(it))));
            self.injected = None;
            // The next plan notes the tools that it sends.
            (self.memory.tools, self.sent_tools) = (self.inherited.tools, ToolSet::Nothing);
        }
        had_prompt
    }

    /// Ends additions in this session: the provider accepts the request only without them.
    pub fn mark_refused(&mut self) {
        self.memory.refused = RefusedAdditions::All;
    }
}
