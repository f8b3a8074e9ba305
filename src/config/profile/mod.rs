//! The table of profiles: what a provider's grammar accepts, as data.
//!
//! A new provider is a row of this table. No other module branches on a provider's name.

mod model_rules;

use http::Uri;
use parking_lot::Mutex;

pub use self::model_rules::{
    find_beta_window, is_other_family, list_window_betas, name_window_betas, read_window_betas,
};
use super::Format;

/// What a provider does with a sequence of messages that strict chat templates refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Yes,
    /// Accepted, and the provider makes one message of both.
    Merged,
    No,
}

/// How a provider counts the tokens of an image of known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    /// 85 and 170 per tile of 512 pixels, after scaling to 2,048 pixels and a shorter side of 768.
    Tiles,
    /// Width times height over 750.
    Area,
    /// 258 per tile of 768 pixels.
    Flat,
    /// One per patch of 28 pixels, after scaling to this longest edge and this many tokens.
    Area28 { edge: u16, tokens: u16 },
    /// So many hundredths per patch of 32 pixels, for 1,536 patches at most.
    Patches(u16),
    /// So many for an image of any size.
    Once(u16),
}

/// Where an answer has its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerRoom {
    /// In the window: a request is refused whose prompt and answer cap together pass it.
    Checked,
    /// In the window: an answer ends where the window is full, whatever its cap is (Claude 4.5 and later).
    Shared,
    /// Beside the window.
    Apart,
}

/// What becomes of reasoning that a client sends back, once something before it is changed. A fact of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PastReasoning {
    /// The model reads it all the same.
    Read,
    /// The request is refused, at some accounts. Reasoning may be left out from the oldest on: what is kept is the newest,
    /// without a gap.
    Refused,
    /// The provider leaves it out, and says so in its answer alone.
    Dropped,
}

/// Which answers that a client sends back must have the member `reasoning_content`. A fact of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasoningMember {
    /// None.
    Free,
    /// Those with calls, unless the request switches thinking off.
    OnCalls,
    /// All of chat completions, and those with calls of other formats, unless the request switches thinking off.
    OnEvery,
    /// All, whatever the request says.
    Always,
}

/// Which answers get what they lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerFilling {
    /// None: the model has refused what was added.
    Nothing,
    /// Those for which the rules of the model's name demand it.
    #[default]
    ByName,
    /// All: the model has refused an answer without.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub user_after_tool: Acceptance,
    pub adjacent_users: Acceptance,
    /// A `system` message after a message of another role.
    pub system_later: Acceptance,
    /// Prompts may be `system` messages behind the user's, in a format that has them. A fact of the model.
    pub system_prompts: bool,
    pub past_reasoning: PastReasoning,
    pub reasoning_member: ReasoningMember,
    /// The first call of each answer in the running turn must have a signature. A fact of the model, in chat completions.
    pub signs_calls: bool,
    /// The model thinks where a request says nothing of it. An answer's cap holds thinking and text.
    pub thinks_by_default: bool,
    /// Chat completions take `max_completion_tokens`, and may refuse `max_tokens`.
    pub names_completion_cap: bool,
    /// Chat completions take tools. A fact of the model.
    pub takes_chat_tools: bool,
    /// A request may demand a call (`tool_choice`). A fact of the model.
    pub takes_forced_calls: bool,
    /// For models whose reasoning is bound: the format in which an entry among the messages may bring tools.
    pub tools_entry: Option<Format>,
    /// In Responses, an output may stand apart from its call.
    pub results_may_be_apart: bool,
    pub begins_with_user: bool,
    pub may_end_with_assistant: bool,
    pub answer_room: AnswerRoom,
    /// Whether a prompt that is too long is an error; Ollama silently drops its beginning.
    pub refuses_overflow: bool,
    /// The paths, from the base URL, of which the first that is there lists loaded models with the windows that they were
    /// loaded with.
    pub loaded_model_paths: &'static [&'static str],
    /// The smallest window with which a model is loaded that sets none, in tokens.
    pub smallest_window: Option<u32>,
    /// Whether Ollama's own API is there beside `/v1`.
    pub ollama_api: bool,
    /// One name of a model stands for several hosts, whose windows differ: what one of them refuses, another may take.
    pub has_hosts: bool,
    /// Whether that error comes at once and is not billed.
    pub overflow_is_free: bool,
    /// Whether a stream with status 200 may have an error as its first event.
    pub errors_inside: bool,
    /// Whether `prompt_tokens` may leave out tokens from the engine's cache.
    pub counts_missed_only: bool,
    /// Seconds that the provider's prompt cache lives after a request, at most; `None` where nothing is documented.
    pub cache_life_s: Option<u32>,
    /// The same where the request asks for it, by the `ttl` of a cache marker or of `prompt_cache_options`.
    pub asked_cache_lives: &'static [(&'static str, u32)],
    /// Whether its API has Anthropic's Messages beside chat completions, or may have them.
    pub speaks_messages: bool,
    /// The largest tool message, in bytes of its JSON.
    pub tool_message_bytes: Option<usize>,
    pub images: ImageRule,
}

const MINUTE: u32 = 60;
const HOUR: u32 = 60 * MINUTE;

/// The `ttl` of Anthropic's markers; without one, 5 minutes.
const MARKED_LIVES: &[(&str, u32)] = &[("1h", HOUR)];
/// That of OpenAI's `prompt_cache_options` (the longer one since November 2026).
const OPTION_LIVES: &[(&str, u32)] = &[("30m", 30 * MINUTE), ("12h", 12 * HOUR)];

const OPEN: Profile = Profile {
    name: "openai",
    user_after_tool: Acceptance::Yes,
    adjacent_users: Acceptance::Yes,
    system_later: Acceptance::Yes,
    system_prompts: false,
    past_reasoning: PastReasoning::Read,
    reasoning_member: ReasoningMember::Free,
    signs_calls: false,
    thinks_by_default: false,
    names_completion_cap: false,
    takes_chat_tools: true,
    takes_forced_calls: true,
    tools_entry: None,
    results_may_be_apart: true,
    begins_with_user: false,
    may_end_with_assistant: true,
    answer_room: AnswerRoom::Checked,
    refuses_overflow: true,
    has_hosts: false,
    overflow_is_free: true,
    loaded_model_paths: &[],
    smallest_window: None,
    ollama_api: false,
    errors_inside: false,
    counts_missed_only: false,
    // `prompt_cache_retention` is "24h" by default since May 2026.
    cache_life_s: Some(24 * HOUR),
    asked_cache_lives: &[],
    speaks_messages: false,
    tool_message_bytes: None,
    images: ImageRule::Tiles,
};

const STRICT: Profile = Profile {
    name: "template",
    user_after_tool: Acceptance::No,
    adjacent_users: Acceptance::No,
    system_later: Acceptance::No,
    begins_with_user: true,
    may_end_with_assistant: false,
    // An engine of one's own may work on a prompt before it refuses it.
    overflow_is_free: false,
    errors_inside: true,
    counts_missed_only: true,
    cache_life_s: None,
    // Engines of one's own, such as vLLM and llama.cpp, have them.
    speaks_messages: true,
    ..OPEN
};

/// A strict grammar at a vendor that serves its own models.
const STRICT_VENDOR: Profile = Profile {
    overflow_is_free: true,
    errors_inside: false,
    counts_missed_only: false,
    speaks_messages: false,
    ..STRICT
};

/// Every profile. The facts are from the providers' documentation and from the chat templates of open models.
/// `template` is the profile of unknown engines.
pub const PROFILES: &[Profile] = &[
    Profile {
        tools_entry: Some(Format::Responses),
        names_completion_cap: true,
        asked_cache_lives: OPTION_LIVES,
        ..OPEN
    },
    Profile {
        name: "azure",
        names_completion_cap: true,
        asked_cache_lives: OPTION_LIVES,
        ..OPEN
    },
    Profile {
        name: "deepseek",
        results_may_be_apart: false,
        may_end_with_assistant: false,
        reasoning_member: ReasoningMember::OnEvery,
        ..OPEN
    },
    Profile {
        name: "kimi",
        may_end_with_assistant: false,
        cache_life_s: None,
        ..OPEN
    },
    Profile {
        name: "mistral",
        ..STRICT_VENDOR
    },
    Profile {
        name: "gemini",
        user_after_tool: Acceptance::Merged,
        adjacent_users: Acceptance::Merged,
        system_later: Acceptance::Merged,
        answer_room: AnswerRoom::Apart,
        images: ImageRule::Flat,
        ..STRICT_VENDOR
    },
    Profile {
        name: "anthropic",
        user_after_tool: Acceptance::Yes,
        adjacent_users: Acceptance::Merged,
        system_later: Acceptance::Merged,
        tools_entry: Some(Format::Messages),
        answer_room: AnswerRoom::Shared,
        cache_life_s: Some(5 * MINUTE),
        asked_cache_lives: MARKED_LIVES,
        speaks_messages: true,
        images: ImageRule::Area,
        ..STRICT_VENDOR
    },
    // Amazon Bedrock's two hosts have the APIs of OpenAI and Anthropic for models of any maker.
    Profile {
        name: "bedrock",
        cache_life_s: Some(5 * MINUTE),
        asked_cache_lives: MARKED_LIVES,
        speaks_messages: true,
        ..STRICT_VENDOR
    },
    STRICT,
    // Roles may follow one another in any order, and a cache may go at any time (xAI's guides to chat and to prompt
    // caching). Its Messages are deprecated, and still there.
    Profile {
        name: "xai",
        may_end_with_assistant: false,
        cache_life_s: None,
        speaks_messages: true,
        ..OPEN
    },
    // OpenRouter forwards requests to engines of any kind. It answers 413 to a larger tool message.
    Profile {
        name: "openrouter",
        tool_message_bytes: Some(204_800),
        has_hosts: true,
        ..STRICT
    },
    Profile {
        name: "lmstudio",
        // The second one until version 0.4.
        loaded_model_paths: &["/../api/v1/models", "/../api/v0/models"],
        ..STRICT
    },
    Profile {
        name: "ollama",
        loaded_model_paths: &["/../api/ps"],
        // 32,768 with 24 GiB of graphics memory, 262,144 with 48 GiB (`docs/context-length.mdx`, `server/routes.go`, August 2026).
        smallest_window: Some(4_096),
        ollama_api: true,
        refuses_overflow: false,
        overflow_is_free: false,
        counts_missed_only: true,
        speaks_messages: true,
        // The model is unloaded after this time (`keep_alive`).
        cache_life_s: Some(5 * MINUTE),
        ..OPEN
    },
];

/// Each profile that differs from those of the table by facts of a model, or by what an error taught. They are few: each
/// combination of facts is one.
static CHANGED: Mutex<Vec<&'static Profile>> = Mutex::new(Vec::new());

impl Profile {
    /// Whether it is an engine of one's own: it loads models, and their windows change with what it has loaded. Other engines, such as
    /// llama.cpp and vLLM, have no profile; their lists of models show it.
    pub const fn is_engine(&self) -> bool {
        !self.loaded_model_paths.is_empty()
    }

    /// Whether a request is refused whose prompt and answer cap together pass the window.
    pub fn checks_answer_cap(&self) -> bool {
        self.answer_room == AnswerRoom::Checked
    }

    /// This profile for a model of the provider.
    pub fn for_model(&self, model: &str) -> &'static Self {
        self.change(|it| model_rules::apply_model_rules(it, model))
    }

    /// This profile for a provider that has refused a prompt as a message of its own after a tool result.
    pub fn without_user_after_tool(&self) -> &'static Self {
        self.change(|it| {
            it.user_after_tool = Acceptance::No;
            // A `system` entry is such a message too.
            it.system_prompts = false;
        })
    }

    /// This profile for a model that has refused reasoning for what was changed before it, whatever its name says.
    pub fn with_bound_reasoning(&self) -> &'static Self {
        self.change(|it| it.past_reasoning = PastReasoning::Refused)
    }

    /// This profile for a model that always thinks and whose name has no rules. It has those of the newest models that do:
    /// their thinking is bound, and no call can be forced. A fact that proves wrong costs thinking, no request.
    pub fn with_constant_thinking(&self) -> &'static Self {
        self.change(|it| {
            it.thinks_by_default = true;
            it.takes_forced_calls = false;
            it.past_reasoning = PastReasoning::Refused;
        })
    }

    fn change(&self, change: impl FnOnce(&mut Self)) -> &'static Self {
        let mut changed = *self;
        change(&mut changed);
        let mut known = CHANGED.lock();
        let mut rows = PROFILES.iter().chain(known.iter().copied());
        if let Some(row) = rows.find(|row| **row == changed) {
            return row;
        }
        let row: &'static Self = Box::leak(Box::new(changed));
        known.push(row);
        row
    }
}

/// The host of an address, in lower case.
fn read_host(base_url: &Uri) -> String {
    base_url.host().unwrap_or("").to_ascii_lowercase()
}

pub fn find_profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// The name of the profile for a known host; `template`, the strictest, for any other.
pub(super) fn guess_by_host(base_url: Option<&str>) -> &'static str {
    let Some(base_url) = base_url.and_then(|base_url| base_url.parse::<Uri>().ok()) else {
        return "template";
    };
    let host = read_host(&base_url);
    match host.as_str() {
        "api.openai.com" | "chatgpt.com" => "openai",
        "api.deepseek.com" => "deepseek",
        "api.mistral.ai" => "mistral",
        "generativelanguage.googleapis.com" => "gemini",
        "api.anthropic.com" => "anthropic",
        "openrouter.ai" => "openrouter",
        "api.x.ai" | "us.api.x.ai" => "xai",
        host if host.ends_with(".openai.azure.com") => "azure",
        host if host.starts_with("api.moonshot.") => "kimi",
        host if host.starts_with("bedrock-runtime.") && host.ends_with(".amazonaws.com") => {
            "bedrock"
        }
        host if host.starts_with("bedrock-mantle.") && host.ends_with(".api.aws") => "bedrock",
        _ if base_url.port_u16() == Some(11434) => "ollama",
        _ if base_url.port_u16() == Some(1234) => "lmstudio",
        _ => "template",
    }
}

#[cfg(test)]
mod tests;
