//! The table of token rules.
//!
//! Weights of families were fitted in November 2026 against the vocabularies themselves, on recorded requests and on
//! open documentation in 13 languages. What stands beside the text was read off recorded usage. The vocabularies of
//! Claude, Gemini, Grok, GLM and Kimi are not public: their rows rest on recorded usage and on their vendors'
//! documents alone.

use super::{TokenFamily, TokenRule};
use crate::config::profile::ImageRule;

/// One row a family. The scripts: C2 to CD, Greek, Cyrillic, D4 to DF, E0 and E1, E2, kana, CJK marks, Han, Hangul,
/// and beyond.
const fn family(
    name: &'static str,
    [latin, digit_run, digit]: [u16; 3],
    scripts: [u16; 11],
) -> TokenFamily {
    TokenFamily {
        name,
        latin,
        digit_run,
        digit,
        scripts,
    }
}

static O200K: TokenFamily = family(
    "o200k",
    [100, 147, 10],
    [111, 43, 29, 43, 43, 89, 62, 203, 61, 67, 304],
);
static CL100K: TokenFamily = family(
    "cl100k",
    [100, 146, 10],
    [222, 107, 48, 88, 126, 121, 90, 202, 98, 107, 383],
);
static LLAMA_3: TokenFamily = family(
    "Llama 3",
    [100, 145, 10],
    [127, 45, 31, 47, 59, 103, 56, 178, 68, 70, 389],
);
static LLAMA_4: TokenFamily = family(
    "Llama 4",
    [100, 148, 10],
    [86, 41, 25, 46, 45, 78, 41, 189, 48, 56, 223],
);
static QWEN: TokenFamily = family(
    "Qwen",
    [100, 97, 81],
    [167, 103, 36, 51, 96, 73, 51, 248, 46, 76, 327],
);
static TEKKEN: TokenFamily = family(
    "Tekken",
    [104, 78, 90],
    [125, 46, 32, 40, 50, 145, 59, 157, 88, 66, 326],
);
static DEEPSEEK: TokenFamily = family(
    "DeepSeek",
    [105, 146, 9],
    [231, 56, 33, 50, 53, 106, 57, 239, 41, 78, 349],
);
/// Made by hand between the others.
static ANY: TokenFamily = family(
    "unknown",
    [103, 120, 45],
    [220, 105, 48, 70, 95, 120, 75, 220, 75, 85, 360],
);

const ANY_MODEL: TokenRule = TokenRule {
    names: &[],
    profiles: &[],
    family: &ANY,
    factor: 100,
    request: 4,
    message: 4,
    call: 20,
    tools_once: 100,
    tools_factor: 100,
    images: None,
};

/// The rule of models and engines that nothing is known of.
pub(super) static UNKNOWN: TokenRule = ANY_MODEL;

const GPT_4O: TokenRule = TokenRule {
    names: &[
        "gpt-4o",
        "chatgpt-4o",
        "gpt-4.1",
        "gpt-4.5",
        "o1",
        "o3",
        "o4",
    ],
    profiles: &["openai", "azure"],
    family: &O200K,
    factor: 100,
    request: 3,
    message: 4,
    call: 7,
    tools_once: 5,
    // Rendered like TypeScript, which is shorter.
    tools_factor: 65,
    images: None,
};
const GPT_5: TokenRule = TokenRule {
    names: &["gpt-5", "gpt-5.1"],
    profiles: &[],
    request: 2,
    call: 9,
    tools_once: 85,
    ..GPT_4O
};
const CLAUDE: TokenRule = TokenRule {
    names: &[
        "claude-instant",
        "claude-2",
        "claude-3",
        "claude-4",
        "claude-haiku",
        "claude-sonnet-4",
        "claude-opus-4",
    ],
    profiles: &["anthropic"],
    family: &O200K,
    factor: 115,
    request: 4,
    message: 4,
    call: 68,
    tools_once: 350,
    tools_factor: 118,
    images: Some(ImageRule::Area28 {
        edge: 1_568,
        tokens: 1_600,
    }),
};
const GEMINI: TokenRule = TokenRule {
    names: &["gemini"],
    profiles: &["gemini"],
    family: &O200K,
    factor: 100,
    request: 0,
    message: 0,
    call: 40,
    tools_once: 0,
    tools_factor: 50,
    images: Some(ImageRule::Flat),
};
const LLAMA: TokenRule = TokenRule {
    names: &["llama-3", "llama3", "meta-llama-3"],
    profiles: &[],
    family: &LLAMA_3,
    factor: 100,
    request: 31,
    message: 4,
    call: 20,
    tools_once: 100,
    tools_factor: 100,
    images: None,
};

/// A model of OpenAI that counts images in patches of 32 pixels.
const fn with_patches(names: &'static [&'static str], times: u16, rule: TokenRule) -> TokenRule {
    TokenRule {
        names,
        profiles: &[],
        images: Some(ImageRule::Patches(times)),
        ..rule
    }
}

pub(super) static RULES: &[TokenRule] = &[
    GPT_4O,
    with_patches(&["gpt-4.1-mini"], 162, GPT_4O),
    with_patches(&["gpt-4.1-nano"], 246, GPT_4O),
    with_patches(&["o4-mini"], 172, GPT_4O),
    TokenRule {
        names: &["gpt-4", "gpt-3.5", "gpt-35"],
        profiles: &[],
        family: &CL100K,
        ..GPT_4O
    },
    GPT_5,
    with_patches(&["gpt-5-mini", "gpt-5."], 120, GPT_5),
    with_patches(&["gpt-5-nano"], 150, GPT_5),
    TokenRule {
        names: &["gpt-oss"],
        request: 63,
        call: 18,
        tools_once: 0,
        tools_factor: 100,
        ..GPT_5
    },
    CLAUDE,
    TokenRule {
        names: &[
            "claude-haiku-4-5",
            "claude-haiku-4.5",
            "claude-sonnet-4-5",
            "claude-sonnet-4.5",
            "claude-sonnet-4-6",
            "claude-sonnet-4.6",
            "claude-opus-4-5",
            "claude-opus-4.5",
            "claude-opus-4-6",
            "claude-opus-4.6",
        ],
        profiles: &[],
        tools_once: 500,
        ..CLAUDE
    },
    // From Opus 4.7 on. Newer names have no row of their own.
    TokenRule {
        names: &[
            "claude",
            "claude-haiku-5",
            "claude-opus-4-7",
            "claude-opus-4.7",
            "claude-opus-4-8",
            "claude-opus-4.8",
            "claude-opus-4-9",
            "claude-opus-4.9",
        ],
        profiles: &[],
        factor: 150,
        tools_once: 500,
        tools_factor: 150,
        images: Some(ImageRule::Area28 {
            edge: 2_576,
            tokens: 4_784,
        }),
        ..CLAUDE
    },
    GEMINI,
    TokenRule {
        names: &["gemini-3"],
        profiles: &[],
        tools_factor: 105,
        images: Some(ImageRule::Once(1_120)),
        ..GEMINI
    },
    TokenRule {
        names: &["grok"],
        profiles: &[],
        family: &O200K,
        request: 156,
        message: 0,
        call: 30,
        tools_once: 140,
        ..ANY_MODEL
    },
    LLAMA,
    TokenRule {
        names: &["llama-4", "llama4", "meta-llama-4"],
        family: &LLAMA_4,
        request: 5,
        message: 5,
        call: 40,
        tools_once: 660,
        ..LLAMA
    },
    TokenRule {
        names: &["deepseek"],
        profiles: &["deepseek"],
        family: &DEEPSEEK,
        request: 2,
        message: 2,
        call: 35,
        tools_once: 235,
        ..ANY_MODEL
    },
    TokenRule {
        names: &["glm", "chatglm"],
        family: &O200K,
        request: 3,
        message: 2,
        call: 25,
        tools_once: 115,
        ..ANY_MODEL
    },
    TokenRule {
        names: &["kimi", "moonshot"],
        profiles: &["kimi"],
        family: &O200K,
        request: 4,
        message: 4,
        call: 25,
        tools_once: 40,
        ..ANY_MODEL
    },
    TokenRule {
        names: &["qwen", "qwq", "qvq"],
        family: &QWEN,
        request: 4,
        message: 5,
        call: 40,
        tools_once: 150,
        ..ANY_MODEL
    },
    TokenRule {
        names: &[
            "mistral",
            "ministral",
            "magistral",
            "codestral",
            "devstral",
            "pixtral",
            "open-mistral",
        ],
        profiles: &["mistral"],
        family: &TEKKEN,
        request: 2,
        message: 2,
        call: 7,
        tools_once: 15,
        tools_factor: 115,
        ..ANY_MODEL
    },
];
