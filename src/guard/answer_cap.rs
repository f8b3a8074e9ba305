//! The answer cap of a request: how far it is lowered before anything of the history is cut.
//!
//! Clients ask for the longest answer that a model can give, and most answers are short. Engines refuse a
//! request whose prompt and cap together pass the window, so the cap is what gives way first: down to a
//! floor that the answers so far make plausible: the cap as asked once an answer was cut off at a lowered
//! one, and half of the window at most, so that prompt and floor can fit. It is never raised, and none is
//! added.
//!
//! The floor grows with the answers, so the replay gives each request the budget that it had, from the assistant
//! messages before it. The grid of cuts and the mark of clearing stand on the usual reserve, which does not move.
//! The cap that goes out is found last, from the prompt as it goes out.

use serde::Serialize;

use super::{
    Policy, Recall,
    budget::{self, Budget},
    estimate::{self, Calibration},
};
use crate::conversation::{Author, Conversation};

/// No cap is lowered below this, or below the usual reserve where that is less: an answer may be longer than all
/// before it. A thinking budget comes on top. In tokens.
const LEAST_CAP: u32 = 1_024;
/// One part in so many of the prompt's room is left free beside prompt and lowered cap: where the usage of an answer
/// has shown what the session's tokens are, and where the estimate is a guess.
const MARGIN_COUNTED: u32 = 32;
const MARGIN_GUESSED: u32 = 8;

/// What the answers of a session so far say of the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerHistory {
    /// Completion tokens of the largest; 0 before any.
    pub largest: u32,
    /// One ended at a cap that was lowered: the next one may be as long as was asked for.
    pub cap_was_hit: bool,
}

/// An answer cap that may be lowered; tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerCap {
    pub asked: u32,
    /// What goes out; as asked where nothing had to be lowered.
    pub sent: u32,
}

impl AnswerCap {
    pub const fn is_lowered(self) -> bool {
        self.sent < self.asked
    }
}

/// The budgets of a conversation, now and when it was shorter, by what its answer cap can be lowered to.
pub(super) struct SessionBudgets<'a> {
    policy: &'a Policy<'a>,
    calibration: Calibration,
    /// Where the cap stays as it is: the reserve is what was asked for.
    as_asked: Budget,
    cap: Option<LowerableCap>,
    /// Raw tokens of the largest assistant message up to each message; empty where no cap can be lowered.
    largest_answers: Vec<u32>,
}

/// Tokens.
#[derive(Clone, Copy, Debug)]
struct LowerableCap {
    asked: u32,
    /// No cap goes below it, however long the prompt is.
    least: u32,
    /// What the answers so far say of the next one: twice the largest, or the cap as asked after one that was
    /// cut off at a lowered cap; 0 before any.
    expected: u32,
}

impl<'a> SessionBudgets<'a> {
    /// `tokens`: raw ones of every message.
    pub(super) fn new(
        conversation: &Conversation,
        policy: &'a Policy<'a>,
        recall: &Recall,
        tokens: &[u32],
    ) -> Self {
        let cap = LowerableCap::from_request(conversation, policy, recall.answers);
        let messages = conversation.items.iter().enumerate();
        let said = messages.scan(0, |most: &mut u32, (at, message)| {
            if message.author == Author::Model {
                *most = (*most).max(tokens[at]);
            }
            Some(*most)
        });
        Self {
            policy,
            calibration: recall.calibration,
            as_asked: budget::compute_request_budget(conversation, policy),
            largest_answers: cap.map_or_else(Vec::new, |_| said.collect()),
            cap,
        }
    }

    /// The budget of the request as it came.
    pub(super) fn current_budget(&self) -> Budget {
        self.budget_at(self.largest_answers.len())
    }

    /// The budget of the request that ended before message `end`. Where the cap can be lowered it depends on
    /// the messages before alone, so that every process finds the same cuts.
    pub(super) fn budget_at(&self, end: usize) -> Budget {
        match self.cap {
            Some(_) => budget::budget_with_reserve(self.expected_cap(end), self.policy),
            None => self.as_asked,
        }
    }

    /// The budget that clearing goes by: the same for all requests of a session, however long its answers are.
    pub(super) fn clearing_budget(&self) -> Budget {
        match self.cap {
            Some(cap) => {
                budget::budget_with_reserve(cap.asked.min(self.usual_reserve()), self.policy)
            }
            None => self.as_asked,
        }
    }

    fn usual_reserve(&self) -> u32 {
        budget::default_reserve(self.policy.window, self.policy.settings)
    }

    /// What the answers so far make plausible for the request that ended before message `end`: its cap is lowered
    /// below that only where nothing more can be cut.
    fn expected_cap(&self, end: usize) -> u32 {
        let Some(cap) = self.cap else {
            return self.as_asked.reserve;
        };
        let said = end
            .checked_sub(1)
            .and_then(|last| self.largest_answers.get(last));
        let said = f64::from(said.copied().unwrap_or(0)) * self.calibration.slope();
        let expected = match cap.expected.max(said as u32) {
            0 => self.usual_reserve(),
            expected => expected,
        };
        expected
            .min(self.policy.window / 2)
            .max(cap.least)
            .min(cap.asked)
    }

    /// The cap that goes out with a prompt of `raw` tokens, of which the provider has not counted `added` yet.
    /// `None` where the request has none that may be lowered.
    pub(super) fn fit_answer_cap(&self, raw: u32, added: u32) -> Option<AnswerCap> {
        let LowerableCap { asked, least, .. } = self.cap?;
        let fits = |cap: u32, margin: u32| {
            let room = self.policy.window.saturating_sub(cap);
            raw <= self.calibration.to_raw_tokens(room - room / margin, added)
        };
        // The same margin as that of budgets: so a request that was fitted once is left alone.
        if fits(asked, budget::MARGIN) {
            return Some(AnswerCap { asked, sent: asked });
        }
        let expected = self.expected_cap(self.largest_answers.len());
        let (lowest, margin) = if fits(expected, budget::MARGIN) {
            let counted = self.calibration.is_counted();
            (
                expected,
                if counted {
                    MARGIN_COUNTED
                } else {
                    MARGIN_GUESSED
                },
            )
        } else if fits(least, budget::MARGIN) {
            // Nothing more can go: a short answer is better than none.
            (least, budget::MARGIN)
        } else {
            // The estimate may be too high: the provider decides, and what it counts is learnt.
            let sent = self.usual_reserve().max(least).min(asked);
            return Some(AnswerCap { asked, sent });
        };
        let (mut sent, mut beyond) = (lowest, asked);
        while beyond - sent > 1 {
            let middle = sent + (beyond - sent) / 2;
            if fits(middle, margin) {
                sent = middle;
            } else {
                beyond = middle;
            }
        }
        Some(AnswerCap { asked, sent })
    }
}

/// What the prompt of a request may use in its session, where its answer cap is lowered first.
pub fn session_budget(conversation: &Conversation, policy: &Policy<'_>, recall: &Recall) -> Budget {
    let tokens = estimate::estimate_messages(conversation, policy);
    SessionBudgets::new(conversation, policy, recall, &tokens).current_budget()
}

impl LowerableCap {
    fn from_request(
        conversation: &Conversation,
        policy: &Policy<'_>,
        answers: AnswerHistory,
    ) -> Option<Self> {
        let settings = policy.settings;
        if !settings.clamp_max_tokens || !policy.profile.answer_inside_window {
            return None;
        }
        let asked = saturate_to_u32(conversation.largest_answer_cap()?);
        let thinking = conversation.thinking_budget().map_or(0, saturate_to_u32);
        let least = budget::default_reserve(policy.window, settings).min(LEAST_CAP);
        // A cap at or below the thinking budget is refused.
        let least = thinking.saturating_add(least);
        Some(Self {
            asked,
            least: least.max(1),
            expected: if answers.cap_was_hit {
                asked
            } else {
                answers.largest.saturating_mul(2)
            },
        })
    }
}

fn saturate_to_u32(tokens: u64) -> u32 {
    u32::try_from(tokens).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{config::GuardConfig, format::chat::index_body, guard::profile::find_profile};

    /// The reserve in a window of 65,536 tokens, after an assistant message of so many characters.
    fn reserve(members: &str, said: usize, answers: AnswerHistory) -> u32 {
        let settings = GuardConfig::default();
        let policy = Policy {
            profile: find_profile("openai").unwrap(),
            window: 65_536,
            input_limit: None,
            settings: &settings,
        };
        let answer = match said {
            0 => String::new(),
            said => format!(
                r#",{{"role":"assistant","content":"{}"}}"#,
                "a".repeat(said)
            ),
        };
        let body = format!(r#"{{"messages":[{{"role":"user","content":"u"}}{answer}]{members}}}"#);
        let conversation = index_body(Bytes::from(body)).unwrap();
        let recall = Recall {
            answers,
            ..Recall::default()
        };
        session_budget(&conversation, &policy, &recall).reserve
    }

    const LONG: &str = r#","max_tokens":30000"#;

    fn after(largest: u32) -> AnswerHistory {
        AnswerHistory {
            largest,
            cap_was_hit: false,
        }
    }

    #[test]
    fn the_reserve_is_what_the_answers_so_far_make_plausible() {
        assert_eq!(reserve(LONG, 0, after(0)), 8_192);
        assert_eq!(reserve(LONG, 9_000, after(0)), 3_006);
        assert_eq!(reserve(LONG, 9_000, after(2_000)), 4_000);
        assert_eq!(reserve(LONG, 9_000, after(20_000)), 30_000);
        // An answer may be longer than all before it.
        assert_eq!(reserve(LONG, 9, after(3)), 1_024);
        // Never more than was asked for.
        assert_eq!(reserve(r#","max_tokens":700"#, 9_000, after(2_000)), 700);
        let both = r#","max_tokens":30000,"max_completion_tokens":700"#;
        assert_eq!(reserve(both, 9_000, after(0)), 3_006);
    }

    #[test]
    fn the_reserve_is_above_a_thinking_budget() {
        let thinking = r#","max_tokens":30000,"thinking":{"budget_tokens":16000}"#;
        assert_eq!(reserve(thinking, 9_000, after(0)), 17_024);
        let too_much = r#","max_tokens":9000,"thinking":{"budget_tokens":16000}"#;
        assert_eq!(reserve(too_much, 9_000, after(0)), 9_000);
    }

    #[test]
    fn the_reserve_is_what_was_asked_for_after_an_answer_that_was_cut_off() {
        let hit = AnswerHistory {
            largest: 2_000,
            cap_was_hit: true,
        };
        assert_eq!(reserve(LONG, 9_000, hit), 30_000);
        assert_eq!(reserve(r#","max_tokens":65535"#, 9_000, hit), 32_768);
        assert_eq!(reserve("", 9_000, after(2_000)), 8_192);
    }
}
