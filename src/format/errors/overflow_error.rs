//! Writes overflow errors in the words that the clients of a format look for, and recognises these words.

use crate::{conversation::Format, format::errors::error_body::ErrorBody};

/// The code of an overflow at OpenAI.
const CHAT_CODE: &str = "context_length_exceeded";

/// OpenAI's message for an overflow in Responses. It has no numbers.
const RESPONSES_WORDS: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

/// The beginning of Anthropic's message for an overflow. Claude Code compacts when it reads these words.
const MESSAGES_WORDS: &str = "prompt is too long";

impl Format {
    /// Returns the error of a 400 from which clients recover by themselves. Unknown numbers are left out.
    pub fn overflow_error(self, window: Option<u32>, prompt_tokens: Option<u32>) -> ErrorBody {
        let (message, param) = match self {
            Self::Chat => (chat_message(window, prompt_tokens), Some("messages".into())),
            Self::Messages => (messages_message(window, prompt_tokens), None),
            Self::Responses => (RESPONSES_WORDS.to_owned(), Some("input".into())),
            #[cfg(test)]
            Self::Toy => (chat_message(window, prompt_tokens), None),
        };
        ErrorBody {
            message,
            kind: Some("invalid_request_error".into()),
            param,
            code: Some(CHAT_CODE.into()),
        }
    }

    /// Whether an error already has the words that clients look for, so that it can stay as it came.
    pub fn is_overflow_error(self, error: &ErrorBody) -> bool {
        match self {
            Self::Chat => {
                error.code.as_deref() == Some(CHAT_CODE)
                    && error.message.contains("maximum context length")
            }
            Self::Messages => {
                error.kind.as_deref() == Some("invalid_request_error")
                    && error.message.starts_with(MESSAGES_WORDS)
            }
            // Its clients look for the code alone.
            Self::Responses => error.code.as_deref() == Some(CHAT_CODE),
            #[cfg(test)]
            Self::Toy => error.code.as_deref() == Some(CHAT_CODE),
        }
    }
}

fn chat_message(window: Option<u32>, prompt_tokens: Option<u32>) -> String {
    let limit = "This model's maximum context length is";
    let what = match (window, prompt_tokens) {
        (Some(window), prompt) => {
            let sent = match prompt {
                Some(prompt) if prompt > window => format!("{prompt} tokens"),
                Some(prompt) => {
                    format!("{prompt} tokens, which leaves too little room for the completion")
                }
                None => "more than it can take".to_owned(),
            };
            format!("{limit} {window} tokens. However, your messages resulted in {sent}.")
        }
        (None, Some(prompt)) => {
            format!("{limit} exceeded. Your messages resulted in {prompt} tokens.")
        }
        (None, None) => format!("{limit} exceeded by your messages."),
    };
    format!("{what} Please reduce the length of the messages.")
}

fn messages_message(window: Option<u32>, prompt_tokens: Option<u32>) -> String {
    match window.zip(prompt_tokens) {
        Some((window, prompt)) if prompt > window => {
            format!("{MESSAGES_WORDS}: {prompt} tokens > {window} maximum")
        }
        // With other numbers the sentence would contradict itself.
        _ => MESSAGES_WORDS.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::format::errors::overflow_error::Format;

    #[test]
    fn what_is_written_is_recognised() {
        for format in [Format::Chat, Format::Messages, Format::Responses] {
            for window in [None, Some(8_192)] {
                for prompt in [None, Some(100), Some(10_000)] {
                    assert!(format.is_overflow_error(&format.overflow_error(window, prompt)));
                }
            }
        }
    }

    #[test]
    fn numbers_of_an_overflow_are_in_the_words_of_messages() {
        let message = |window, prompt| Format::Messages.overflow_error(window, prompt).message;
        let full = "prompt is too long: 210000 tokens > 200000 maximum";
        assert_eq!(message(Some(200_000), Some(210_000)), full);
        assert_eq!(message(Some(200_000), Some(190_000)), "prompt is too long");
        assert_eq!(message(None, Some(210_000)), "prompt is too long");
    }
}
