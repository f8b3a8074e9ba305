//! The recovery clock: decides when a prompt or a new course is due.
//!
//! Only the health level of each generation drives the clock. A generation of unknown level neither advances nor resets
//! a count; the clock only records whether that generation carried a prompt.
//!
//! One client request is one generation, however many tool rounds the request took.

use serde::{Deserialize, Serialize};

use crate::{
    config::{ModelConfig, RecoveryConfig},
    health::HealthLevel,
};

/// The state of a session between healthy and a new course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryClock {
    #[default]
    Calm,
    Caution {
        /// The next request that can carry a prompt gets one.
        due: bool,
        /// Generations of known level since the last prompt, the one that carried the prompt included.
        since: u32,
    },
    Critical {
        /// Generations before a clear, the next one included.
        left: u32,
        /// A generation of unknown level carried the prompt. So the prompt is not repeated until the count advances.
        told: bool,
    },
}

/// What is due with the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryAction {
    Caution,
    Critical { left: u32 },
    Course,
}

/// Configured intervals of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPace {
    /// Generations from one caution prompt to the next.
    pub caution_cadence: u32,
    /// Generations of the countdown.
    pub critical_countdown: u32,
}

impl RecoveryConfig {
    /// The intervals for a model.
    pub fn pace_for_model(&self, model: &ModelConfig) -> RecoveryPace {
        RecoveryPace {
            caution_cadence: model.caution_cadence.unwrap_or(self.caution_cadence),
            critical_countdown: self.critical_countdown,
        }
    }
}

/// Events of one generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationEvents {
    /// The generation carried the prompt that was due.
    pub carried_prompt: bool,
    /// A new course began with the generation.
    pub cleared: bool,
}

impl RecoveryClock {
    /// Returns the action that is due with the next request.
    pub const fn due_action(self) -> Option<RecoveryAction> {
        match self {
            Self::Calm | Self::Caution { due: false, .. } => None,
            Self::Caution { due: true, .. } => Some(RecoveryAction::Caution),
            Self::Critical { left: 0, .. } => Some(RecoveryAction::Course),
            Self::Critical { told: true, .. } => None,
            Self::Critical { left, .. } => Some(RecoveryAction::Critical { left }),
        }
    }

    /// Generations left before a clear, while critical.
    pub const fn countdown(self) -> Option<u32> {
        match self {
            Self::Critical { left, .. } => Some(left),
            _ => None,
        }
    }

    /// Returns the clock after a generation of this `level`.
    pub fn advance_after(
        self,
        level: HealthLevel,
        events: GenerationEvents,
        pace: RecoveryPace,
    ) -> Self {
        let (before, events) = if events.cleared {
            // A prompt of this generation was sent before the clear, so it does not count for the new course.
            (Self::Calm, GenerationEvents::default())
        } else {
            (self, events)
        };
        let caution = |due, since| Self::Caution { due, since };
        let critical = |left| Self::Critical { left, told: false };
        match (before, level) {
            (before, HealthLevel::Unknown) => before.advance_without_level(events),
            // A prompt that was sent ahead of a cut replaces the prompt at the entry into caution.
            (Self::Calm, HealthLevel::Healthy | HealthLevel::Caution) if events.carried_prompt => {
                caution(pace.caution_cadence <= 1, 1)
            }
            (_, HealthLevel::Healthy) => Self::Calm,
            (Self::Critical { left, .. }, HealthLevel::Critical) => {
                critical(left.saturating_sub(1))
            }
            (_, HealthLevel::Critical) => critical(pace.critical_countdown),
            (Self::Calm, HealthLevel::Caution) => caution(true, 0),
            (Self::Caution { due, since }, HealthLevel::Caution) => {
                let carried = events.carried_prompt;
                let since = if carried { 1 } else { since.saturating_add(1) };
                caution(due && !carried || since >= pace.caution_cadence, since)
            }
            // After critical, a caution prompt is due only if no critical prompt was sent.
            (Self::Critical { told, .. }, HealthLevel::Caution) => {
                let prompted = events.carried_prompt || told;
                caution(!prompted || pace.caution_cadence <= 1, prompted.into())
            }
        }
    }

    /// The clock after a generation without usage: counts stay, and a prompt that it carried is recorded.
    const fn advance_without_level(self, events: GenerationEvents) -> Self {
        match self {
            Self::Calm | Self::Caution { .. } if events.carried_prompt => Self::Caution {
                due: false,
                since: 0,
            },
            Self::Critical { left, told, .. } => Self::Critical {
                left,
                told: told || events.carried_prompt,
            },
            before => before,
        }
    }
}

#[cfg(test)]
mod tests;
