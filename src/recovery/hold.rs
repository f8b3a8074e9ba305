//! Why recovery adds nothing new to a request, or no caution prompts.
//!
//! Each request is judged by itself: a session may have requests with and without tools, and candidates with different
//! windows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{conversation::Conversation, guard::Report, health::limits::HealthLimits};

/// Below this window, in tokens, models are too small for a prompt of recovery next to the user's question: a model of 135M
/// parameters answered the prompt in view of the user in 3 of 5 chats.
const LEAST_CHAT_WINDOW: u32 = 32_768;

/// What no cut can take must leave one part in so many of the window, or [`LEAST_ROOM`] tokens if that is less. If less is
/// left, the answer and the conversation need it.
const LEAST_ROOM_PART: u32 = 3;
const LEAST_ROOM: u32 = 3_000;

/// The part of a planned request that no cut can take; tokens.
struct FixedTokens {
    system_and_tools: u32,
    /// With the task.
    all: u32,
    /// The tokens of `all` as the provider is expected to count them, with what it adds outside of the body.
    counted: u32,
}

impl FixedTokens {
    /// What a provider adds outside of the body must not lift the fixed part over a level. So the ratio of expected to raw
    /// tokens counts for the first two numbers only if it is below 1: the provider counts the whole request as less than the
    /// estimate.
    fn from_report(report: &Report) -> Self {
        let scale = f64::from(report.expected) / f64::from(report.raw_after.max(1));
        let tokens = |raw: u32, scale: f64| (f64::from(raw) * scale) as u32;
        let tools = report.sent.system.saturating_add(report.sent.tools);
        Self {
            system_and_tools: tokens(tools, scale.min(1.0)),
            all: tokens(report.fixed, scale.min(1.0)),
            counted: tokens(report.fixed, scale),
        }
    }
}

/// Whether so many tokens leave little of a window.
fn leaves_little(tokens: u32, window: u32) -> bool {
    window.saturating_sub(tokens) < LEAST_ROOM.min(window / LEAST_ROOM_PART)
}

/// Whether a planned request gets no tool that the session did not have before: what no cut can take leaves less than a
/// third of the window, or less than 3,000 tokens if a third is more.
pub fn has_little_room(report: &Report, window: u32) -> bool {
    leaves_little(FixedTokens::from_report(report).counted, window)
}

/// What holds recovery back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryHold {
    /// The request has no tools of the client's, and its window is below 32,768 tokens.
    SmallChat,
    /// The part of the request that no cut can take is beyond a level by itself, or leaves too little of the window.
    /// Reminders cannot lower that part.
    FixedPart {
        /// Of the window.
        percent: u32,
        /// System and tools are beyond the level only with the task.
        with_task: bool,
        /// The part is beyond the critical level too, so that no countdown begins either; or there is no critical level; or
        /// the part leaves too little of the window.
        above_critical: bool,
    },
}

impl RecoveryHold {
    /// Returns the hold of a chat in a small window; `chats`: the setting `recovery.chats`.
    pub fn of_chat(conversation: &Conversation, window: u32, chats: bool) -> Option<Self> {
        let is_small = !chats && window < LEAST_CHAT_WINDOW && !conversation.names_tools();
        is_small.then_some(Self::SmallChat)
    }

    /// Returns the hold if the fixed part of a planned request (what no cut can take) is beyond a level, or leaves too
    /// little of the window.
    pub fn of_fixed_part(report: &Report, window: u32, limits: &HealthLimits) -> Option<Self> {
        let FixedTokens {
            system_and_tools,
            all,
            counted,
        } = FixedTokens::from_report(report);
        let critical = limits.critical_max_tokens;
        let optimal = limits.optimal_max_tokens;
        let lowest = critical.map_or(optimal, |critical| critical.min(optimal));
        let has_room = !leaves_little(counted, window);
        let with_task = system_and_tools <= lowest;
        let shown = if with_task { all } else { system_and_tools };
        (all > lowest || !has_room).then(|| Self::FixedPart {
            percent: (u64::from(shown) * 100 / u64::from(window.max(1))) as u32,
            with_task,
            // Without a critical level there is no countdown.
            above_critical: !has_room || critical.is_none_or(|critical| all > critical),
        })
    }

    /// Whether prompts, tools and courses are held back, and not caution prompts alone.
    pub const fn holds_all(self) -> bool {
        match self {
            Self::SmallChat => true,
            Self::FixedPart { above_critical, .. } => above_critical,
        }
    }

    /// One word for the session API.
    pub const fn word(self) -> &'static str {
        match self {
            Self::SmallChat => "chat",
            Self::FixedPart { with_task, .. } if with_task => "task",
            Self::FixedPart { .. } => "tools",
        }
    }

    /// The share of the window that the fixed part takes.
    pub const fn fixed_percent(self) -> Option<u32> {
        match self {
            Self::SmallChat => None,
            Self::FixedPart { percent, .. } => Some(percent),
        }
    }
}

impl fmt::Display for RecoveryHold {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, percent) = match self {
            Self::SmallChat => {
                return write!(
                    out,
                    "a request without tools in a window below {LEAST_CHAT_WINDOW} tokens"
                );
            }
            Self::FixedPart {
                percent, with_task, ..
            } if *with_task => ("system, tools and task", percent),
            Self::FixedPart { percent, .. } => ("system and tools", percent),
        };
        write!(out, "{what} take {percent} % of the window")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HealthLimits = HealthLimits {
        optimal_max_tokens: 60,
        critical_max_tokens: Some(90),
    };

    fn hold(system_and_tools: u32, fixed: u32, limits: HealthLimits) -> String {
        let mut report = Report {
            fixed,
            expected: 100,
            raw_after: 100,
            ..Report::default()
        };
        report.sent.tools = system_and_tools;
        RecoveryHold::of_fixed_part(&report, 200, &limits).map_or("-".to_owned(), |hold| {
            format!("{hold}, {}, {}", hold.word(), hold.holds_all())
        })
    }

    #[test]
    fn each_level_is_held_by_what_is_beyond_it() {
        assert_eq!(hold(60, 60, LIMITS), "-");
        let tools = "system and tools take 30 % of the window, tools, false";
        assert_eq!(hold(61, 90, LIMITS), tools);
        let task = "system, tools and task take 30 % of the window, task, false";
        assert_eq!(hold(20, 61, LIMITS), task);
        let all = "system and tools take 45 % of the window, tools, true";
        assert_eq!(hold(91, 91, LIMITS), all);
        let all = "system and tools take 40 % of the window, tools, true";
        assert_eq!(hold(80, 91, LIMITS), all);
    }

    #[test]
    fn without_a_critical_level_a_long_fixed_part_holds_all() {
        let limits = HealthLimits {
            critical_max_tokens: None,
            ..LIMITS
        };
        assert_eq!(
            hold(61, 61, limits),
            "system and tools take 30 % of the window, tools, true"
        );
        assert_eq!(hold(1, 60, limits), "-");
    }

    #[test]
    fn a_critical_level_below_caution_decides_alone() {
        let limits = HealthLimits {
            optimal_max_tokens: 900,
            critical_max_tokens: Some(50),
        };
        assert_eq!(
            hold(51, 51, limits),
            "system and tools take 25 % of the window, tools, true"
        );
        assert_eq!(hold(50, 50, limits), "-");
    }
}
