//! What a provider's grammar allows, as data: the table of profiles.
//!
//! A new provider is a new row, never a new branch somewhere else.

use std::sync::LazyLock;

use http::Uri;

/// What a provider does with two user messages in a row, or a user message after a tool result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acceptance {
    Yes,
    /// Accepted: the provider makes one message of both.
    Merged,
    No,
}

/// How a provider counts the tokens of an image of known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    /// 85 + 170 per 512-pixel tile, after fitting into 2,048 and a shorter side of 768.
    Tiles,
    /// Width times height over 750.
    Area,
    /// 258 a tile of 768 pixels.
    Flat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub user_after_tool: Acceptance,
    pub adjacent_users: Acceptance,
    /// A `system` message after the first other one.
    pub system_later: Acceptance,
    pub begins_with_user: bool,
    pub may_end_with_assistant: bool,
    /// Whether the answer's tokens share the window with the prompt's.
    pub answer_inside_window: bool,
    /// Whether overflow is an error at all; Ollama drops the front in silence.
    pub refuses_overflow: bool,
    /// Whether a stream that began as a success may hold an error as its first event.
    pub errors_inside: bool,
    /// Whether `prompt_tokens` may leave out what the engine's cache held.
    pub counts_missed_only: bool,
    /// The most that one tool message may have, in bytes of its JSON.
    pub tool_message_bytes: Option<usize>,
    pub images: ImageRule,
}

const OPEN: Profile = Profile {
    name: "openai",
    user_after_tool: Acceptance::Yes,
    adjacent_users: Acceptance::Yes,
    system_later: Acceptance::Yes,
    begins_with_user: false,
    may_end_with_assistant: true,
    answer_inside_window: true,
    refuses_overflow: true,
    errors_inside: false,
    counts_missed_only: false,
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
    errors_inside: true,
    counts_missed_only: true,
    ..OPEN
};

/// Every profile, by name. The facts are those of the providers' documentation and of the
/// chat templates shipped with open models; `template` is what an unknown engine is taken for.
pub const PROFILES: &[Profile] = &[
    OPEN,
    Profile {
        name: "azure",
        ..OPEN
    },
    Profile {
        name: "deepseek",
        may_end_with_assistant: false,
        ..OPEN
    },
    Profile {
        name: "kimi",
        may_end_with_assistant: false,
        ..OPEN
    },
    Profile {
        name: "mistral",
        errors_inside: false,
        counts_missed_only: false,
        ..STRICT
    },
    Profile {
        name: "gemini",
        user_after_tool: Acceptance::Merged,
        adjacent_users: Acceptance::Merged,
        system_later: Acceptance::Merged,
        answer_inside_window: false,
        errors_inside: false,
        counts_missed_only: false,
        images: ImageRule::Flat,
        ..STRICT
    },
    Profile {
        name: "anthropic",
        user_after_tool: Acceptance::Yes,
        adjacent_users: Acceptance::Merged,
        system_later: Acceptance::Merged,
        answer_inside_window: false,
        errors_inside: false,
        counts_missed_only: false,
        images: ImageRule::Area,
        ..STRICT
    },
    STRICT,
    // It passes requests on to engines of any kind, and answers 413 to a larger tool message.
    Profile {
        name: "openrouter",
        tool_message_bytes: Some(204_800),
        ..STRICT
    },
    Profile {
        name: "ollama",
        refuses_overflow: false,
        counts_missed_only: true,
        ..OPEN
    },
];

/// The profiles of providers that were seen to refuse a user message after a tool result.
static WITHOUT_USER_AFTER_TOOL: LazyLock<Vec<Profile>> = LazyLock::new(|| {
    let held = PROFILES.iter().map(|profile| Profile {
        user_after_tool: Acceptance::No,
        ..*profile
    });
    held.collect()
});

impl Profile {
    /// The same provider's profile, where it takes no user message after a tool result.
    pub fn without_user_after_tool(&self) -> &'static Self {
        let mut rows = WITHOUT_USER_AFTER_TOOL.iter();
        rows.find(|row| row.name == self.name).unwrap_or(&STRICT)
    }
}

/// The profile of that name.
pub fn find_profile(name: &str) -> Option<&'static Profile> {
    PROFILES.iter().find(|profile| profile.name == name)
}

/// The profile of a host that is known; `template`, the strictest, for any other.
pub(super) fn guess_by_host(base_url: Option<&str>) -> &'static str {
    let Some(base_url) = base_url.and_then(|base_url| base_url.parse::<Uri>().ok()) else {
        return "template";
    };
    let host = base_url.host().unwrap_or("").to_ascii_lowercase();
    match host.as_str() {
        "api.openai.com" => "openai",
        "api.deepseek.com" => "deepseek",
        "api.mistral.ai" => "mistral",
        "generativelanguage.googleapis.com" => "gemini",
        "api.anthropic.com" => "anthropic",
        "openrouter.ai" => "openrouter",
        host if host.ends_with(".openai.azure.com") => "azure",
        host if host.starts_with("api.moonshot.") => "kimi",
        _ if base_url.port_u16() == Some(11434) => "ollama",
        _ => "template",
    }
}

#[cfg(test)]
mod tests {
    use super::guess_by_host;

    #[test]
    fn the_profile_is_guessed_from_the_host() {
        for (base_url, profile) in [
            ("https://api.openai.com/v1", "openai"),
            ("https://API.OpenAI.com/v1", "openai"),
            ("https://mine.openai.azure.com/openai/v1", "azure"),
            ("https://api.deepseek.com", "deepseek"),
            ("https://api.moonshot.ai/v1", "kimi"),
            ("https://api.moonshot.cn/v1", "kimi"),
            ("https://api.mistral.ai/v1", "mistral"),
            (
                "https://generativelanguage.googleapis.com/v1beta/openai",
                "gemini",
            ),
            ("https://api.anthropic.com/v1", "anthropic"),
            ("https://openrouter.ai/api/v1", "openrouter"),
            ("http://127.0.0.1:11434/v1", "ollama"),
            ("http://127.0.0.1:8080/v1", "template"),
            ("https://api.openai.com.example/v1", "template"),
        ] {
            assert_eq!(guess_by_host(Some(base_url)), profile, "{base_url}");
        }
    }
}
