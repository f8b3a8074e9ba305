use super::{PastReasoning, find_profile, guess_by_host};

#[test]
fn the_profile_follows_from_the_host() {
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
        ("https://api.x.ai/v1", "xai"),
        ("https://us.api.x.ai/v1", "xai"),
        (
            "https://bedrock-runtime.us-east-1.amazonaws.com/openai/v1",
            "bedrock",
        ),
        ("https://bedrock-mantle.eu-west-1.api.aws/v1", "bedrock"),
        (
            "https://bedrock-mantle.us-west-2.api.aws/anthropic/v1",
            "bedrock",
        ),
        ("https://bedrock-mantle.example.com/v1", "template"),
        ("http://127.0.0.1:11434/v1", "ollama"),
        ("http://127.0.0.1:1234/v1", "lmstudio"),
        ("http://127.0.0.1:8080/v1", "template"),
        ("https://api.openai.com.example/v1", "template"),
    ] {
        assert_eq!(guess_by_host(Some(base_url)), profile, "{base_url}");
    }
}

/// Of all models that are known, those that always think have the same rules.
#[test]
fn a_model_that_always_thinks_has_the_rules_of_the_newest_that_do() {
    let anthropic = find_profile("anthropic").unwrap();
    let unknown = anthropic.with_constant_thinking();
    let known = anthropic.for_model("claude-opus-5-5");
    assert!(unknown.thinks_by_default && known.thinks_by_default);
    assert!(!unknown.takes_forced_calls && !known.takes_forced_calls);
    assert_eq!(unknown.past_reasoning, PastReasoning::Refused);
    assert_eq!(known.past_reasoning, PastReasoning::Refused);
    assert!(!unknown.may_end_with_assistant && !known.may_end_with_assistant);
}
