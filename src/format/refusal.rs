//! Words by which an error message is told apart from a repeated request or an answer.

/// What introduces a part of the request that an error repeats. Case matters. The text after it is
/// not the provider's.
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
