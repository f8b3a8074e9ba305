//! What a refusal may hold of a request or an answer, whatever their format.

/// Beginnings of what an error repeats of the request. Compared as they are written; what follows
/// is not the provider's.
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

/// Words of an error of a chat template, which may be about an added message or tool.
pub const CHAT_TEMPLATE_WORDS: &[&str] = &["template", "role", "tool"];

/// The member of a body that only answers have.
pub const ANSWER_MEMBER: &str = "choices";
