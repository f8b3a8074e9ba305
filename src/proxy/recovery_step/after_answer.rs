//! What an answer changes: its calls of the proxy's tools are executed and recorded, and the clock advances.

use super::{
    RecoveryStep,
    kept_answer::{keep_answer, keep_call},
};
use crate::{
    conversation::{Author, Conversation},
    format::{AssistantTurn, PrecedingText, usage::Usage},
    guard::{
        Policy,
        injections::{InjectedAuthor, InjectedMessage, InjectionContent},
    },
    health::HealthLevel,
    json::text,
    recovery::{RecoveryMemory, clock::GenerationEvents, tool},
};

/// Tokens of all calls to the provider that one request made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BilledTokens {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
}

impl BilledTokens {
    fn add_usage(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        self.prompt_tokens = self.prompt_tokens.saturating_add(usage.prompt_tokens);
        let completion = usage.completion_tokens.unwrap_or(0);
        self.completion_tokens = self.completion_tokens.saturating_add(completion);
    }
}

impl RecoveryStep {
    /// An answer was for us alone: carries out its calls, and records the round.
    pub fn execute_tool_turn(
        &mut self,
        conversation: &Conversation,
        policy: &Policy<'_>,
        spoken: &AssistantTurn,
    ) {
        self.rounds = self.rounds.saturating_add(1);
        self.billed.add_usage(spoken.usage);
        if self.adds_nothing {
            // It calls what it was not even offered, and would do so again.
            self.rounds = self.max_rounds.saturating_add(1);
            return;
        }
        let format = self.format;
        let mut said = vec![InjectedMessage {
            by: InjectedAuthor::Model {
                calls: spoken.proxy_calls.len() as u32,
            },
            json: keep_answer(format, spoken),
        }];
        let mut clear = false;
        if let Some(package) = &spoken.package {
            self.memory.reminders.keep_package(&package.text);
        }
        if spoken.proxy_calls.is_empty() {
            let go_on = self.prompts.continue_prompt(self.language);
            said.push(InjectedMessage {
                by: InjectedAuthor::User,
                json: format
                    .text_item(Author::User, &text::escape_text(go_on))
                    .into(),
            });
        } else {
            let executed =
                tool::execute_calls(format, &spoken.proxy_calls, &mut self.memory.reminders);
            clear = executed.clear;
            said.extend(executed.results.into_iter().map(|json| InjectedMessage {
                by: InjectedAuthor::Tool,
                json,
            }));
        }
        // One new course a request: to another clear the model must see an answer, or it asks for
        // the same again. So it is where the conversation cannot be divided.
        if clear && !self.did.cleared {
            self.begin_course(conversation, policy);
            if self.did.cleared {
                return;
            }
        }
        self.push_record(InjectionContent::Round(said));
    }

    /// The last answer of the request is over.
    pub fn finish_answer(&mut self, last: &AssistantTurn, before: PrecedingText) {
        // An answer of our own making costs nothing.
        if !self.is_exhausted() {
            self.billed.add_usage(last.usage);
        }
        if self.adds_nothing {
            return;
        }
        if before.chars > 0 {
            self.push_record(InjectionContent::Spoken {
                chars: before.chars,
                digest: before.digest,
            });
        }
        if let Some(package) = &last.package {
            self.memory.reminders.keep_package(&package.text);
            self.push_record(InjectionContent::Text {
                before_chars: before.chars.saturating_add(package.before_chars),
                text: package.text.clone(),
            });
        }
        if !last.proxy_calls.is_empty() && last.client_calls > 0 {
            let executed =
                tool::execute_calls(self.format, &last.proxy_calls, &mut self.memory.reminders);
            self.memory.clear_due |= executed.clear;
            self.push_record(InjectionContent::Calls {
                client_calls: last.client_calls,
                calls: last
                    .proxy_calls
                    .iter()
                    .map(|call| keep_call(self.format, call))
                    .collect(),
                results: executed.results,
            });
        }
    }

    /// What is remembered after a generation of that level; `cut`: the guard made a new cut.
    pub fn memory_after(
        &self,
        level: HealthLevel,
        cut: bool,
        folded_until: Option<u32>,
    ) -> RecoveryMemory {
        let mut memory = self.memory.clone();
        // What was folded away is put back no more.
        memory.records.retain(|record| match record.what {
            InjectionContent::Prompt(_) | InjectionContent::Round(_) => {
                folded_until.is_none_or(|at| record.place > at)
            }
            _ => folded_until.is_none_or(|at| record.place >= at),
        });
        if self.may_begin {
            let did = GenerationEvents { cut, ..self.did };
            memory.clock = memory.clock.advance_after(level, did, self.pace);
        }
        memory
    }

    /// Tokens of all calls, where there was more than one.
    pub fn billed_tokens(&self) -> Option<BilledTokens> {
        (self.rounds > 0).then_some(self.billed)
    }
}
