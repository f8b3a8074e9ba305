//! Whether a provider's error says that a conversation is too long, and which numbers it names.

use http::StatusCode;

use crate::wire::fault::Fault;

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

/// The error of an overflow as OpenAI words it. Unknown numbers are left out.
pub fn classic(window: Option<u32>, prompt_tokens: Option<u32>) -> Fault {
    let mut message = match window {
        Some(window) => format!("This model's maximum context length is {window} tokens. "),
        None => "This conversation is longer than this model's maximum context length. ".to_owned(),
    };
    if let Some(tokens) = prompt_tokens {
        message += &format!("However, your messages resulted in {tokens} tokens. ");
    }
    message += "Please reduce the length of the messages.";
    Fault {
        message,
        kind: Some("invalid_request_error".to_owned()),
        param: Some("messages".to_owned()),
        code: Some("context_length_exceeded".to_owned()),
    }
}
