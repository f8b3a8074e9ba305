//! The wordings, as data. A new provider is a new row here, never a new branch elsewhere.
//!
//! Texts are compared in lower case, without quotes and backslashes, with single spaces. Braces name the
//! meaning of a number: `window` is for prompt and answer, `limit` for the prompt alone; `prompt` and
//! `answer` are the sent and the requested tokens, `requested` is their sum; `excess` is the prompt less
//! its limit. `{_}` is a number without such a meaning, such as a lower bound, and `{*}` any short text.

/// Values of `code` and `type` that mean an overflow.
pub(super) const CODES: &[&str] = &[
    "context_length_error",
    "context_length_exceeded",
    "context_limit_exceeded",
    "context_overflow",
    "context_too_large",
    "context_window_exceeded",
    "contextlengthexceeded",
    "contextwindowexceedederror",
    "exceed_context_size_error",
    "input_too_long",
    "model_context_window_exceeded",
    "model_max_prompt_tokens_exceeded",
    "prompt_too_long",
    "tokens_limit_reached",
    "too_many_prompt_tokens",
    "too_many_tokens",
    // z.ai, and MiniMax: the prompt is too long.
    "1261",
    "1039",
];

/// Sentences that nothing but an overflow uses: believed at 200, 400, 413, 422, 429 and 5xx. A sentence that a rate limit or
/// a failure may use belongs to [`VAGUE`].
pub(super) const SURE: &[&str] = &[
    // OpenAI, Azure, DeepSeek, vLLM, OpenRouter, llama-cpp-python.
    "maximum context length is {window} tokens",
    "maximum context length is exceeded",
    "maximum context length of {window}",
    "maximum context length ({window})",
    "maximum context length: {window}",
    "{window} maximum context length",
    "too large for model with",
    "exceeds maximum context length",
    "exceeds the maximum context length",
    "exceeds models maximum context length",
    "exceeds the models maximum context length",
    "exceeded max context length",
    "longer than the models maximum context length",
    "longer than the models context length ({window} tokens)",
    "longer than the models context length",
    "longer than the maximum model length of {window}",
    "greater than the context length",
    "too long to fit into the model (context length {window})",
    "too long to fit into the model",
    "context length is only {window} tokens",
    "context length of only {window} tokens",
    "reached context length of {window} tokens",
    "configured context size is {window} tokens",
    "context_length_exceeded",
    "context length exceeded",
    "context window exceeded",
    "contextwindowexceedederror",
    "context size has been exceeded",
    "exceeds the available context size ({window} tokens)",
    "exceeds the available context size",
    "exceeds the context window",
    "exceeds the models context",
    "exceeds the model context",
    "exceeds model context",
    "exceeds the context length",
    "exceeds context window",
    "exceeds context length",
    "exceeds max context",
    "exceeds the maximum context",
    "over the maximum context",
    "maximum context limit of {window}",
    "maximum context limit is {window}",
    "maximum context limit",
    "maximum context size of {window}",
    "maximum context size",
    "context is too long",
    "context too long",
    "context overflow",
    "context exceeds your deployment",
    "ran out of room in the models context window",
    "capability_rejected: prompt_too_long",
    "exceed context window of {window}",
    "context window exceeds limit",
    "exceed context limit: {prompt} + {answer} > {window}",
    "exceed context limit",
    "tokens exceed the configured limit of {limit} tokens",
    "reduce the length of the messages",
    "reduce the length of the input prompt",
    // Anthropic, Fireworks.
    "prompt is too long: {prompt} tokens > {limit} maximum",
    "prompt is too long: {prompt}, model maximum context length: {window}",
    "prompt is too long",
    // Gemini and Vertex.
    "input token count ({prompt}) exceeds the maximum number of tokens allowed ({limit})",
    "input token count is {prompt} but the model only supports up to {limit}",
    "input token count is {prompt} but model only supports up to {limit}",
    "input token count exceeds the maximum",
    "exceeds the maximum number of tokens allowed",
    "exceeds the maximum number of input tokens",
    "cannot truncate to {limit}, required {prompt}",
    // Ollama.
    "prompt too long; exceeded max context length by {excess} tokens",
    // LM Studio.
    "cannot truncate prompt with n_keep ({_}) >= n_ctx ({window})",
    "(n_keep: {_} >= n_ctx: {window})",
    // vLLM, of an answer cap beyond the window.
    "max_completion_tokens={answer} cannot be greater than max_model_len=max_total_tokens={window}",
    "max_tokens={answer} cannot be greater than max_model_len=max_total_tokens={window}",
    // vMLX.
    "max prompt/context tokens is {window}",
    // TGI, Together, SageMaker.
    "inputs tokens + max_new_tokens must be <= {window}",
    "inputs must have less than {limit} tokens",
    // xAI.
    "maximum prompt length is {limit} but the request contains {prompt} tokens",
    // Copilot.
    "prompt token count of {prompt} exceeds the limit of {limit}",
    // Kimi.
    "exceeded model token limit: {window} (requested: {requested})",
    "exceeded model token limit",
    "input token length too long",
    "length of tokens in the request is too long",
    "conversation length exceeded",
    "reached its conversation limit",
    // z.ai, DashScope, Qianfan, Cohere.
    "tokens in request more than max tokens allowed",
    "total message token length exceed",
    "prompt tokens too long",
    "tokens in the prompt cannot exceed {limit}",
    // SiliconFlow.
    "length of prompt_tokens ({prompt}) must be less than max_seq_len ({window})",
    // Poolside, by OpenRouter; SGLang.
    "input length {prompt} exceeds the maximum allowed input length of {limit}",
    "exceeds the maximum allowed input length",
    "exceeds the maximum allowed length ({limit} tokens)",
    // watsonx.
    "number of input tokens {prompt} cannot exceed the total tokens limit {window}",
    // Bedrock.
    "input is too long for requested model",
    "number of input tokens exceeds maximum length",
    // Gateways and clouds in Chinese: the context is too long, or beyond its limit.
    "上下文{*}过长",
    "上下文{*}超",
    "上下文{*}太长",
    "上下文{*}过大",
    "超{*}上下文",
    "压缩上下文",
];

/// Sentences that mean other things at a 429 or 5xx: believed at 200, 400, 413 and 422 only.
pub(super) const VAGUE: &[&str] = &[
    // vLLM, once: what the prompt left for the answer.
    "max_tokens must be at least 1, got -{excess}",
    // Bedrock, Cohere, AI21.
    "expected maxlength",
    "too many input tokens",
    "too many tokens: size limit exceeded by {excess} tokens",
    "too many tokens",
    // Volcengine Ark.
    "input length {prompt} exceeds the maximum length {limit}",
    "exceed max message tokens",
    // DashScope.
    "range of input length should be [1, {limit}]",
    "range of input length should be",
    // Vercel's gateway.
    "input too long: {prompt} input tokens, limit is {limit}",
    "input is too long",
    "input too long",
    // Perplexity.
    "total length of all messages is too long",
    // z.ai.
    "prompt exceeds max length",
    "prompt too long",
    "prompt 超长",
    // Anthropic-compatible servers.
    "prompt: length",
    // NLP Cloud, Hugging Face.
    "input text length should not exceed",
    "length limit exceeded",
    "request payload size exceeds",
    "token limit exceeded",
    // In Chinese, of input, prompt, tokens, messages, or mere length.
    "输入{*}过长",
    "输入{*}太长",
    "输入{*}超",
    "prompt{*}过长",
    "prompt{*}超",
    "提示词{*}过长",
    "提示词{*}超",
    "token{*}过多",
    "token{*}超",
    "超{*}token",
    "对话{*}过长",
    "对话{*}超",
    "消息{*}过长",
    "请求{*}过长",
    "内容过长",
    "长度超",
    "超过最大长度",
    "超出最大长度",
];

/// Other wordings of numbers in an overflow. Alone they do not mean an overflow.
pub(super) const FIGURES: &[&str] = &[
    "you requested {requested} tokens",
    "you requested about {requested} tokens",
    "requested a total of {requested} tokens",
    "requested about {prompt} tokens ({_} of text input, {_} of tool input)",
    ", {answer} in the completion",
    "and {answer} in the completion",
    "; {answer} for the completion",
    "and {answer} tokens for the completion",
    ", {answer} in the output",
    "requested {answer} output tokens",
    "is too large: {answer}. this models maximum context length",
    "input tokens plus {answer} max_tokens",
    "resulted in {prompt} tokens",
    "({prompt} in the messages,",
    "({prompt} in your prompt;",
    "({prompt} of text input)",
    "prompt contains {prompt} input tokens",
    "prompt contains {prompt} tokens",
    "prompt has {prompt} tokens",
    "request has {prompt} input tokens",
    "has {prompt} tokens, max prompt/context",
    "request ({prompt} tokens) exceeds",
    "you passed {prompt} input tokens",
    "the input ({prompt} tokens) is longer",
    "input length ({prompt}) exceeds",
    "input length ({prompt} tokens) exceeds",
    "decoder prompt (length {prompt}) is longer",
    "prompt (total length {prompt}) is too long",
    "requested tokens ({prompt}) exceed context window",
    "given: {prompt} inputs tokens and {answer} max_new_tokens",
    "tokens. given: {prompt}",
    // Cerebras. The sentence before it is about messages and completion: so the limit holds both.
    "current length is {prompt} while limit is {window}",
    // Cohere.
    "the limit for this model is {limit} tokens",
    // GitHub Models.
    "max size: {limit} tokens",
];

/// Wordings that rule an overflow out: money, rates, a single long text.
pub(super) const VETOES: &[&str] = &[
    "rate limit",
    "rate-limit",
    "rate_limit",
    "ratelimit",
    "per min",
    "per hour",
    "per day",
    "per second",
    "(tpm)",
    " tpm",
    "too many requests",
    "throttl",
    "please wait",
    "quota",
    "billing",
    "credits",
    "afford",
    "resource_exhausted",
    // The same in Chinese, and times and answers that are too long.
    "频率",
    "速率",
    "限流",
    "并发",
    "每分钟",
    "次数",
    "余额",
    "欠费",
    "配额",
    "额度",
    "超时",
    "max_tokens 超",
    // Gateways that look into texts.
    "policy_blocked",
    "dlp_request_denied",
    // One text or list of the request.
    "string too long",
    "string_too_long",
    "string_above_max_length",
    "array too long",
    "array_above_max_length",
    // Bytes, not tokens.
    "size exceeds the limit: {_} bytes",
    // llama.cpp, of embeddings.
    "physical batch size",
    // A client that asks for an answer without limit, in the spelling of another engine.
    "must be at least 1, got -1.",
];

/// Texts by which libraries of gateways replace an empty body.
pub(super) const WORDLESS: &[&str] = &["400 status code (no body)", "413 status code (no body)"];

/// Limits of tokens a minute. Where the request alone is beyond one, it is a limit of each request.
pub(super) const REQUEST_LIMITS: &[&str] = &[
    "limit {window}, requested {requested}",
    "limit: {window}, requested: {requested}",
    "limit {window}, used {_}, requested {requested}",
    "limit: {window}, used: {_}, requested: {requested}",
    "limit: {window} tokens, requested: {requested}",
    "rate limit of {limit} input tokens per minute",
    "rate limit of {limit} tokens per minute",
];
