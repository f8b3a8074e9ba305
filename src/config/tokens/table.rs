//! The table of token rules.
//!
//! Weights of families were fitted in November 2026 against the vocabularies themselves: on recorded requests, sources and
//! pages, and on texts full of figures, none of which is counted low (`tests/it/estimate/kinds.rs`); those of scripts on the
//! Universal Declaration of Human Rights in 528 languages and on each block of Unicode (`tests/it/estimate/tongues.rs`).
//! What stands beside the text was read off recorded usage. The vocabularies of
//! Claude, Grok, GLM and Kimi are not public: their rows rest on recorded usage and on their vendors'
//! documents alone.

use super::{TokenFamily, TokenRule};
use crate::config::profile::ImageRule;

/// One row a family: its name, the weights of ASCII text, and those of the scripts.
macro_rules! families {
    ($($(#[$doc:meta])* $id:ident $name:literal [$($ascii:literal)*] [$($script:literal)*];)*) => {
        $($(#[$doc])* static $id: TokenFamily = TokenFamily {
            name: $name,
            ascii: [$($ascii),*],
            scripts: [$($script),*],
        };)*
    };
}

families! {
    // Of ASCII, by `TextSizes::ascii_counts`; then of the scripts, by `Script`.
    O200K "o200k" [69 6 29 50 91 9 18 98 0 104 96 231 110 12]
        [200 190 190 200 48 35 140 47 48 44 100 297 44 40 62 115 229 85 70 143 206 128 22 175 61 180 75 72 74 275 300 384];
    CL100K "cl100k" [74 5 37 43 90 8 21 100 0 104 95 257 40 12]
        [440 440 440 440 110 57 321 215 131 85 242 221 121 186 202 299 276 211 128 174 268 126 51 191 60 202 90 98 107 408 299 423];
    LLAMA_3 "llama-3" [73 5 32 52 91 6 20 100 0 104 94 244 40 12]
        [203 203 203 209 50 38 289 212 131 44 218 328 64 186 201 292 276 211 68 206 241 73 46 191 60 178 56 68 70 389 296 417];
    LLAMA_4 "llama-4" [72 5 45 44 91 6 19 100 0 105 98 234 80 12]
        [160 137 137 223 46 33 180 38 49 44 99 317 44 41 62 115 235 86 60 178 209 128 24 175 61 189 49 48 56 275 300 461];
    QWEN "qwen" [72 5 36 49 90 7 23 0 99 104 95 247 60 12]
        [232 232 232 232 104 48 220 180 78 48 233 190 103 163 178 237 172 165 114 185 160 69 51 135 64 248 56 46 79 258 264 304];
    TEKKEN "tekken" [67 7 33 50 95 13 22 0 98 117 99 268 150 40]
        [165 165 165 267 51 36 274 49 80 42 138 320 55 65 93 317 318 90 62 206 286 38 78 326 142 157 59 88 66 540 300 401];
    DEEPSEEK "deepseek" [76 5 24 80 99 11 16 100 0 108 99 251 110 12]
        [233 233 233 245 59 45 306 92 83 48 188 320 65 79 116 125 207 107 77 151 215 167 31 196 32 239 57 41 78 300 299 391];
    /// Gemma's vocabulary, by which Gemini counts too: its reported counts are the same.
    GEMMA "gemma" [76 5 19 83 113 0 19 0 95 168 99 229 80 12]
        [277 277 277 277 52 41 248 67 64 60 45 104 39 40 59 76 93 71 60 118 189 114 18 122 77 176 38 52 56 173 287 393];
    /// Made by hand between the others; digits one by one, as the heavier half of them has it.
    ANY "unknown" [71 5 30 60 98 8 20 0 95 128 98 258 80 20]
        [240 240 240 265 105 48 306 212 131 60 233 320 103 186 201 299 276 211 95 206 268 156 48 186 74 220 85 75 97 470 300 423];
}

/// One row a rule: the beginnings of names, the profiles, the family, the factor, the tokens of a request, a message,
/// a call and of tools once, the factor of tools, and how images count.
macro_rules! rules {
    ($([$($name:literal)*] [$($profile:literal)*] $family:ident $factor:literal $request:literal $message:literal $call:literal $tools_once:literal $tools_factor:literal $images:expr;)*) => {
        &[$(TokenRule {
            names: &[$($name),*],
            profiles: &[$($profile),*],
            family: &$family,
            factor: $factor,
            request: $request,
            message: $message,
            call: $call,
            tools_once: $tools_once,
            tools_factor: $tools_factor,
            images: $images,
        }),*]
    };
}

/// The images of Claude, before and from Opus 4.7 on.
const CLAUDE_IMAGES: Option<ImageRule> = Some(ImageRule::Area28 {
    edge: 1_568,
    tokens: 1_600,
});
const LARGE_CLAUDE_IMAGES: Option<ImageRule> = Some(ImageRule::Area28 {
    edge: 2_576,
    tokens: 4_784,
});

/// A model of OpenAI that counts images in patches of 32 pixels.
const fn patches(times: u16) -> Option<ImageRule> {
    Some(ImageRule::Patches(times))
}

pub(super) static RULES: &[TokenRule] = rules! {
    // Tools of OpenAI are rendered like TypeScript, which is shorter.
    ["gpt-4o" "chatgpt-4o" "gpt-4.1" "gpt-4.5" "o1" "o3" "o4"] ["openai" "azure"] O200K 100 3 4 7 5 65 None;
    ["gpt-4.1-mini"]                           [] O200K    100   3 4  7   5  65 patches(162);
    ["gpt-4.1-nano"]                           [] O200K    100   3 4  7   5  65 patches(246);
    ["o4-mini"]                                [] O200K    100   3 4  7   5  65 patches(172);
    ["gpt-4" "gpt-3.5" "gpt-35"]               [] CL100K   100   3 4  7   5  65 None;
    ["gpt-5" "gpt-5.1"]                        [] O200K    100   2 4  9  85  65 None;
    ["gpt-5-mini" "gpt-5."]                    [] O200K    100   2 4  9  85  65 patches(120);
    ["gpt-5-nano"]                             [] O200K    100   2 4  9  85  65 patches(150);
    ["gpt-oss"]                                [] O200K    100  63 4 18   0 100 None;
    ["claude-instant" "claude-2" "claude-3" "claude-4" "claude-haiku" "claude-sonnet-4" "claude-opus-4"]
                                    ["anthropic"] O200K    115   4 4 68 350 118 CLAUDE_IMAGES;
    ["claude-haiku-4-5" "claude-haiku-4.5" "claude-sonnet-4-5" "claude-sonnet-4.5" "claude-sonnet-4-6"
     "claude-sonnet-4.6" "claude-opus-4-5" "claude-opus-4.5" "claude-opus-4-6" "claude-opus-4.6"]
                                               [] O200K    115   4 4 68 500 118 CLAUDE_IMAGES;
    // From Opus 4.7 on. Newer names have no row of their own.
    ["claude" "claude-haiku-5" "claude-opus-4-7" "claude-opus-4.7" "claude-opus-4-8" "claude-opus-4.8"
     "claude-opus-4-9" "claude-opus-4.9"]      [] O200K    150   4 4 68 500 150 LARGE_CLAUDE_IMAGES;
    ["gemini" "gemma"]                 ["gemini"] GEMMA    100   0 0 40   0  50 Some(ImageRule::Flat);
    ["gemini-3"]                               [] GEMMA    100   0 0 40   0 105 Some(ImageRule::Once(1_120));
    ["grok"]                                   [] O200K    100 156 0 30 140 100 None;
    ["llama-3" "llama3" "meta-llama-3"]        [] LLAMA_3  100  31 4 20 100 100 None;
    ["llama-4" "llama4" "meta-llama-4"]        [] LLAMA_4  100   5 5 40 660 100 None;
    ["deepseek"]                     ["deepseek"] DEEPSEEK 100   2 2 35 235 100 None;
    ["glm" "chatglm"]                          [] O200K    100   3 2 25 115 100 None;
    ["kimi" "moonshot"]                  ["kimi"] O200K    100   4 4 25  40 100 None;
    ["qwen" "qwq" "qvq"]                       [] QWEN     100   4 5 40 150 100 None;
    ["mistral" "ministral" "magistral" "codestral" "devstral" "pixtral" "open-mistral"]
                                      ["mistral"] TEKKEN   100   2 2  7  15 115 None;
};

/// The rule of models and engines that nothing is known of.
pub(super) static UNKNOWN: &[TokenRule] = rules! {
    []                                         [] ANY      100   4 4 20 100 100 None;
};
