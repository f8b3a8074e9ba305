//! Error wordings of providers with made-up numbers, and errors that resemble them.

use serde_json::{Value, json};

/// A body and its numbers: window, prompt limit, prompt, prompt and answer, excess.
pub(super) type Row = (u16, Value, [u32; 5]);

/// An error of the usual shape.
fn wrapped_error(message: &str) -> Value {
    json!({ "error": { "message": message, "type": "invalid_request_error", "param": null, "code": null } })
}

/// An error without a wrapper.
fn flat_error(message: &str) -> Value {
    json!({ "object": "error", "message": message, "type": "BadRequestError", "param": null, "code": 400 })
}

/// Overflows in the wording of each provider. A string is a body that is not JSON; a zero is a
/// number that is not in it.
pub(super) fn overflows() -> Vec<Row> {
    let text = |text: &str| Value::String(text.to_owned());
    let classic = "This model's maximum context length is 16000 tokens.";
    vec![
        // OpenAI and those with its wording.
        (
            400,
            wrapped_error(&format!(
                "{classic} However, your messages resulted in 17500 tokens. Please reduce the length of the messages."
            )),
            [16_000, 0, 17_500, 0, 0],
        ),
        (
            400,
            wrapped_error(&format!(
                "{classic} However, you requested 17500 tokens (15000 in the messages, 2500 in the completion). Please reduce the length of the messages or completion."
            )),
            [16_000, 0, 15_000, 17_500, 0],
        ),
        (
            400,
            wrapped_error(&format!(
                "{classic} However, you requested 17500 tokens (14000 in the messages, 900 in the functions, and 2600 in the completion)."
            )),
            [16_000, 0, 14_900, 17_500, 0],
        ),
        (
            400,
            flat_error(&format!(
                "{classic} However, you requested 17500 tokens (15000 in the messages, 2500 in the completion)."
            )),
            [16_000, 0, 15_000, 17_500, 0],
        ),
        (
            400,
            wrapped_error(
                "This model's maximum context length is 2048 tokens, however you requested 2600 tokens (2500 in your prompt; 100 for the completion). Please reduce your prompt; or completion length.",
            ),
            [2_048, 0, 2_500, 2_600, 0],
        ),
        (
            400,
            wrapped_error(
                "'max_tokens' or 'max_completion_tokens' is too large: 3000. This model's maximum context length is 4096 tokens and your request has 2000 input tokens (3000 > 4096 - 2000).",
            ),
            [4_096, 0, 2_000, 5_000, 0],
        ),
        (
            400,
            flat_error(
                "This model's maximum context length is 4096 tokens. However, you requested 100 output tokens and your prompt contains at least 3997 input tokens, for a total of at least 4097 tokens.",
            ),
            [4_096, 0, 0, 0, 0],
        ),
        (
            400,
            flat_error(
                "The decoder prompt (length 9000) is longer than the maximum model length of 8000. Make sure that `max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
            ),
            [8_000, 0, 9_000, 0, 0],
        ),
        (
            400,
            flat_error(
                "The prompt (total length 9000) is too long to fit into the model (context length 8000).",
            ),
            [8_000, 0, 9_000, 0, 0],
        ),
        (
            400,
            flat_error(
                "You passed 7000 input tokens and requested 2000 output tokens. However, the model's context length is only 8000 tokens, resulting in a maximum input length of 6000 tokens.",
            ),
            [8_000, 0, 7_000, 9_000, 0],
        ),
        (
            400,
            flat_error("max_tokens must be at least 1, got -512."),
            [0, 0, 0, 0, 512],
        ),
        (
            400,
            json!({ "error": { "message": "Your input exceeds the context window of this model. Please adjust your input and try again.", "code": "context_length_exceeded" } }),
            [0; 5],
        ),
        (
            400,
            text(
                "Input tokens exceed the configured limit of 250000 tokens. Your messages resulted in 260000 tokens. Please reduce the length of the messages.",
            ),
            [0, 250_000, 260_000, 0, 0],
        ),
        (
            400,
            wrapped_error(
                "This endpoint's maximum context length is 60000 tokens. However, you requested about 71000 tokens (50000 of text input, 9000 of tool input, 12000 in the output). Please reduce the length of either one.",
            ),
            [60_000, 0, 59_000, 71_000, 0],
        ),
        (
            400,
            wrapped_error(
                "This endpoint's maximum context length is 60000 tokens. However, you requested about 71000 tokens (71000 of text input).",
            ),
            [60_000, 0, 71_000, 71_000, 0],
        ),
        (
            400,
            wrapped_error(
                "This endpoint's maximum context length is 60000 tokens. However, you requested about 71000 tokens (61000 of text input, 10000 of tool input).",
            ),
            [60_000, 0, 71_000, 71_000, 0],
        ),
        (
            400,
            json!({ "error": { "code": 400, "message": "Provider returned error", "metadata": { "raw": "Input length 131393 exceeds the maximum allowed input length of 131,040 tokens." } } }),
            [0, 131_040, 131_393, 0, 0],
        ),
        // SGLang, also inside a success.
        (
            400,
            flat_error(
                "The input (9000 tokens) is longer than the model's context length (8000 tokens).",
            ),
            [8_000, 0, 9_000, 0, 0],
        ),
        (
            200,
            json!({ "error": flat_error("The input (9000 tokens) is longer than the model's context length (8000 tokens).") }),
            [8_000, 0, 9_000, 0, 0],
        ),
        (
            400,
            flat_error(
                "Requested token count exceeds the model's maximum context length of 8000 tokens. You requested a total of 9500 tokens: 9000 tokens from the input messages and 500 tokens for the completion.",
            ),
            [8_000, 0, 9_000, 9_500, 0],
        ),
        // llama.cpp, LM Studio, Ollama.
        (
            400,
            json!({ "error": { "code": 400, "message": "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 9_000, "n_ctx": 4_096 } }),
            [4_096, 0, 9_000, 0, 0],
        ),
        (
            500,
            json!({ "error": { "code": 500, "message": "Context size has been exceeded.", "type": "server_error" } }),
            [0; 5],
        ),
        (
            500,
            text("Requested tokens (2100) exceed context window of 2048"),
            [2_048, 0, 2_100, 0, 0],
        ),
        (
            400,
            text(
                "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
            ),
            [4_096, 0, 0, 0, 0],
        ),
        (
            400,
            text(
                "The number of tokens to keep from the initial prompt is greater than the context length (n_keep: 9000 >= n_ctx: 4096).",
            ),
            [4_096, 0, 0, 0, 0],
        ),
        (
            400,
            wrapped_error("prompt too long; exceeded max context length by 812 tokens (ref: 0)"),
            [0, 0, 0, 0, 812],
        ),
        // Anthropic, Bedrock, Gemini.
        (
            400,
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "prompt is too long: 203000 tokens > 200000 maximum" } }),
            [0, 200_000, 203_000, 0, 0],
        ),
        (
            400,
            json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "input length and `max_tokens` exceed context limit: 195000 + 8000 > 200000, decrease input length or `max_tokens` and try again" } }),
            [200_000, 0, 195_000, 203_000, 0],
        ),
        (
            400,
            json!({ "message": "Input is too long for requested model." }),
            [0; 5],
        ),
        (
            400,
            json!([{ "error": { "code": 400, "message": "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).", "status": "INVALID_ARGUMENT" } }]),
            [0, 1_048_576, 1_100_000, 0, 0],
        ),
        (
            400,
            wrapped_error(
                "Unable to submit request because the input token count is 33000 but the model only supports up to 32768. Reduce the input token count and try again.",
            ),
            [0, 32_768, 33_000, 0, 0],
        ),
        // The others.
        (
            422,
            text(
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 256 `max_new_tokens`",
            ),
            [4_096, 0, 5_000, 5_256, 0],
        ),
        (
            422,
            text("Input validation error: `inputs` must have less than 1024 tokens. Given: 2048"),
            [0, 1_024, 2_048, 0, 0],
        ),
        (
            400,
            text(
                "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
            ),
            [0, 131_072, 140_000, 0, 0],
        ),
        (
            400,
            json!({ "object": "error", "message": "Prompt contains 40015 tokens and 0 draft tokens, too large for model with 32768 maximum context length", "type": "invalid_request_error", "code": "3051" }),
            [32_768, 0, 40_015, 0, 0],
        ),
        (
            400,
            text(
                "Please reduce the length of the messages or completion. Current length is 9139 while limit is 8192",
            ),
            [8_192, 0, 9_139, 0, 0],
        ),
        (
            400,
            json!({ "error": { "message": "prompt token count of 70000 exceeds the limit of 64000", "code": "model_max_prompt_tokens_exceeded" } }),
            [0, 64_000, 70_000, 0, 0],
        ),
        (
            413,
            json!({ "error": { "code": "tokens_limit_reached", "message": "Request body too large for m model. Max size: 8000 tokens." } }),
            [0, 8_000, 0, 0, 0],
        ),
        (
            400,
            wrapped_error(
                "Invalid request: Your request exceeded model token limit: 8192 (requested: 9000)",
            ),
            [8_192, 0, 0, 9_000, 0],
        ),
        (
            400,
            wrapped_error("invalid params, context window exceeds limit (2013)"),
            [0; 5],
        ),
        (
            400,
            json!({ "error": { "code": "1261", "message": "Prompt 超长" } }),
            [0; 5],
        ),
        (
            400,
            json!({ "code": "InvalidParameter", "message": "Range of input length should be [1, 30720]" }),
            [0, 30_720, 0, 0, 0],
        ),
        (
            400,
            text("Input length 140000 exceeds the maximum length 131072."),
            [0, 131_072, 140_000, 0, 0],
        ),
        (
            400,
            json!({ "code": 20_015, "message": "length of prompt_tokens (40000) must be less than max_seq_len (32768).", "data": null }),
            [32_768, 0, 40_000, 0, 0],
        ),
        (
            400,
            json!({ "error": { "message": "The total length of all messages is too long.", "type": "too_many_prompt_tokens", "code": 400 } }),
            [0; 5],
        ),
        (
            400,
            json!({ "error_type": "TOO_MANY_TOKENS", "message": "too many tokens: size limit exceeded by 500 tokens. Try using shorter or fewer inputs. The limit for this model is 8000 tokens." }),
            [0, 8_000, 8_500, 0, 0],
        ),
        (
            400,
            json!({ "error": { "message": "litellm.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: too much", "code": "400" } }),
            [0; 5],
        ),
        (
            400,
            text("Input too long: 9000 input tokens, limit is 8000"),
            [0, 8_000, 9_000, 0, 0],
        ),
    ]
}

/// Errors with another cause.
pub(super) fn near_misses() -> Vec<(u16, Value)> {
    vec![
        (
            429,
            json!({ "error": { "message": "Request too large for m in organization o on tokens per min (TPM): Limit 30000, Requested 40000. The input or output tokens must be reduced in order to run successfully.", "type": "tokens", "code": "rate_limit_exceeded" } }),
        ),
        (
            413,
            json!({ "error": { "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce your message size and try again.", "type": "tokens", "code": "rate_limit_exceeded" } }),
        ),
        (
            400,
            json!({ "__type": "ThrottlingException", "message": "Too many tokens, please wait before trying again." }),
        ),
        (
            429,
            wrapped_error(
                "This request would exceed your organization's rate limit of 30,000 input tokens per minute; the prompt is too long.",
            ),
        ),
        (
            429,
            json!({ "error": { "code": 429, "message": "You exceeded your current quota: input_token_count, limit: 1000000", "status": "RESOURCE_EXHAUSTED" } }),
        ),
        (
            402,
            wrapped_error("Prompt tokens limit exceeded: 12000 > 5000. To increase, add credits."),
        ),
        (
            402,
            wrapped_error(
                "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 2666.",
            ),
        ),
        (
            403,
            wrapped_error("exceeded current quota, please check your plan"),
        ),
        (
            400,
            wrapped_error(
                "max_tokens is too large: 300000. This model supports at most 128000 completion tokens, whereas you provided 300000.",
            ),
        ),
        (
            400,
            wrapped_error(
                "max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for m",
            ),
        ),
        (
            400,
            wrapped_error("max_tokens for `m` must be less than or equal to 8000"),
        ),
        (
            400,
            wrapped_error(
                "The maximum tokens you requested exceeds the model limit of 4096. Try again with a maximum tokens value that is lower than 4096.",
            ),
        ),
        (
            422,
            Value::String(
                "Input validation error: `max_new_tokens` must be <= 4096. Given: 8192".into(),
            ),
        ),
        (400, flat_error("max_tokens must be at least 1, got 0.")),
        (400, flat_error("max_tokens must be at least 1, got -1.")),
        (
            400,
            json!({ "error": { "message": "Invalid 'messages[0].content': string too long. Expected a string with maximum length 10485760, but got a string with length 11000000 instead.", "code": "string_above_max_length" } }),
        ),
        (
            400,
            json!({ "error": { "message": "Invalid 'messages': array too long. Expected an array with maximum length 2048.", "code": "array_above_max_length" } }),
        ),
        (
            400,
            wrapped_error("Range of max_tokens should be [1, 8192]"),
        ),
        (
            500,
            wrapped_error(
                "input (700 tokens) is too large to process. increase the physical batch size (current batch size: 512)",
            ),
        ),
        (
            413,
            json!({ "error": { "type": "request_too_large", "message": "Request exceeds the maximum size" } }),
        ),
        (413, wrapped_error("failed to parse request")),
        (
            400,
            wrapped_error(
                "Unsupported value: 'messages[0].role' does not support 'developer' with this model.",
            ),
        ),
        (
            400,
            json!({ "error": { "code": "tool_use_failed", "message": "Tool call validation failed", "failed_generation": "This model's maximum context length is 8 tokens" } }),
        ),
        (
            404,
            wrapped_error("This model's maximum context length is 16000 tokens."),
        ),
    ]
}
