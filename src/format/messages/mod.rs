//! Anthropic's Messages.

pub mod answer;
