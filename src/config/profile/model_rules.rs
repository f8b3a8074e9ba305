//! The table of models' rules: what an API does by the model's family and version, whatever its vendor or region before
//! the name and its date behind it.
//!
//! The rules hold at every host; what holds in one format alone says so at its field. A provider's own row says what else
//! holds there. A version that is not known yet has the rules of the newest one before it.

use super::{MINUTE, PastReasoning, Profile, ReasoningMember, read_host};

/// The beginnings of names, and what a model with one of them differs in.
type ModelRule = (&'static str, fn(&mut Profile));

/// The models that have a rule, and the rule. Of two rules for one model, the later one holds.
///
/// A word is a family with its first version that has the rule; later versions have it too. A word without a version at its
/// end is the beginning of a name: every such model has the rule.
const RULES: &[ModelRule] = &[
    // They take a `system` message in the midst of a conversation in Anthropic's Messages, and tools in it. Claude Sonnet 5
    // does not.
    (
        "claude-opus-4.8 claude-sonnet-5.5 claude-haiku-5.5 claude-fable-5 claude-mythos-5",
        |it| it.system_prompts = true,
    ),
    // Their thinking is bound to what stood before it (Anthropic's "Preserved thinking", since 31 August 2026). Opus 5,
    // Sonnet 5, Fable 5 and all of version 4 are not.
    (
        "claude-opus-5.5 claude-sonnet-5.5 claude-haiku-5.5 claude-fable-5.1 claude-mythos-5.1",
        |it| it.past_reasoning = PastReasoning::Refused,
    ),
    // The API leaves out reasoning behind a changed place (OpenAI's "Preserved reasoning", since 17 November 2026).
    ("gpt-6.2", |it| it.past_reasoning = PastReasoning::Dropped),
    // They think unless a request says otherwise, some of them whatever it says. The answer's cap holds thinking and text
    // (the vendors' guides to thinking).
    (
        "claude-opus-5.5 claude-sonnet-5.5 claude-haiku-5.5 claude-fable-5 claude-mythos-5 \
         gpt-5 o1 gemini-3 deepseek-v4 kimi-k2.5 kimi-for-coding minimax-m2 grok-4",
        |it| it.thinks_by_default = true,
    ),
    // An answer with calls must have its `reasoning_content`: "thinking is enabled but reasoning_content is missing in
    // assistant tool call message" (opencode 25758). Kimi K2.6 takes an empty one for missing.
    ("mimo-v2 kimi-k2.5 kimi-k2-thinking", |it| {
        it.reasoning_member = ReasoningMember::OnCalls
    }),
    // Where a request has tools, each answer must have it, also one without calls: "The `reasoning_content` in the thinking
    // mode must be passed back to the API." (kimi-cli 2141, openclaw 73417; pi's catalogue of November 2026). DeepSeek V4
    // takes an empty one for missing. Without tools it is ignored.
    (
        "deepseek-v4 deepseek-flash mimo-v2.6 kimi-for-coding",
        |it| it.reasoning_member = ReasoningMember::OnEvery,
    ),
    ("kimi-k2.6", |it| {
        if it.name == "openrouter" {
            it.reasoning_member = ReasoningMember::OnEvery;
        }
    }),
    // It always thinks: "preserved thinking (thinking.keep=all) requires reasoning_content on every assistant message"
    // (kimi-cli 2498 and 2446).
    ("kimi-k3", |it| {
        it.reasoning_member = ReasoningMember::Always
    }),
    // The first call of each answer in the running turn must have a signature: "Function call is missing a
    // thought_signature" (Google's guide to thought signatures).
    (
        "gemini-3 gemini-pro-latest gemini-flash-latest gemini-flash-lite-latest",
        |it| it.signs_calls = true,
    ),
    // They refuse `max_tokens`, at whatever host they are.
    ("gpt-5 o1 kimi-k3", |it| it.names_completion_cap = true),
    // They refuse an answer that the request begins (Anthropic's guide to prefilling).
    (
        "claude-opus-4.6 claude-sonnet-4.6 claude-haiku-5.5 claude-fable-5 claude-mythos-5",
        |it| it.may_end_with_assistant = false,
    ),
    // They always think, and an answer that thinks cannot be made to call (Anthropic's guide to extended thinking).
    (
        "claude-opus-5.5 claude-sonnet-5.5 claude-fable-5.1 claude-mythos-5.1",
        |it| it.takes_forced_calls = false,
    ),
    // They reason at any effort, and with tools in Responses alone (litellm 34569). That is so in OpenAI's own API and at
    // Azure; others translate chat completions themselves.
    ("gpt-6-astra gpt-6.1", |it| {
        it.takes_chat_tools &= !matches!(it.name, "openai" | "azure")
    }),
    // OpenAI's caches live for half an hour at least, and `prompt_cache_retention` is refused (from GPT-5.6 on).
    ("gpt-5.6", |it| {
        it.cache_life_s = it.cache_life_s.map(|life| life.min(30 * MINUTE))
    }),
];

/// A part of Anthropic's API with which a model has a larger window. Requests name it in `anthropic-beta`.
struct WindowBeta {
    name: &'static str,
    /// The first version that needs it, and the first one that has the window without it.
    models: (&'static str, &'static str),
    /// The window with it, in tokens.
    window: u32,
    /// The host where it has no effect any more.
    ended_at: &'static str,
}

/// Its place is its bit in [`read_window_betas`], so a row stays where it is.
const WINDOW_BETAS: &[WindowBeta] = &[
    // Ended at Anthropic on 30 April 2026: a longer prompt is refused there. Others may still have it.
    WindowBeta {
        name: "context-1m-2025-08-07",
        models: ("claude-sonnet-4", "claude-sonnet-4.6"),
        window: 1_000_000,
        ended_at: "api.anthropic.com",
    },
];

/// Which rows of the table a request names, one bit for each.
pub fn read_window_betas<'a>(named: impl Iterator<Item = &'a str>) -> u8 {
    let bit = |name| {
        let at = WINDOW_BETAS.iter().position(|row| row.name == name);
        at.map_or(0, |at| 1 << at)
    };
    named.fold(0, |betas, name| betas | bit(name))
}

/// The window of a model with these betas at a host, in tokens; `None`: they do not change it.
pub fn find_beta_window(model: &str, betas: u8, base_url: Option<&str>) -> Option<u32> {
    let betas = betas & list_window_betas(model, base_url);
    let row = WINDOW_BETAS.get(betas.trailing_zeros() as usize);
    row.map(|row| row.window)
}

/// The rows without which a model does not have its larger window at a host, one bit for each.
pub fn list_window_betas(model: &str, base_url: Option<&str>) -> u8 {
    let host = base_url.and_then(|base_url| Some(read_host(&base_url.parse().ok()?)));
    let model = model.to_ascii_lowercase();
    let rows = WINDOW_BETAS.iter().enumerate();
    let changing = rows.filter(|(_, row)| {
        let (from, until) = row.models;
        host.as_deref() != Some(row.ended_at)
            && has_rule_of(&model, from)
            && !has_rule_of(&model, until)
    });
    changing.fold(0, |betas, (at, _)| betas | 1 << at)
}

/// The names of these rows, as a header has them.
pub fn name_window_betas(betas: u8) -> impl Iterator<Item = &'static str> {
    let rows = WINDOW_BETAS.iter().enumerate();
    let named = rows.filter(move |(at, _)| betas & 1 << at != 0);
    named.map(|(_, row)| row.name)
}

/// Families whose reasoning no other family reads, each with the words that name it.
const FAMILIES: &[&str] = &[
    "claude",
    "gpt chatgpt codex o1 o3 o4",
    "gemini",
    "gemma",
    "kimi moonshot",
    "deepseek",
    "grok",
    "glm chatglm",
    "minimax",
    "mimo",
    "qwen qwq qvq",
    "mistral magistral ministral mixtral codestral devstral pixtral",
    "nemotron",
    "llama",
    "command",
    "ernie",
    "hunyuan",
    "doubao",
    "nova",
    "phi",
];

/// Whether two models are of different families, as far as their names tell. A name that tells nothing, such as that of a
/// deployment, is of any family.
pub fn is_other_family(one: &str, other: &str) -> bool {
    matches!((find_family(one), find_family(other)), (Some(one), Some(other)) if one != other)
}

/// The first family of the table with a word that a part of the name is or begins with, where no letter follows (`qwen3`).
fn find_family(model: &str) -> Option<usize> {
    let model = model.to_ascii_lowercase();
    let names_word = |part: &str, word: &str| {
        part.strip_prefix(word)
            .is_some_and(|rest| !rest.starts_with(|it: char| it.is_ascii_alphabetic()))
    };
    FAMILIES.iter().position(|words| {
        let mut parts = model.split(|it: char| !it.is_ascii_alphanumeric());
        parts.any(|part| words.split(' ').any(|word| names_word(part, word)))
    })
}

/// Changes a provider's row by the rules of a model.
pub(super) fn apply_model_rules(profile: &mut Profile, model: &str) {
    let model = model.to_ascii_lowercase();
    for (models, apply) in RULES {
        if models.split(' ').any(|first| has_rule_of(&model, first)) {
            apply(profile);
        }
    }
}

/// Whether a model, in lower case, is of the family of a word of the table, and not older than its version.
fn has_rule_of(model: &str, first: &str) -> bool {
    let family = first.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    let least = read_versions(&first[family.len()..]);
    let mut found = model.match_indices(family);
    found.any(|(at, _)| {
        let begins = !model[..at].ends_with(|it: char| it.is_ascii_alphanumeric());
        let version = read_versions(&model[at + family.len()..]);
        begins && (family == first || version.is_some_and(|version| Some(version) >= least))
    })
}

/// The major and the minor version at the beginning of a text, the minor one 0 where there is none. Fireworks writes its
/// point as `p`.
fn read_versions(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(['-', '.', 'p']).map(read_version);
    let major = numbers.next()??;
    Some((major, numbers.next().flatten().unwrap_or(0)))
}

/// The number at the beginning of a part of a name; `None` for a date, for a size such as `32k`, and for a version without
/// its point, such as `gpt-35`.
fn read_version(part: &str) -> Option<u32> {
    let end = part.find(|it: char| !it.is_ascii_digit());
    let (digits, rest) = part.split_at(end.unwrap_or(part.len()));
    let is_size = rest.starts_with(|it: char| it.is_ascii_alphabetic());
    digits
        .parse()
        .ok()
        .filter(|version| *version < 20 && !is_size)
}

#[cfg(test)]
mod tests {
    use super::{MINUTE, find_beta_window, is_other_family, read_window_betas};
    use crate::config::profile::{PastReasoning, Profile, ReasoningMember, find_profile};

    fn rules_of(model: &str) -> &'static Profile {
        find_profile("openai").unwrap().for_model(model)
    }

    #[test]
    fn the_version_decides() {
        for model in [
            "claude-opus-4-8",
            "claude-opus-4-8-20260514",
            "claude-opus-5",
            "claude-opus-5-20260901",
            "anthropic/claude-opus-4.8",
            "us.anthropic.claude-opus-4-10-v1:0",
            "claude-opus-5@20260901",
            "claude-sonnet-5-5",
            "claude-haiku-5-5@20260921",
            "Claude-Fable-5",
            "claude-mythos-5-1",
        ] {
            assert!(rules_of(model).system_prompts, "{model}");
        }
        for model in [
            "claude-opus-4-7",
            "claude-opus-4-20250514",
            "claude-opus-4-1-20250805",
            "claude-sonnet-5",
            "claude-haiku-4-5",
            "claude-opus-latest",
            "claude-opus-",
            "claude-3-opus-20240229",
            "gpt-5",
            "",
        ] {
            assert!(!rules_of(model).system_prompts, "{model}");
        }
    }

    #[test]
    fn bound_reasoning_begins_with_a_version() {
        for (model, past) in [
            ("claude-opus-5-5", PastReasoning::Refused),
            ("anthropic.claude-opus-5-5", PastReasoning::Refused),
            (
                "us.anthropic.claude-sonnet-5-5-v1:0",
                PastReasoning::Refused,
            ),
            ("claude-haiku-5-5@20260921", PastReasoning::Refused),
            ("anthropic/claude-opus-5.5", PastReasoning::Refused),
            ("claude-sonnet-5-5[1m]", PastReasoning::Refused),
            ("claude-opus-6", PastReasoning::Refused),
            ("claude-fable-5-1", PastReasoning::Refused),
            ("claude-sonnet-5-32k", PastReasoning::Read),
            ("claude-opus-5", PastReasoning::Read),
            ("claude-opus-5-20260901", PastReasoning::Read),
            ("claude-sonnet-5@20260901", PastReasoning::Read),
            ("claude-haiku-4-5", PastReasoning::Read),
            ("claude-fable-5", PastReasoning::Read),
            ("gpt-6.2-sol", PastReasoning::Dropped),
            ("openai/gpt-6.2-astra", PastReasoning::Dropped),
            ("gpt-7", PastReasoning::Dropped),
            ("gpt-6.1-sol", PastReasoning::Read),
            ("gpt-6-astra", PastReasoning::Read),
            ("gpt-5.6-sol", PastReasoning::Read),
            ("gpt-4o", PastReasoning::Read),
            ("", PastReasoning::Read),
        ] {
            assert_eq!(rules_of(model).past_reasoning, past, "{model}");
        }
    }

    #[test]
    fn answers_must_have_their_reasoning_by_the_model() {
        for (model, member) in [
            ("kimi-k3", ReasoningMember::Always),
            ("kimi-k3-256k", ReasoningMember::Always),
            ("moonshotai/kimi-k3.1-pro", ReasoningMember::Always),
            (
                "accounts/fireworks/models/kimi-k3p1-pro",
                ReasoningMember::Always,
            ),
            ("kimi-for-coding", ReasoningMember::OnEvery),
            ("kimi-k2.6", ReasoningMember::OnCalls),
            (
                "accounts/fireworks/models/kimi-k2p6",
                ReasoningMember::OnCalls,
            ),
            ("kimi-k2.7-code", ReasoningMember::OnCalls),
            ("kimi-k2-thinking", ReasoningMember::OnCalls),
            ("kimi-k2-0905-preview", ReasoningMember::Free),
            ("deepseek-v4-pro", ReasoningMember::OnEvery),
            ("deepseek-v4.1-flash", ReasoningMember::OnEvery),
            ("deepseek-flash", ReasoningMember::OnEvery),
            ("deepseek/deepseek-v4-flash", ReasoningMember::OnEvery),
            ("xiaomi/mimo-v2.5-pro", ReasoningMember::OnCalls),
            ("xiaomi/mimo-v2.6-pro", ReasoningMember::OnEvery),
            ("deepseek-v3.2", ReasoningMember::Free),
            ("gpt-6.2-sol", ReasoningMember::Free),
            ("glm-5.3", ReasoningMember::Free),
        ] {
            assert_eq!(rules_of(model).reasoning_member, member, "{model}");
        }
        // The host knows: its names say nothing.
        let deepseek = find_profile("deepseek").unwrap();
        let member = deepseek.for_model("deepseek-chat").reasoning_member;
        assert_eq!(member, ReasoningMember::OnEvery);
        let openrouter = find_profile("openrouter").unwrap();
        for (model, member) in [
            ("moonshotai/kimi-k2.6", ReasoningMember::OnEvery),
            ("moonshotai/kimi-k2.5", ReasoningMember::OnCalls),
            ("moonshotai/kimi-k3", ReasoningMember::Always),
        ] {
            let rules = openrouter.for_model(model);
            assert_eq!(rules.reasoning_member, member, "{model}");
        }
    }

    #[test]
    fn families_are_told_apart_by_their_names() {
        assert!(is_other_family("claude-opus-5-5", "openai/gpt-6.2-sol"));
        assert!(is_other_family(
            "us.anthropic.claude-opus-5-5-v1:0",
            "kimi-k3"
        ));
        assert!(!is_other_family(
            "claude-opus-5-5",
            "anthropic/claude-haiku-5.5"
        ));
        for (one, other, is_other) in [
            ("o3-pro", "openai/gpt-6", false),
            ("openai/o4-mini", "claude-opus-5-5", true),
            ("chatgpt-4o-latest", "o1", false),
            (
                "magistral-medium-latest",
                "mistralai/mistral-large-3",
                false,
            ),
            ("magistral-medium-latest", "o3", true),
            ("qwen3-coder", "moonshotai/kimi-k3", true),
            (
                "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
                "deepseek-v4",
                false,
            ),
            // A name that tells nothing.
            ("my-deployment", "gpt-6", false),
            ("foo1", "claude-opus-5-5", false),
        ] {
            assert_eq!(is_other_family(one, other), is_other, "{one} {other}");
        }
    }

    #[test]
    fn what_a_request_may_ask_depends_on_the_model() {
        for (model, begun_answers, forced_calls, chat_tools) in [
            ("claude-opus-4-5", true, true, true),
            ("anthropic/claude-sonnet-4.6", false, true, true),
            ("claude-haiku-5-5", false, true, true),
            ("claude-sonnet-5-5", false, false, true),
            ("claude-fable-5", false, true, true),
            ("claude-fable-5-1", false, false, true),
            ("gpt-6-sol", true, true, true),
            ("gpt-6-astra", true, true, false),
            ("openai/gpt-6.1-sol", true, true, false),
            ("gpt-6.2-astra", true, true, false),
            ("kimi-k3", true, true, true),
        ] {
            let rules = rules_of(model);
            let found = (
                rules.may_end_with_assistant,
                rules.takes_forced_calls,
                rules.takes_chat_tools,
            );
            let expected = (begun_answers, forced_calls, chat_tools);
            assert_eq!(found, expected, "{model}");
        }
    }

    #[test]
    fn a_beta_gives_some_models_a_larger_window() {
        let betas = |header: &'static str| read_window_betas(header.split(','));
        let beta = betas("context-1m-2025-08-07");
        assert_eq!(betas("a,context-1m-2025-08-07,b"), beta);
        assert_eq!(betas("context-1m-2025-08-071,,b"), 0);
        let elsewhere = Some("http://127.0.0.1:8080/v1");
        for (model, betas, base_url, window) in [
            (
                "claude-sonnet-4-5-20250929",
                beta,
                elsewhere,
                Some(1_000_000),
            ),
            (
                "us.anthropic.claude-sonnet-4-20250514-v1:0",
                beta,
                elsewhere,
                Some(1_000_000),
            ),
            ("Claude-Sonnet-4", beta, None, Some(1_000_000)),
            ("claude-sonnet-4-5", 0, elsewhere, None),
            ("claude-sonnet-4-6", beta, elsewhere, None),
            ("claude-sonnet-5", beta, elsewhere, None),
            ("claude-opus-4-5", beta, elsewhere, None),
            ("claude-3-7-sonnet", beta, elsewhere, None),
            (
                "claude-sonnet-4-5",
                beta,
                Some("https://api.Anthropic.com/v1"),
                None,
            ),
        ] {
            assert_eq!(find_beta_window(model, betas, base_url), window, "{model}");
        }
    }

    #[test]
    fn resellers_translate_chats_with_tools() {
        for (profile, takes_tools) in [("openai", false), ("azure", false), ("openrouter", true)] {
            let rules = find_profile(profile).unwrap();
            let rules = rules.for_model("openai/gpt-6.2-sol");
            assert_eq!(rules.takes_chat_tools, takes_tools, "{profile}");
        }
    }

    #[test]
    fn the_other_rules_begin_with_their_versions() {
        for (model, thinks, signs_calls, completion_cap, cache_life_s) in [
            ("gpt-4o", false, false, false, 24 * 60 * MINUTE),
            ("gpt-5.4", true, false, true, 24 * 60 * MINUTE),
            ("gpt-5.6-sol", true, false, true, 30 * MINUTE),
            ("openai/gpt-6.2-sol", true, false, true, 30 * MINUTE),
            ("o3-mini", true, false, true, 24 * 60 * MINUTE),
            ("openai/o4-mini", true, false, true, 24 * 60 * MINUTE),
            ("gpt-35-turbo", false, false, false, 24 * 60 * MINUTE),
            ("gemini-flash-latest", false, true, false, 24 * 60 * MINUTE),
            ("foo1-large", false, false, false, 24 * 60 * MINUTE),
            ("kimi-k3", true, false, true, 24 * 60 * MINUTE),
            ("claude-sonnet-5-5", true, false, false, 24 * 60 * MINUTE),
            ("claude-haiku-5-5", true, false, false, 24 * 60 * MINUTE),
            ("gemini-3.8-pro", true, true, false, 24 * 60 * MINUTE),
            ("gemini-2.5-pro", false, false, false, 24 * 60 * MINUTE),
        ] {
            let rules = rules_of(model);
            let elsewhere = find_profile("template").unwrap().for_model(model);
            let found = (
                rules.thinks_by_default,
                rules.signs_calls,
                elsewhere.names_completion_cap,
            );
            assert_eq!(found, (thinks, signs_calls, completion_cap), "{model}");
            assert_eq!(rules.cache_life_s, Some(cache_life_s), "{model}");
        }
        let unknown = find_profile("template").unwrap().for_model("gpt-5.6-sol");
        assert_eq!(unknown.cache_life_s, None, "nothing is documented there");
    }
}
