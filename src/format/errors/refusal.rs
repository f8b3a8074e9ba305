//! Words that identify the kind of an error, and words that separate an error message from the part of the request that
//! it repeats.

/// Words that introduce a part of the request that an error repeats. Case matters. The text after such a word is not the
/// provider's.
pub const REQUEST_ECHOES: &[&str] = &[
    "input_value",
    "'input':",
    "\"input\":",
    "'prompt':",
    "\"prompt\":",
    "'content':",
    "\"content\":",
    "'role':",
    "\"role\":",
    "'messages':",
    "\"messages\":",
    "[\"",
    "messages=[",
    "Invalid value: '",
    "but got '",
    "Received: ",
    "request body:",
];

/// Words of chat template errors, which may be about an injected message or tool.
pub const CHAT_TEMPLATE_WORDS: &[&str] = &["template", "role", "tool"];

/// A member that only answers have.
pub const ANSWER_MEMBER: &str = "choices";

/// How Anthropic's API begins to refuse a block of thinking, and OpenAI's an item of reasoning, in lower case and without
/// quotes.
pub const REFUSED_THINKING: &[&str] = &[
    "invalid signature in thinking block",
    "invalid signature in redacted_thinking block",
    "invalid data in redacted_thinking block",
    "invalid signature in connector_text block",
    "the encrypted content for item",
];

/// What the same error says if the block itself is unchanged, but something before it was changed.
pub const CHANGED_BEFORE_THINKING: &[&str] = &[
    "bound to a different",
    "mismatch_behavior",
    "preceded this one when it was created",
    "preceded this block when it was created",
    "differs from when it was created",
    "differs from when the block was created",
    "differs from the one this block was created with",
];

/// How Anthropic's API refuses a running turn whose thinking is not as it was made, in lower case and without quotes.
/// With `thinking.type: "enabled"` the turn begins with thinking; a sequence of thinking may not be altered.
pub const BROKEN_TURN: &[&str] = &[
    "expected thinking or redacted_thinking, but found",
    "blocks in the latest assistant message cannot be modified",
];

/// How DeepSeek and Kimi refuse an answer that lacks its reasoning, in lower case and without quotes.
pub const MISSING_REASONING: &[&str] = &[
    "in the thinking mode must be passed back",
    "requires reasoning_content on every assistant message",
    "reasoning_content is missing in assistant",
];

/// How OpenAI refuses reasoning whose following item is missing, and an item whose reasoning is missing.
pub const UNPAIRED_REASONING: &[&str] = &[
    "of type reasoning was provided without its required following item",
    "was provided without its required reasoning item",
];
