//! When a prompt is due, and when a new course is.
//!
//! Driven by the level of each generation and nothing else. An unknown level neither advances a
//! count nor resets it; of such a generation is only kept what was done in it.
//!
//! One client request is one generation, however many tool rounds it took. A cut of the guard makes a level fall
//! that did not get better, so a countdown during which one was made goes on to its end.

use serde::{Deserialize, Serialize};

use crate::{
    config::{ModelConfig, RecoveryConfig},
    health::HealthLevel,
};

/// Where a session stands between healthy and a new course.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecoveryClock {
    #[default]
    Calm,
    Caution {
        /// A prompt is to go with the next request that can carry one.
        due: bool,
        /// Generations since the last prompt, the one that carried it included, and those of
        /// unknown level left out.
        since: u32,
    },
    Critical {
        /// Generations left before a clear, the next one included.
        left: u32,
        /// A cut of ours was made meanwhile: what it did to the level does not end the countdown.
        cut: bool,
        /// Its prompt was given in a generation of unknown level: not again until the count moves.
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

/// How often, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPace {
    /// Generations from one caution prompt to the next.
    pub caution_cadence: u32,
    /// Generations of the countdown.
    pub critical_countdown: u32,
}

impl RecoveryConfig {
    /// How often prompts are due with a model.
    pub fn pace_for_model(&self, model: &ModelConfig) -> RecoveryPace {
        RecoveryPace {
            caution_cadence: model.caution_cadence.unwrap_or(self.caution_cadence),
            critical_countdown: self.critical_countdown,
        }
    }
}

/// What one generation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GenerationEvents {
    /// It carried the prompt that was due.
    pub carried_prompt: bool,
    /// The guard made a new cut.
    pub cut: bool,
    /// A new course began with it.
    pub cleared: bool,
}

impl RecoveryClock {
    /// What is due with the next request.
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

    /// After a generation of that level.
    pub fn advance_after(
        self,
        level: HealthLevel,
        did: GenerationEvents,
        pace: RecoveryPace,
    ) -> Self {
        let before = if did.cleared { Self::Calm } else { self };
        match (before, level) {
            (before, HealthLevel::Unknown) => before.advance_without_level(did),
            (Self::Critical { left, cut, .. }, level)
                if level == HealthLevel::Critical || cut || did.cut =>
            {
                Self::Critical {
                    left: left.saturating_sub(1),
                    cut: cut || did.cut,
                    told: false,
                }
            }
            (_, HealthLevel::Healthy) => Self::Calm,
            (_, HealthLevel::Critical) => Self::Critical {
                left: pace.critical_countdown,
                cut: false,
                told: false,
            },
            (Self::Caution { due, since }, HealthLevel::Caution) => {
                let since = if did.carried_prompt {
                    1
                } else {
                    since.saturating_add(1)
                };
                Self::Caution {
                    due: (due && !did.carried_prompt) || since >= pace.caution_cadence,
                    since,
                }
            }
            (Self::Calm, HealthLevel::Caution) => Self::Caution {
                due: true,
                since: 0,
            },
            // Falling from critical is no entering, where its last prompt was heard.
            (Self::Critical { told, .. }, HealthLevel::Caution) => {
                let asked = did.carried_prompt || told;
                Self::Caution {
                    due: !asked || pace.caution_cadence <= 1,
                    since: u32::from(asked),
                }
            }
        }
    }

    /// After a generation without usage: nothing is counted, but a prompt was given, and a cut
    /// was made, all the same.
    const fn advance_without_level(self, did: GenerationEvents) -> Self {
        match self {
            Self::Caution { .. } if did.carried_prompt => Self::Caution {
                due: false,
                since: 0,
            },
            Self::Critical { left, cut, told } => Self::Critical {
                left,
                cut: cut || did.cut,
                told: told || did.carried_prompt,
            },
            before => before,
        }
    }
}

#[cfg(test)]
mod tests;
