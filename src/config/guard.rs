//! Settings of the guard: sizes, shares and caps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::loading::section::{Section, Visibility, settings};

/// Room for the marker between head and tail of a truncated result.
const MARKER_CHARS: usize = 100;
/// What a truncated result keeps at each end where nothing is set; characters.
const END_CHARS: usize = 2_000;
/// The longest result of which nothing is cut for its length where nothing is set; characters.
const RESULT_CHARS: usize = 50_000;
const MAX_CHARS: usize = 100_000_000;
const MAX_PART_NAME_CHARS: usize = 64;

settings! {
    pub struct GuardConfig read from s {
        pub enabled: bool = s.read_plain("enabled", true);
        pub truncate_head_chars: Option<usize> = s.explain_unset("2000").read_optional_number("truncate_head_chars", 0..=MAX_CHARS,
            "it is what a truncated tool result keeps of its beginning, in characters");
        pub truncate_tail_chars: Option<usize> = s.explain_unset("2000").read_optional_number("truncate_tail_chars", 0..=MAX_CHARS,
            "it is what a truncated tool result keeps of its end, in characters");
        /// Unset: 50,000, and more where that is at most an eighth of the window.
        pub max_tool_result_chars: Option<usize> = s.explain_unset("50000, or an eighth of the window").bound_by_others().read_optional_number("max_tool_result_chars",
            least_result_chars([truncate_head_chars, truncate_tail_chars]).min(MAX_CHARS)..=MAX_CHARS,
            "it must hold truncate_head_chars, truncate_tail_chars and 100 for the marker between");
        /// Unset: twice the largest answer of the session so far, within bounds.
        pub reserve_tokens: Option<u32> = s.explain_unset("twice the largest answer so far").read_optional_number("reserve_tokens", 1..=10_000_000,
            "it is kept free for the answer, in tokens");
        /// How much of a conversation a cut keeps.
        pub keep: Keep = s.read_plain("keep", Keep::Balanced);
        /// What a cut leaves out first.
        pub order: CutOrder = s.read_plain("order", CutOrder::Worth);
        /// Whether the answer cap of a request is lowered before its history is cut.
        pub clamp_max_tokens: bool = s.read_plain("clamp_max_tokens", true);
        /// The share of the room that a cut leaves filled; the room is the budget less what no cut can take. Unset: `keep`
        /// gives it.
        pub low_water: Option<f64> = s.explain_unset("by guard.keep").read_optional_number("low_water", 0.3..=0.95,
            "it is the share of the budget, less system messages, tools and task, that a cut leaves filled");
        /// How many characters of ASCII text make a token. Unset: tokens are estimated by words.
        pub chars_per_token: Option<f64> = s.explain_unset("by the model's name").read_optional_number("chars_per_token", 1.0..=8.0,
            "it is how many characters of ASCII text make a token");
        /// A set of caps by one name. They are in `max_prompt_tokens`, `caps` and `system_share` below.
        pub preset: Option<Preset> = s.read_option("preset", Visibility::Plain);
        /// A cap on the prompt for any window; the smaller of the setting and the preset's.
        pub max_prompt_tokens: Option<u32> = s
            .read_optional_number("max_prompt_tokens", 1024..=u32::MAX,
                "it caps the prompt whatever the window is, in tokens")
            .into_iter()
            .chain(preset.map(|preset| preset.caps()[2]))
            .min();
        /// What becomes of a request that may be too long by the error of an estimate; unset: by the profile.
        pub when_unsure: Option<WhenUnsure> = s.read_option("when_unsure", Visibility::Plain);
        pub usage: UsageMode = s.read_plain("usage", UsageMode::AsSent);
        /// Whether models with tools can look up what was cut.
        pub recall: RecallMode = s.read_plain("recall", RecallMode::Auto);
        /// Whether long definitions of tools get shorter with the first cut.
        pub tools: ToolsMode = s.read_plain("tools", ToolsMode::Auto);
        /// Of one answer of that tool.
        pub recall_max_chars: usize = s.read_number("recall_max_chars", 8_000, 1_000..=100_000,
            "it bounds what one call of recall gives back, in characters");
        pub clear: ClearConfig = ClearConfig::read(s);
        /// The most tokens of a part by its name; with the preset's.
        pub caps: BTreeMap<String, u32> = read_caps(s, preset);
        /// The largest share of the budget for system text; annotated text beyond it is removed. A preset bounds
        /// system text by its caps instead.
        pub system_share: f64 = s
            .read_optional_number("system_share", 0.05..=0.9,
                "it is the share of the budget that system text may take")
            .unwrap_or(if preset.is_some() { 1.0 } else { 1.0 / 3.0 });
        /// Whether system text without annotations is shortened too.
        pub trim_system: bool = s.read_plain("trim_system", false);
    }
}

settings! {
    /// How old tool results are cleared; its keys are in `[guard]`.
    pub struct ClearConfig read from s {
        pub enabled: bool = s.read_plain("clear_tools", true);
        /// Share of the budget from which on it is done, 0: always; unset: where the budget is reached.
        pub at: Option<f64> = s.explain_unset("with cuts only").read_optional_number("clear_tools_at", 0.0..=1.0,
            "it is the share of the budget from which on old tool results are cleared, 0 for always");
        /// The least share of the budget that one clearing frees; unset: 0.2 for windows up to 64k, else 0.1,
        /// and 0 where `at` is 0.
        pub at_least: Option<f64> = s.explain_unset("0.2 for windows of up to 64k, else 0.1").read_optional_number("clear_at_least", 0.02..=0.5,
            "it is the share of the budget that clearing frees at least");
        /// Results stay that are in the newest rounds (answered turns with tools) and in the newest steps. Unset: 2
        /// and 10 where `at` is set, else what a cut keeps in any case.
        pub keep_rounds: Option<u32> = s.explain_unset("by clear_tools_at").read_optional_number("keep_tool_rounds", 1..=1_000,
            "it is how many of the newest answered turns with tools keep their tool results");
        pub keep_steps: Option<u32> = s.explain_unset("by clear_tools_at").read_optional_number("keep_tool_steps", 1..=10_000,
            "it is how many of the newest steps keep their tool results");
        /// Tools whose results and arguments stay; names or patterns with a `*` at the end.
        pub exclude: Vec<String> = s.read_patterns("exclude_tools", &[], "a tool's name");
        /// Whether long values in the arguments of cleared calls are shortened.
        pub inputs: bool = s.read_plain("clear_tool_inputs", false);
    }
}

/// Tokens kept free for an answer of which nothing is known: one in this many of the window, at most and at least.
const RESERVE_PART: u32 = 24;
const RESERVE_BOUNDS: (u32, u32) = (1_024, 8_192);

/// One part in so many of every limit of a prompt stays free: an estimate is a guess.
pub const PROMPT_MARGIN: u32 = 64;

/// Characters of the shortest result that holds both ends and a marker.
fn least_result_chars(ends: [Option<usize>; 2]) -> usize {
    let ends = ends.iter().map(|end| end.unwrap_or(END_CHARS));
    ends.fold(MARKER_CHARS, usize::saturating_add)
}

impl GuardConfig {
    /// What a truncated result keeps of its beginning and of its end, in characters.
    pub fn truncated_ends(&self) -> [usize; 2] {
        [self.truncate_head_chars, self.truncate_tail_chars].map(|end| end.unwrap_or(END_CHARS))
    }

    /// Characters of a result that is not cut for its length, whatever the window is, unless a limit is set.
    pub fn default_result_chars(&self) -> usize {
        RESULT_CHARS.max(least_result_chars(self.truncated_ends().map(Some)))
    }

    /// Whether any of a limit and the ends of results is set: a truncated result then keeps its ends and nothing else.
    pub fn sets_result_form(&self) -> bool {
        let ends = self.truncate_head_chars.or(self.truncate_tail_chars);
        ends.or(self.max_tool_result_chars).is_some()
    }

    /// The largest prompt that has `room` tokens and may have `input` tokens at most.
    pub fn limit_prompt(&self, room: u32, input: Option<u32>) -> u32 {
        let limits = [input, self.max_prompt_tokens].into_iter().flatten();
        let most = limits.fold(room, u32::min);
        most - most / PROMPT_MARGIN
    }

    /// Tokens kept free for an answer of which nothing is known.
    pub fn default_reserve(&self, window: u32) -> u32 {
        self.learnt_reserve(window, 0)
    }

    /// The same once the largest answer so far had so many tokens: at most a quarter of the window, or a half where the
    /// settings say how much.
    pub fn learnt_reserve(&self, window: u32, largest: u32) -> u32 {
        if let Some(set) = self.reserve_tokens {
            return set.min(window / 2);
        }
        let (least, most) = RESERVE_BOUNDS;
        let usual = (window / RESERVE_PART).clamp(least, most);
        largest.saturating_mul(2).max(usual).min(window / 4)
    }
}

/// What a cut leaves out first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CutOrder {
    /// What the conversation refers to least, deeply, so that the next cut is far.
    Worth,
    /// The oldest messages, without a gap, and no more than has to go: a sliding window.
    Oldest,
}

/// How much of a conversation a cut keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    Most,
    Balanced,
    /// Less, for less money.
    Saver,
}

/// Whether a request with tools gets the tool `recall` from the first cut on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecallMode {
    Auto,
    Off,
}

/// Whether definitions of tools that take more than a quarter of the window get shorter with the session's first cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolsMode {
    Auto,
    Whole,
}

/// What becomes of a request without any usage before it, whose estimate is beyond its budget by less than the
/// estimate's own error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenUnsure {
    /// It is sent as it is, and fitted anew if the provider refuses it.
    Send,
    /// It is cut.
    Cut,
}

/// Caps for parts named `schema`, for parts named `static_context`, and for the whole prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Light,
    Standard,
    Complex,
}

impl Preset {
    /// The three caps in tokens, in that order.
    const fn caps(self) -> [u32; 3] {
        match self {
            Self::Light => [4_000, 12_000, 8_000],
            Self::Standard => [4_000, 16_000, 12_000],
            Self::Complex => [6_000, 20_000, 16_000],
        }
    }
}

/// The prompt tokens that a client reads in `usage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageMode {
    /// As the provider counted them.
    AsSent,
    /// With an estimate of what the guard removed, for clients that compact by their count of tokens.
    AsReceived,
}

/// The caps of the preset, overridden by those of the settings.
fn read_caps(s: &mut Section, preset: Option<Preset>) -> BTreeMap<String, u32> {
    let mut caps = BTreeMap::new();
    if let Some([schema, static_context, _]) = preset.map(Preset::caps) {
        caps.insert("schema".to_owned(), schema);
        caps.insert("static_context".to_owned(), static_context);
    }
    caps.extend(s.read_entries("caps", |s, name| {
        let why = "it is what a part of that name may have, in tokens";
        let tokens = s.read_optional_number(name, 64..=10_000_000, why);
        if name.is_empty() || name.chars().count() > MAX_PART_NAME_CHARS {
            let message = format!("must be named by 1 to {MAX_PART_NAME_CHARS} characters");
            s.refuse_value(name, None, message);
        }
        tokens
    }));
    caps
}
