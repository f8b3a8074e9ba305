//! Wordings of clouds and gateways, most of them without numbers.

/// Overflows, with status 400.
pub(super) const OVERFLOWS: &[&str] = &[
    // OpenAI without its code, and gateways that speak like it.
    "Your input exceeds the model's context window. Please shorten it.",
    "Request size exceeds model context window",
    "The conversation exceeds the model's context length.",
    "Requested token count exceeds the model's maximum context length of 131072 tokens.",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "Request is over the maximum context of this endpoint",
    "Context overflow: prompt too large for the model",
    "maximum context limit is 200000 tokens",
    "This request would pass the maximum context limit of the deployment",
    "context exceeds your deployment's limit",
    "ran out of room in the model's context window. Start a new conversation.",
    "capability_rejected: prompt_too_long",
    "Prompt has 5,958,968 tokens, but the configured context size is 256,000 tokens",
    // Google.
    "Your input context is too long. Reduce your input context or temporarily switch to another model.",
    "Unable to submit request because input exceeds the maximum number of tokens allowed.",
    "The input token count exceeds the maximum number of input tokens of this model.",
    "[original: beyond::dependency::INVALID_ARGUMENT] Cannot truncate to 89998, required 355220: text:355351",
    // Kimi, z.ai, DashScope, Qianfan, Cohere, Bedrock.
    "Input token length too long",
    "The length of tokens in the request is too long. Do not exceed the model's maximum token limit.",
    "Conversation length exceeded. Please start a new session.",
    "The current model has reached its conversation limit. Please switch to another model to continue.",
    "tokens in request more than max tokens allowed",
    "Total message token length exceed model limit (6000 tokens)",
    "prompt tokens too long",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "Input is too long for this model.",
    // vLLM.
    "This model's maximum context length is 128000 tokens. However, you requested 65535 output tokens and your prompt contains at least 62466 input tokens, for a total of at least 128001 tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
    // In Chinese.
    "上下文过长",
    "错误：上下文过长，请减少输入",
    "当前节点上下文过长，请精简内容后再试",
    "上下文超出限制",
    "上下文长度超出模型最大限制",
    "上下文超限",
    "超出最大上下文长度",
    "请压缩上下文后重试",
    "输入长度超过限制",
    "输入的 token 数超过模型上限",
    "输入过长，请缩短后重试",
    "token数量超过上限",
    "请求的tokens总数超过模型最大长度",
    "提示词过长",
    "Prompt超长",
    "对话内容过长",
    "消息总长度超过最大长度",
];

/// Errors with another cause that resemble them.
pub(super) const OTHERS: &[&str] = &[
    "请求频率超过限制，请稍后再试",
    "每分钟 token 数量超过限制",
    "余额不足，token 已超额度",
    "账户配额超出上限",
    "请求超时，token 未返回",
    "max_tokens 超过模型允许的最大值 8192",
    "输入内容包含敏感信息",
    "Request policy_blocked: the prompt is too long to be inspected",
    "dlp_request_denied: maximum context length of the scanner",
];
