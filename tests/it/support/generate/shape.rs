//! Kinds of conversations, and the figures from which each is drawn.

use super::{prose::Tongue, random::Quantiles};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// A coding agent with tools, as recorded: the figures of the measured sessions.
    Agent,
    /// An agent that works on one task for hundreds of steps.
    OneTurn,
    /// An agent with all languages and kinds of text.
    Mixed,
    /// Many turns without tools, in prose.
    Chat,
    /// An agent in Chinese, Japanese and Korean.
    Chinese,
    /// `functions`, `function_call`, role `function`.
    Legacy,
    /// Images, audio and files.
    Media,
    /// Emoji, control characters, lone surrogates.
    Unicode,
    /// Tool results beyond every limit.
    Huge,
    /// An agent that writes whole files, so that its calls are longer than their results.
    Edits,
    /// An agent without the tool role: tool results are user messages.
    TextOnly,
    /// An agent whose texts have as many escapes as the heaviest recorded bodies, for benchmarks:
    /// code, JSON inside JSON, a little Chinese.
    Escaped,
}

/// Every shape with different texts.
pub(crate) const SHAPES: &[Shape] = &[
    Shape::Chat,
    Shape::Agent,
    Shape::OneTurn,
    Shape::Mixed,
    Shape::Chinese,
    Shape::Legacy,
    Shape::Media,
    Shape::Unicode,
    Shape::Huge,
    Shape::Edits,
    Shape::TextOnly,
];

/// Lengths are in characters, chances in hundredths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) tools: bool,
    pub(crate) legacy: bool,
    pub(crate) steps: Quantiles,
    pub(crate) result: Quantiles,
    pub(crate) argument: Quantiles,
    pub(crate) user: Quantiles,
    pub(crate) answer: Quantiles,
    pub(crate) system: Quantiles,
    /// Lengths of messages of users and the model.
    pub(crate) speech: &'static [(u32, Tongue)],
    /// Lengths of tool results.
    pub(crate) output: &'static [(u32, Tongue)],
    pub(crate) media: u32,
    /// Content as parts where a string is possible.
    pub(crate) parts: u32,
    /// Unknown fields, odd numbers, `cache_control`, names.
    pub(crate) unusual: u32,
}

/// Median 170, 90 % under 2,700, 99 % under 24,000, at most 87,000, as measured.
const RESULT: Quantiles = &[
    (0, 0),
    (50, 11),
    (250, 85),
    (500, 170),
    (750, 620),
    (800, 920),
    (900, 2_690),
    (950, 4_600),
    (970, 6_000),
    (980, 10_000),
    (990, 23_900),
    (995, 30_000),
    (999, 50_000),
    (1000, 87_000),
];
/// Whole files, now and then: 22 % of all characters.
const ARGUMENT: Quantiles = &[
    (0, 6),
    (250, 70),
    (500, 92),
    (750, 300),
    (900, 1_010),
    (950, 2_000),
    (990, 5_000),
    (1000, 20_000),
];
/// Median 3, 90 % under 14, at most 73, as measured.
const STEPS: Quantiles = &[(0, 1), (500, 4), (900, 14), (990, 40), (1000, 74)];

const AGENT: Traits = Traits {
    tools: true,
    legacy: false,
    steps: STEPS,
    result: RESULT,
    argument: ARGUMENT,
    user: &[(0, 10), (500, 120), (900, 900), (1000, 4_000)],
    answer: &[(0, 0), (500, 90), (900, 500), (1000, 3_000)],
    system: &[(0, 2_000), (500, 8_000), (900, 16_000), (1000, 24_000)],
    speech: &[(8, Tongue::Prose), (1, Tongue::Code)],
    output: &[
        (4, Tongue::Code),
        (3, Tongue::Log),
        (2, Tongue::Prose),
        (1, Tongue::Json),
    ],
    media: 0,
    parts: 15,
    unusual: 8,
};

const EVERY_TONGUE: &[(u32, Tongue)] = &[
    (4, Tongue::Prose),
    (4, Tongue::Code),
    (3, Tongue::Json),
    (2, Tongue::Log),
    (3, Tongue::Chinese),
    (1, Tongue::Japanese),
    (1, Tongue::Korean),
    (1, Tongue::Cyrillic),
    (1, Tongue::Emoji),
];

const NO_TOOLS: Traits = Traits {
    tools: false,
    steps: &[(0, 0), (1000, 0)],
    system: &[(0, 20), (900, 600), (1000, 4_000)],
    answer: &[(0, 1), (500, 700), (900, 2_500), (1000, 9_000)],
    speech: &[(1, Tongue::Prose)],
    ..AGENT
};

impl Shape {
    pub(crate) const fn traits(self) -> Traits {
        match self {
            Self::Agent => AGENT,
            Self::OneTurn => Traits {
                steps: &[(0, 400), (1000, 900)],
                ..AGENT
            },
            Self::Mixed => Traits {
                speech: EVERY_TONGUE,
                output: EVERY_TONGUE,
                unusual: 20,
                ..AGENT
            },
            Self::Chat => NO_TOOLS,
            Self::Chinese => Traits {
                speech: &[
                    (8, Tongue::Chinese),
                    (1, Tongue::Japanese),
                    (1, Tongue::Korean),
                ],
                output: &[(4, Tongue::Chinese), (1, Tongue::Json), (1, Tongue::Code)],
                ..AGENT
            },
            Self::Legacy => Traits {
                legacy: true,
                parts: 0,
                ..AGENT
            },
            Self::Media => Traits {
                media: 40,
                parts: 50,
                steps: &[(0, 0), (1000, 3)],
                ..AGENT
            },
            Self::Unicode => Traits {
                speech: UNICODE,
                output: UNICODE,
                unusual: 30,
                ..AGENT
            },
            Self::Huge => Traits {
                result: &[(0, 0), (500, 5_000), (900, 87_000), (1000, 200_000)],
                output: EVERY_TONGUE,
                ..AGENT
            },
            Self::Edits => Traits {
                argument: &[(0, 10), (500, 4_000), (900, 20_000), (1000, 80_000)],
                speech: EVERY_TONGUE,
                ..AGENT
            },
            Self::Escaped => Traits {
                speech: ESCAPED,
                output: ESCAPED,
                ..AGENT
            },
            Self::TextOnly => Traits {
                user: RESULT,
                ..NO_TOOLS
            },
        }
    }
}

const ESCAPED: &[(u32, Tongue)] = &[
    (6, Tongue::Code),
    (4, Tongue::Log),
    (4, Tongue::Prose),
    (2, Tongue::Json),
    (1, Tongue::Chinese),
];
const UNICODE: &[(u32, Tongue)] = &[
    (2, Tongue::Emoji),
    (2, Tongue::Control),
    (1, Tongue::Lone),
    (1, Tongue::Cyrillic),
    (1, Tongue::Korean),
    (1, Tongue::Prose),
    (1, Tongue::Json),
];
