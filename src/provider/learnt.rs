//! What providers taught of their windows, by refusing or by cutting.

use std::time::{Duration, Instant};

use super::{Window, overflow::Overflow};

/// What is known of a model's window beyond what anybody claims; in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt.
    pub input: Option<u32>,
}

/// A request that was refused as too long.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub overflow: Overflow,
    /// What was believed of the model when the request was planned.
    pub claimed: Window,
    /// Estimated tokens of the prompt as it was sent.
    pub expected: u32,
    /// Tokens kept free for the answer.
    pub reserve: u32,
}

/// What a refusal taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lesson {
    /// The provider named a window that can be believed.
    Window(u32),
    /// A largest prompt: named by the provider, or inferred from what it refused.
    Input(u32),
}

/// Windows learnt, in memory, of a bounded number of models.
#[derive(Debug)]
pub struct Learnt {
    max_age: Duration,
}

impl Learnt {
    /// `max_age`: how long a lesson is believed.
    pub fn new(max_age: Duration) -> Self {
        Self { max_age }
    }

    /// A prompt of so many tokens, as reported, was answered.
    pub fn accepted(&self, provider: &str, model: &str, prompt_tokens: u32, now: Instant) {
        let _ = (provider, model, prompt_tokens, now, self.max_age);
    }

    /// A request was refused. What is known afterwards is tighter than what was sent.
    pub fn refused(&self, provider: &str, model: &str, refused: &Refused, now: Instant) -> Lesson {
        let _ = (provider, model, now);
        Lesson::Input(refused.expected / 10 * 7)
    }

    /// The provider cuts prompts to so many tokens in silence.
    pub fn truncated(&self, provider: &str, model: &str, tokens: u32, now: Instant) {
        let _ = (provider, model, tokens, now);
    }

    pub fn known(&self, provider: &str, model: &str, now: Instant) -> Known {
        let _ = (provider, model, now);
        Known::default()
    }
}
