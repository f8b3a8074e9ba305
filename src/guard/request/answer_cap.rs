//! The answer cap of a request: how far it is lowered before anything of the history is cut.
//!
//! Clients ask for the longest answer that a model can give, but most answers are short. Engines refuse a request whose
//! prompt and cap together pass the window. The guard therefore lowers the cap first, down to the answer length that the
//! answers so far make plausible, and to half of the window at most. After an answer that was cut off at a lowered cap, that
//! length is the cap as asked. A cap is never raised, and none is added. If the window is only assumed, the cap is not
//! lowered before the provider has refused the request. If nothing more can be cut, a request that was refused and counted
//! gets what is left.
//!
//! The expected length grows with the answers. The replay therefore computes the budget of each earlier request from the
//! assistant messages before it. The cap that is sent is computed last, from the edited prompt.

use serde::Serialize;

use crate::{
    config::profile::AnswerRoom,
    conversation::{Author, Conversation},
    guard::request::{
        budget::{self, Budget},
        estimate::{self, Calibration},
        policy::Policy,
        refusal_lessons::RefusalLessons,
    },
};

/// No cap is lowered below this or the default reserve, whichever is less, since an answer may be longer than all before
/// it; tokens. A thinking budget is added to it.
const LEAST_CAP: u32 = 1_024;
/// One part in so many of the window stays free for the answer, however much system messages and tools take.
const LEAST_RESERVE_PART: u32 = 32;
/// Tokens that a prompt may have beyond its count, since counts are scaled.
const ROUNDING: u32 = 8;
/// The part of the prompt's room, one in so many, that stays free next to a lowered cap: less if a provider has counted the
/// session's tokens, more if they are only estimated.
const MARGIN_COUNTED: u32 = 32;
const MARGIN_GUESSED: u32 = 8;

/// How long the answers of a session were so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHistory {
    /// Completion tokens of the largest answer; 0 before any.
    pub largest: u32,
    /// An answer was cut off at a lowered cap, so the next one may be as long as the client asks for.
    pub cap_was_hit: bool,
}

/// The answer cap of a request; tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerCap {
    pub asked: u32,
    /// The cap that is sent; equal to `asked` if it was not lowered.
    pub sent: u32,
}

impl AnswerCap {
    pub const fn is_lowered(self) -> bool {
        self.sent < self.asked
    }
}

/// The budgets of the requests of a session, from the first to the current one.
pub(in crate::guard) struct SessionBudgets<'a> {
    policy: &'a Policy<'a>,
    past: PastAnswers,
    /// The budget if the cap is sent as asked.
    as_asked: Budget,
    /// Whether the request says how long its answer may be, or answers are counted apart from the window.
    is_asked: bool,
    cap: Option<LowerableCap>,
    /// For each message, what the request that ended with it has.
    so_far: Vec<SoFar>,
}

/// What the request that ended with a message has; raw tokens.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    largest_answer: u32,
    /// System messages, and what is outside of the messages.
    fixed: u32,
}

/// What is known of the answers so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct PastAnswers {
    pub history: AnswerHistory,
    pub calibration: Calibration,
    pub refused: RefusalLessons,
    /// The budgets limit no prompt.
    pub ignores_budget: bool,
}

/// An answer cap that may be lowered; tokens.
#[derive(Clone, Copy, Debug)]
struct LowerableCap {
    asked: u32,
    /// The floor, however long the prompt is.
    least: u32,
    /// The floor where nothing more can be cut: above a thinking budget.
    lowest: u32,
    /// The length expected of the next answer: twice the largest so far, or the cap as asked after an answer
    /// that was cut off at a lowered cap; 0 before any answer.
    expected: u32,
}

impl<'a> SessionBudgets<'a> {
    /// `tokens`: raw tokens of every message. `beside`: raw tokens of what is outside of the messages.
    pub(in crate::guard) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        past: &PastAnswers,
        tokens: &[u32],
        beside: u32,
    ) -> Self {
        let cap = LowerableCap::from_request(conversation, policy, past.history);
        let messages = conversation.items.iter().zip(tokens);
        let begun = SoFar {
            largest_answer: 0,
            fixed: beside,
        };
        let so_far = messages.scan(begun, |it: &mut SoFar, (message, &tokens)| {
            match message.author {
                Author::Model => it.largest_answer = it.largest_answer.max(tokens),
                Author::System => it.fixed = it.fixed.saturating_add(tokens),
                _ => {}
            }
            Some(*it)
        });
        Self {
            policy,
            past: *past,
            as_asked: budget::compute_request_budget(conversation, policy),
            is_asked: match policy.profile.answer_room {
                AnswerRoom::Checked => conversation.max_answer_tokens().is_some(),
                AnswerRoom::Shared => false,
                AnswerRoom::Apart => true,
            },
            so_far: so_far.collect(),
            cap,
        }
    }

    pub(in crate::guard) fn current_budget(&self) -> Budget {
        self.budget_at(self.so_far.len())
    }

    /// The budget of the request that ended before message `end`. Where the cap can be lowered, the budget depends
    /// on the messages before `end` alone, so that every process finds the same cuts.
    pub(in crate::guard) fn budget_at(&self, end: usize) -> Budget {
        self.open_if_ignored(match self.cap {
            Some(_) => {
                let budget = budget::budget_with_reserve(self.expected_cap(end), self.policy);
                budget.with_usual_reserve(self.usual_cap(end).unwrap_or(budget.reserve))
            }
            None if self.is_asked => self.as_asked,
            None => {
                let largest = self.largest_answer(end).max(self.past.history.largest);
                let usual = self.learnt_reserve(largest);
                let budget =
                    budget::budget_with_reserve(self.hold_reserve(end, usual), self.policy);
                budget.with_usual_reserve(usual)
            }
        })
    }

    /// The part of the `usual` reserve that stays free in the request that ended before message `end`: at most half of what
    /// system messages and tools leave of the window, so that there is as much room for the conversation. A set one stays.
    fn hold_reserve(&self, end: usize, usual: u32) -> u32 {
        let window = self.policy.window;
        if self.policy.settings.reserve_tokens.is_some() {
            return usual;
        }
        let left = window.saturating_sub(self.expect_tokens(self.find_so_far(end).fixed));
        usual.min((left / 2).max(window / LEAST_RESERVE_PART))
    }

    fn find_so_far(&self, end: usize) -> SoFar {
        let last = end.checked_sub(1).and_then(|last| self.so_far.get(last));
        last.copied().unwrap_or_default()
    }

    fn expect_tokens(&self, raw: u32) -> u32 {
        (f64::from(raw) * self.past.calibration.slope()) as u32
    }

    const fn open_if_ignored(&self, budget: Budget) -> Budget {
        Budget {
            is_open: budget.is_open || self.past.ignores_budget,
            ..budget
        }
    }

    /// Tokens of the largest answer before message `end`, estimated.
    fn largest_answer(&self, end: usize) -> u32 {
        self.expect_tokens(self.find_so_far(end).largest_answer)
    }

    /// The budget that early clearing is measured by: the same for all requests of a session, however long its answers are.
    pub(in crate::guard) fn clearing_budget(&self) -> Budget {
        let reserve = |cap: LowerableCap| cap.asked.min(self.learnt_reserve(0));
        self.open_if_ignored(self.cap.map_or(self.as_asked, |cap| {
            budget::budget_with_reserve(reserve(cap), self.policy)
        }))
    }

    fn learnt_reserve(&self, largest: u32) -> u32 {
        let Policy {
            window, settings, ..
        } = self.policy;
        settings.learnt_reserve(*window, largest)
    }

    /// The plausible answer length of the request that ended before message `end`. Its cap is lowered below that
    /// only where nothing more can be cut.
    fn expected_cap(&self, end: usize) -> u32 {
        match (self.cap, self.usual_cap(end)) {
            (Some(cap), Some(usual)) => {
                let held = self.hold_reserve(end, usual);
                held.max(cap.least).min(usual)
            }
            _ => self.as_asked.reserve,
        }
    }

    /// The same if system messages and tools leave enough room; `None` without a lowerable cap.
    fn usual_cap(&self, end: usize) -> Option<u32> {
        let cap = self.cap?;
        let learnt = self.learnt_reserve(self.largest_answer(end));
        let expected = cap.expected.max(learnt).min(self.policy.window / 2);
        Some(expected.max(cap.least).min(cap.asked))
    }

    /// The cap that is sent with a prompt of `raw` tokens, of which the provider has not counted `added` yet. `None` without
    /// a lowerable cap.
    pub(in crate::guard) fn fit_answer_cap(&self, raw: u32, added: u32) -> Option<AnswerCap> {
        let LowerableCap {
            asked,
            least,
            lowest,
            ..
        } = self.cap?;
        let (calibration, was_refused) = (self.past.calibration, self.past.refused.was_too_long);
        let send = |sent: u32| Some(AnswerCap { asked, sent });
        if let Some(most) = self.past.refused.most_cap {
            return send(most.max(lowest).min(asked));
        }
        if !self.policy.cuts_by_window() && !was_refused {
            return send(asked);
        }
        let fits = |cap: u32, margin: u32| {
            let room = self.policy.window.saturating_sub(cap);
            raw <= calibration.to_raw_tokens(room - room / margin, added)
        };
        // With the margin of budgets, a second pass over a fitted request changes nothing.
        if fits(asked, budget::MARGIN) {
            return send(asked);
        }
        let expected = self.expected_cap(self.so_far.len());
        let (lowest, margin) = if fits(expected, budget::MARGIN) {
            if calibration.is_counted() {
                (expected, MARGIN_COUNTED)
            } else {
                (expected, MARGIN_GUESSED)
            }
        } else if fits(least, budget::MARGIN) {
            // Nothing more can be cut. A short answer is better than none.
            (least, budget::MARGIN)
        } else {
            // The estimate may be too high: the provider decides, and the calibration learns its count. If the provider has
            // refused the request before and counted it, the cap is what is left; without a count it is the smallest, which
            // leaves most room.
            let left = || {
                let is_left = |cap: u32| fits(cap.saturating_add(ROUNDING), u32::MAX);
                let more = least.min(asked).saturating_sub(lowest) as usize;
                let find = || estimate::find_last_fit(more, |more| is_left(lowest + more as u32));
                let is_known = calibration.is_counted() && is_left(lowest);
                is_known.then(|| lowest + find() as u32)
            };
            return send(if was_refused {
                left().unwrap_or(least).min(asked)
            } else {
                expected.min(asked)
            });
        };
        // `asked` does not fit, and is more than `lowest`.
        let most = (asked - lowest - 1) as usize;
        let more = estimate::find_last_fit(most, |more| fits(lowest + more as u32, margin));
        send(lowest + more as u32)
    }
}

impl LowerableCap {
    fn from_request(
        conversation: &Conversation,
        policy: &Policy<'_>,
        answers: AnswerHistory,
    ) -> Option<Self> {
        let settings = policy.settings;
        if !settings.clamp_max_tokens || !policy.profile.checks_answer_cap() {
            return None;
        }
        let saturate = |tokens: u64| u32::try_from(tokens).unwrap_or(u32::MAX);
        let asked = saturate(conversation.largest_answer_cap()?);
        let thinking = conversation.thinking_budget().map_or(0, saturate);
        let least = settings.default_reserve(policy.window).min(LEAST_CAP);
        // Providers refuse a cap at or below the thinking budget.
        let least = thinking.saturating_add(least);
        Some(Self {
            asked,
            least: least.max(1),
            lowest: thinking.saturating_add(1),
            expected: if answers.cap_was_hit {
                asked
            } else {
                answers.largest.saturating_mul(2)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{config::GuardConfig, format::chat::index_body, guard::profile::find_profile};

    /// The reserve in a window of 65,536 tokens, after an assistant message of `chars` characters.
    fn reserve(members: &str, chars: usize, answers: AnswerHistory) -> u32 {
        let settings = GuardConfig::counted_by_characters();
        let policy = Policy::new(
            find_profile("openai").unwrap(),
            65_536,
            crate::config::tokens::unknown_model(),
            &settings,
        );
        let text = "a".repeat(chars);
        let answer = match chars {
            0 => String::new(),
            _ => format!(r#",{{"role":"assistant","content":"{text}"}}"#),
        };
        let body = format!(r#"{{"messages":[{{"role":"user","content":"u"}}{answer}]{members}}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let past = PastAnswers {
            history: answers,
            ..PastAnswers::default()
        };
        let tokens = estimate::estimate_messages(&conversation, &policy.token_weights());
        let budgets = SessionBudgets::new(&conversation, &policy, &past, &tokens, 0);
        budgets.current_budget().reserve
    }

    const LONG: &str = r#","max_tokens":30000"#;

    fn after(largest: u32) -> AnswerHistory {
        AnswerHistory {
            largest,
            cap_was_hit: false,
        }
    }

    #[test]
    fn the_reserve_follows_the_answers_so_far() {
        assert_eq!(reserve(LONG, 0, after(0)), 65_536 / 24);
        assert_eq!(reserve(LONG, 9_000, after(0)), 6_008);
        assert_eq!(reserve(LONG, 9_000, after(2_000)), 6_008);
        assert_eq!(reserve(LONG, 9_000, after(4_000)), 8_000);
        assert_eq!(reserve(LONG, 9_000, after(20_000)), 30_000);
        // An answer may be longer than all before it.
        assert_eq!(reserve(LONG, 9, after(3)), 65_536 / 24);
        // Never more than was asked for.
        assert_eq!(reserve(r#","max_tokens":700"#, 9_000, after(2_000)), 700);
        let both = r#","max_tokens":30000,"max_completion_tokens":700"#;
        assert_eq!(reserve(both, 9_000, after(0)), 6_008);
    }

    #[test]
    fn the_reserve_is_above_a_thinking_budget() {
        let thinking = r#","max_tokens":30000,"thinking":{"budget_tokens":16000}"#;
        assert_eq!(reserve(thinking, 9_000, after(0)), 17_024);
        let too_much = r#","max_tokens":9000,"thinking":{"budget_tokens":16000}"#;
        assert_eq!(reserve(too_much, 9_000, after(0)), 9_000);
    }

    #[test]
    fn the_reserve_is_the_cap_as_asked_after_an_answer_was_cut_off() {
        let hit = AnswerHistory {
            largest: 2_000,
            cap_was_hit: true,
        };
        assert_eq!(reserve(LONG, 9_000, hit), 30_000);
        assert_eq!(reserve(r#","max_tokens":65535"#, 9_000, hit), 32_768);
        assert_eq!(reserve("", 9_000, after(2_000)), 6_008);
        assert_eq!(reserve("", 90_000, after(2_000)), 16_384);
    }
}
