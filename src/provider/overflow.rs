//! Whether a provider's error says that a conversation is too long, and which numbers it names.

use http::StatusCode;

/// What an error says of a conversation that is too long; all in tokens, as the provider counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// The window: prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt, where the error names a limit of the prompt alone.
    pub prompt_limit: Option<u32>,
    /// The prompt that was refused.
    pub prompt_tokens: Option<u32>,
    /// Prompt and answer together, as asked for.
    pub requested: Option<u32>,
}

/// What an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not about the length of the conversation.
    Other,
    Overflow(Overflow),
    /// Says nothing at all, as some providers do then: an overflow only if the request was long.
    Wordless,
}

/// Judges an answer that is an error, by its status and its body, decoded.
pub fn judge(status: StatusCode, body: &[u8]) -> Verdict {
    let _ = (status, body);
    Verdict::Other
}

/// Judges the data of the first event of a stream that began as a success.
pub fn judge_event(data: &[u8]) -> Verdict {
    let _ = data;
    Verdict::Other
}
