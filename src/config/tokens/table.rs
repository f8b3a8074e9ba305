//! The table of token rules.
//!
//! Weights of families were fitted in November 2026 against the vocabularies themselves: on recorded requests, sources and
//! pages, and on texts full of figures, none of which is counted low (`tests/it/estimate/kinds.rs`); those of scripts on
//! open documentation in 13 languages and messages in 50. What stands beside the text was read off recorded usage. The vocabularies of
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
    //                  words                marks   digits       blanks  late  C2-CD Greek Cyr D4-DF E0-E1 E2 kana marks Han Hangul beyond
    O200K    "o200k"    [ 69   6  29  50  91   9  18  98   0 104  96 231] [190  48  32  43  49  48  68 203  61  67 304];
    CL100K   "cl100k"   [ 74   5  37  43  90   8  21 100   0 104  95 257] [440 110  57  97 128  50  90 202  98 107 408];
    LLAMA_3  "Llama 3"  [ 73   5  32  52  91   6  20 100   0 104  94 244] [203  50  38  98  68  50  56 178  68  70 389];
    LLAMA_4  "Llama 4"  [ 72   5  45  44  91   6  19 100   0 105  98 234] [137  46  33  46  53  35  49 189  48  56 275];
    QWEN     "Qwen"     [ 72   5  36  49  90   7  23   0  99 104  95 247] [232 104  48  51 114  40  56 248  46  79 327];
    TEKKEN   "Tekken"   [ 67   7  33  50  95  13  22   0  98 117  99 268] [165  51  36  41  62  64  59 157  88  66 540];
    DEEPSEEK "DeepSeek" [ 76   5  24  80  99  11  16 100   0 108  99 251] [233  59  45  50  77  38  57 239  41  78 349];
    /// Gemma's vocabulary, by which Gemini counts too: its reported counts are the same.
    GEMMA    "Gemma"    [ 76   5  19  83 113   0  19   0  95 168  99 229] [277  52  41  54  45  31  38 176  52  56 173];
    /// Made by hand between the others; digits one by one, as the heavier half of them has it.
    ANY      "unknown"  [ 71   5  30  60  98   8  20   0  95 128  98 258] [240 105  48  70  95  60  85 220  75  97 470];
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
