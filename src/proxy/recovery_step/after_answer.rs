//! What an answer changes: its calls of the proxy's tools are executed and recorded, and the clock advances.

use super::{
    RecoveryStep,
    kept::{keep_answer, keep_call},
};
use crate::{
    conversation::{Author, Conversation},
    format::{Before, Spoken, usage::Usage},
    guard::{
        Policy,
        record::{By, Said, What},
    },
    health::Level,
    json::text,
    recovery::{Memory, clock::Did, tool},
};

/// Tokens of all calls to the provider that one request made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Billed {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
}

impl Billed {
    fn add(&mut self, usage: Option<Usage>) {
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
        spoken: &Spoken,
    ) {
        self.rounds = self.rounds.saturating_add(1);
        self.billed.add(spoken.usage);
        if self.bare {
            // It calls what it was not even offered, and would do so again.
            self.rounds = self.max_rounds.saturating_add(1);
            return;
        }
        let format = self.format;
        let mut said = vec![Said {
            by: By::Model {
                calls: spoken.own.len() as u32,
            },
            json: keep_answer(format, spoken),
        }];
        let mut clear = false;
        if let Some(package) = &spoken.package {
            self.memory.reminders.keep_package(&package.text);
        }
        if spoken.own.is_empty() {
            let go_on = self.prompts.go_on(self.language);
            said.push(Said {
                by: By::User,
                json: format.text_item(Author::User, &text::escape(go_on)).into(),
            });
        } else {
            let executed = tool::execute(format, &spoken.own, &mut self.memory.reminders);
            clear = executed.clear;
            said.extend(
                executed
                    .results
                    .into_iter()
                    .map(|json| Said { by: By::Tool, json }),
            );
        }
        // One new course a request: to another clear the model must see an answer, or it asks for
        // the same again. So it is where the conversation cannot be divided.
        if clear && !self.did.cleared {
            self.begin_course(conversation, policy);
            if self.did.cleared {
                return;
            }
        }
        self.record(What::Round(said));
    }

    /// The last answer of the request is over.
    pub fn finish_answer(&mut self, last: &Spoken, before: Before) {
        // An answer of our own making costs nothing.
        if !self.is_exhausted() {
            self.billed.add(last.usage);
        }
        if self.bare {
            return;
        }
        if before.chars > 0 {
            self.record(What::Spoken {
                chars: before.chars,
                digest: before.digest,
            });
        }
        if let Some(package) = &last.package {
            self.memory.reminders.keep_package(&package.text);
            self.record(What::Text {
                before_chars: before.chars.saturating_add(package.before_chars),
                text: package.text.clone(),
            });
        }
        if !last.own.is_empty() && last.theirs > 0 {
            let executed = tool::execute(self.format, &last.own, &mut self.memory.reminders);
            self.memory.clear_due |= executed.clear;
            self.record(What::Calls {
                theirs: last.theirs,
                calls: last
                    .own
                    .iter()
                    .map(|call| keep_call(self.format, call))
                    .collect(),
                results: executed.results,
            });
        }
    }

    /// What is remembered after a generation of that level; `cut`: the guard made a new cut.
    pub fn memory_after(&self, level: Level, cut: bool, folded_until: Option<u32>) -> Memory {
        let mut memory = self.memory.clone();
        // What was folded away is put back no more.
        memory.records.retain(|record| match record.what {
            What::Prompt(_) | What::Round(_) => folded_until.is_none_or(|at| record.place > at),
            _ => folded_until.is_none_or(|at| record.place >= at),
        });
        if self.on {
            let did = Did { cut, ..self.did };
            memory.clock = memory.clock.after(level, did, self.pace);
        }
        memory
    }

    /// Tokens of all calls, where there was more than one.
    pub fn billed_tokens(&self) -> Option<Billed> {
        (self.rounds > 0).then_some(self.billed)
    }
}
