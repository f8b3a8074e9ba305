//! Request bodies: an agent's conversations, by size and by the wanted kind of answer.
//!
//! The model's name tells the provider the kind, since every proxy forwards it: `gpt-4o-100k-paced`
//! is a body of about 100 KB that is answered by a stream with a pause before each event. Each load
//! has several conversations that differ near their start, so that no cache of a single one can
//! answer.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::support::generate;

/// Approximate bytes of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodySize {
    /// As in the options and in the model's name.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) bytes: usize,
    /// The window, in tokens, in which such a body must be cut; 0 where the smallest configurable
    /// window has room for it.
    pub(crate) narrow: usize,
    conversations: usize,
}

/// 250 KB of this text are about 75,000 tokens.
pub(crate) const SIZES: [BodySize; 5] = [
    BodySize::new("1k", "1 KB", 1_000, 0, 64),
    BodySize::new("100k", "100 KB", 100_000, 8_000, 64),
    BodySize::new("250k", "275 KB", 275_000, 22_000, 32),
    BodySize::new("1m", "1 MB", 1_000_000, 80_000, 8),
    BodySize::new("4m", "4 MB", 4_000_000, 320_000, 4),
];

impl BodySize {
    const fn new(
        name: &'static str,
        title: &'static str,
        bytes: usize,
        narrow: usize,
        conversations: usize,
    ) -> Self {
        Self {
            name,
            title,
            bytes,
            narrow,
            conversations,
        }
    }
}

/// The kind of the mock provider's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// At once, in one piece.
    Whole,
    /// A stream without pauses, each event in its own write.
    Burst,
    /// A stream of events 5 ms apart.
    Paced,
    /// The same without end.
    Endless,
    /// A stream without end, an event a second.
    Held,
}

pub(crate) const MODES: [Mode; 5] = [
    Mode::Whole,
    Mode::Burst,
    Mode::Paced,
    Mode::Endless,
    Mode::Held,
];

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Burst => "burst",
            Self::Paced => "paced",
            Self::Endless => "endless",
            Self::Held => "held",
        }
    }
}

/// The prefix of every model's name.
pub(crate) const MODEL: &str = "gpt-4o-";

pub(crate) fn model(size: BodySize, mode: Mode) -> String {
    format!("{MODEL}{}-{}", size.name, mode.name())
}

/// The bodies of one load.
///
/// # Panics
/// If a generated conversation is not JSON, which is a defect of the generator.
pub(crate) fn bodies(size: BodySize, mode: Mode, light: bool) -> Vec<Bytes> {
    #[derive(Deserialize)]
    struct Generated<'a> {
        #[serde(borrow)]
        messages: &'a RawValue,
        #[serde(borrow)]
        tools: Option<&'a RawValue>,
    }
    let generated = generate::body_for_measuring(size.bytes, !light);
    let parts: Generated<'_> =
        serde_json::from_slice(&generated).expect("a generated body has messages");
    let tools = parts
        .tools
        .map(|tools| format!(", \"tools\": {tools}"))
        .unwrap_or_default();
    let text = "\"content\": \"";
    let (before, after) = parts
        .messages
        .get()
        .split_once(text)
        .expect("some message has text");
    (0..size.conversations)
        .map(|number| {
            Bytes::from(format!(
                "{{\"model\": \"{}\", \"stream\": {}, \"messages\": {before}{text}({number}) {after}{tools}}}",
                model(size, mode),
                mode != Mode::Whole
            ))
        })
        .collect()
}
