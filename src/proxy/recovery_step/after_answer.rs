//! Recovery after an answer: executes and records its proxy-executed calls, and advances the clock.

use std::ops::Range;

use super::RecoveryStep;
use crate::{
    conversation::Author,
    format::{ModelAnswer, PrecedingText, ProxyToolCall, usage::Usage},
    guard::{
        dropped_rounds,
        injections::{
            InjectedAuthor, InjectedCall, InjectedMessage, InjectionContent, InjectionRecord,
        },
    },
    health::HealthLevel,
    json::text,
    recovery::{
        RecoveryClock, RecoveryMemory,
        tool::{self, RecallSource},
    },
};

/// Most bytes of an answer that is kept to be sent again, reasoning included.
const MAX_ANSWER_BYTES: usize = 48 << 10;
/// Most bytes of a call's arguments that are kept to be sent again: a reminder has far fewer.
const MAX_ARGUMENT_BYTES: usize = 24 << 10;

/// Tokens of all calls to the provider for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BilledTokens {
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    /// The completion tokens of the call that had the most: to the provider, each call has an answer of its own.
    pub largest_answer: u32,
}

impl BilledTokens {
    fn add_usage(&mut self, usage: Option<Usage>) {
        let Some(usage) = usage else { return };
        self.prompt_tokens = self.prompt_tokens.saturating_add(usage.prompt_tokens);
        let completion = usage.completion_tokens.unwrap_or(0);
        self.completion_tokens = self.completion_tokens.saturating_add(completion);
        self.largest_answer = self.largest_answer.max(completion);
    }
}

impl RecoveryStep {
    /// Executes the calls of an answer that called only the proxy's tools, and records the tool round. If no rounds are
    /// left, the client's next request has the texts of all rounds as one answer, so the rounds are dropped: no text is sent
    /// twice.
    pub fn execute_tool_round(&mut self, source: &RecallSource<'_>, said: &ModelAnswer) {
        self.rounds = self.rounds.saturating_add(1);
        self.billed.add_usage(said.usage);
        self.record_tool_round(source, said);
        if self.is_exhausted() {
            self.drop_rounds_from(self.place);
        }
    }

    fn record_tool_round(&mut self, source: &RecallSource<'_>, said: &ModelAnswer) {
        let said = &self.mend_calls(said, self.rounds);
        if self.adds_nothing {
            // The model calls tools that it was not offered, and would call them again.
            self.rounds = self.max_rounds.saturating_add(1);
            return;
        }
        let (format, reminders) = (self.format, &mut self.memory.reminders);
        let calls = said.proxy_calls.len() as u32;
        let answer = format.answer_item(said, MAX_ANSWER_BYTES, MAX_ARGUMENT_BYTES);
        let mut messages = Vec::new();
        if let Some(package) = &said.package {
            reminders.keep_package(&package.text);
        }
        let mut clear = false;
        if calls == 0 {
            let text = text::escape_text(self.prompts.continue_prompt(self.language));
            messages.push(InjectedMessage {
                by: InjectedAuthor::User,
                json: format.text_item(Author::User, &text).into(),
            });
        } else {
            let (calls, lost) = (&said.proxy_calls, self.may_be_lost);
            let executed = tool::execute_calls(format, calls, reminders, lost, Some(source));
            clear = executed.clear;
            self.recalls += executed.recalls;
            let by = InjectedAuthor::Tool;
            let results = executed.results.into_iter();
            messages.extend(results.map(|json| InjectedMessage { by, json }));
        }
        // Only one new course begins with a request. For another clear, and if the conversation cannot be divided, the
        // model must see the result of the call, or it would repeat it.
        if clear && !self.events.cleared {
            self.begin_course(source.conversation, source.policy);
            if self.events.cleared {
                self.record_dropped_round(said);
                return;
            }
        }
        let Some(json) = answer else {
            self.record_dropped_round(said);
            // The model answers again, without the tools whose calls cannot be sent back to it.
            self.rounds = self.rounds.max(self.max_rounds);
            return;
        };
        let by = InjectedAuthor::Model { calls };
        messages.insert(0, InjectedMessage { by, json });
        self.push_record(InjectionContent::Round(messages));
    }

    /// The answer with calls that can be sent back.
    fn mend_calls(&self, said: &ModelAnswer, round: u32) -> ModelAnswer {
        let (place, mut said) = (self.place, said.clone());
        let id = |call| format!("call_{place}_{round}_{call}");
        self.format.mend_calls(&mut said, id);
        said
    }

    /// Records a tool round that is not sent, although the client has its blocks.
    fn record_dropped_round(&mut self, said: &ModelAnswer) {
        let dropped = dropped_rounds::drop_messages(self.format, &[&said.message]);
        dropped.into_iter().for_each(|it| self.push_record(it));
    }

    /// Records the last answer of the request.
    pub fn finish_answer(
        &mut self,
        source: &RecallSource<'_>,
        last: &ModelAnswer,
        before: PrecedingText,
    ) {
        // An answer that the proxy made itself costs nothing.
        if !self.is_exhausted() {
            self.billed.add_usage(last.usage);
        }
        let last_record = self.memory.records.last();
        let follows_round = last_record.is_some_and(|record| record.place == self.place);
        if before.chars > 0 && (follows_round || !self.adds_nothing) && !self.is_exhausted() {
            self.push_record(InjectionContent::Spoken {
                chars: before.chars,
                digest: before.digest,
            });
        }
        if self.adds_nothing {
            return;
        }
        if let Some(places) = last.find_hidden_places(self.format) {
            self.push_record(InjectionContent::HiddenPlaces(places));
        }
        if let Some(package) = &last.package {
            self.memory.reminders.keep_package(&package.text);
            self.push_record(InjectionContent::Text {
                before_chars: before.chars.saturating_add(package.before_chars),
                text: package.text.clone(),
            });
        }
        if !last.proxy_calls.is_empty() && last.client_calls > 0 {
            let last = self.mend_calls(last, self.rounds + 1);
            let (format, calls) = (self.format, &last.proxy_calls);
            let (reminders, lost) = (&mut self.memory.reminders, self.may_be_lost);
            let executed = tool::execute_calls(format, calls, reminders, lost, Some(source));
            self.recalls += executed.recalls;
            self.memory.clear_due |= executed.clear;
            let keep_call = |call: &ProxyToolCall| InjectedCall {
                before: call.before,
                json: format.write_call(call, MAX_ARGUMENT_BYTES).into(),
            };
            self.push_record(InjectionContent::Calls {
                client_calls: last.client_calls,
                calls: calls.iter().map(keep_call).collect(),
                results: executed.results,
            });
        }
    }

    /// Returns the memory after a generation of this `level`. `left_out`: the messages that are left out, counted without
    /// system messages.
    pub fn memory_after(&self, level: HealthLevel, left_out: &[Range<u32>]) -> RecoveryMemory {
        let mut memory = self.memory.clone();
        // Records at places that are left out are not put back. At the place right after these, what is before the answer
        // (prompts, tools and rounds) is not put back either.
        let count = memory.records.len();
        let mut kept: Vec<InjectionRecord> = Vec::new();
        for (at, record) in std::mem::take(&mut memory.records).into_iter().enumerate() {
            let place = record.place;
            if left_out.iter().any(|span| span.contains(&place)) {
                if dropped_rounds::may_return(self.format, at, count) {
                    kept.extend(dropped_rounds::drop_record_after(
                        self.format,
                        &record,
                        &kept,
                    ));
                }
                continue;
            }
            let what = match record.what {
                what if left_out.iter().all(|span| span.end != place) => Some(what),
                InjectionContent::Prompt(_) | InjectionContent::Tools { .. } => None,
                InjectionContent::Round(messages) => {
                    dropped_rounds::drop_round(self.format, &messages)
                }
                what => Some(what),
            };
            kept.extend(what.map(|what| InjectionRecord { place, what }));
        }
        memory.records = kept;
        if self.may_begin {
            memory.clock = memory.clock.advance_after(level, self.events, self.pace);
        } else if self.events.cleared {
            memory.clock = RecoveryClock::Calm;
        }
        memory
    }

    /// Returns the tokens of all calls to the provider, if there was more than one call.
    pub fn billed_tokens(&self) -> Option<BilledTokens> {
        (self.rounds > 0).then_some(self.billed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_calls_the_largest_answer_is_one_of_them() {
        let usage = |completion| Usage {
            prompt_tokens: 100,
            completion_tokens: completion,
            cached_tokens: None,
            cache_written_tokens: None,
        };
        let mut billed = BilledTokens::default();
        for completion in [Some(2_000), Some(7_000), None, Some(6_000)] {
            billed.add_usage(Some(usage(completion)));
        }
        billed.add_usage(None);
        let expected = BilledTokens {
            prompt_tokens: 400,
            completion_tokens: 15_000,
            largest_answer: 7_000,
        };
        assert_eq!(billed, expected);
    }
}
