//! Whether a provider's error says that a conversation is too long, and which numbers it names.
//!
//! There are as many ways to say so as there are providers, so wordings are rows of a table
//! (`wording.rs`), and this file only decides which of them may speak: structured codes before
//! sentences, the outer error before those it quotes. Words of a rate limit, a quota or one text
//! that is too long silence the rest. Only fields that hold the provider's own words are read,
//! never a request that an error repeats: a prompt may contain any sentence of the table.
//!
//! Never panics, whatever the body; reads 64 KiB of it at most, in linear time.

mod error_body;
mod spelling;
mod template;
mod wording;

use http::StatusCode;

use self::{
    error_body::{ErrorTextKind, ParsedError},
    wording::{CODES, FIGURES, SURE, VAGUE, VETOES, WORDLESS},
};
use crate::format::error_body::ErrorBody;

/// What an error says of a conversation that is too long; all in tokens, as the provider counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// The window: prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt, where the error names a limit of the prompt alone.
    pub prompt_limit: Option<u32>,
    /// The prompt that was refused.
    pub prompt_tokens: Option<u32>,
    /// The answer that was asked for.
    pub answer: Option<u32>,
    /// Prompt and answer together, as asked for.
    pub requested: Option<u32>,
    /// By how much the prompt was too long, where that is all the error says.
    pub excess: Option<u32>,
}

impl Overflow {
    /// What the table of wordings calls so.
    fn figure_mut(&mut self, name: &str) -> Option<&mut Option<u32>> {
        match name {
            "window" => Some(&mut self.window),
            "limit" => Some(&mut self.prompt_limit),
            "prompt" => Some(&mut self.prompt_tokens),
            "answer" => Some(&mut self.answer),
            "requested" => Some(&mut self.requested),
            "excess" => Some(&mut self.excess),
            _ => None,
        }
    }

    /// The answer that was asked for, also where it is what all leaves beside the prompt.
    pub(super) fn asked_answer(&self) -> Option<u32> {
        let rest = self.requested.zip(self.prompt_tokens);
        let rest = rest.map(|(requested, prompt)| requested.saturating_sub(prompt));
        self.answer.or(rest)
    }

    /// The answer that was asked for fills the window by itself: no cut of the prompt can help.
    pub fn is_filled_by_answer(&self) -> bool {
        let sizes = self.asked_answer().zip(self.window);
        sizes.is_some_and(|(answer, window)| answer >= window)
    }
}

/// What an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowVerdict {
    /// Not about the length of the conversation.
    Other,
    Overflow(Overflow),
    /// Says nothing at all, as some providers do then: an overflow only if the request was long.
    Wordless,
}

/// Which wordings are believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    All,
    /// Codes, and sentences that mean nothing else.
    Sure,
    None,
}

/// Judges an answer that is an error, by its status and its body, decoded.
///
/// A body with status 200 is taken for an error where it has an `error` and no `choices`.
pub fn detect_overflow(status: StatusCode, body: &[u8]) -> OverflowVerdict {
    let gate = choose_gate(status);
    if gate == Gate::None {
        return OverflowVerdict::Other;
    }
    let reading = ParsedError::from_body(body);
    let success = status.is_success();
    if reading.empty {
        // A success without a body is how some engines answer a streamed request that is too long.
        return if is_refusal(status) || (success && body.trim_ascii().is_empty()) {
            OverflowVerdict::Wordless
        } else {
            OverflowVerdict::Other
        };
    }
    if success && (!reading.error || reading.choices) {
        return OverflowVerdict::Other;
    }
    match decide_verdict(&reading, gate) {
        OverflowVerdict::Wordless if !is_refusal(status) => OverflowVerdict::Other,
        verdict => verdict,
    }
}

/// Judges the data of the first event of a stream that began as a success.
pub fn detect_overflow_in_event(data: &[u8]) -> OverflowVerdict {
    let reading = ParsedError::from_body(data);
    if !reading.is_error_event() {
        return OverflowVerdict::Other;
    }
    match decide_verdict(&reading, Gate::All) {
        OverflowVerdict::Wordless => OverflowVerdict::Other,
        verdict => verdict,
    }
}

/// The 400 that every client knows, and that its own recovery looks for. `window` and
/// `prompt_tokens` are in tokens; what is not known is not said.
pub fn make_overflow_fault(window: Option<u32>, prompt_tokens: Option<u32>) -> ErrorBody {
    let what = match (window, prompt_tokens) {
        (Some(window), prompt) => {
            let sent = match prompt {
                Some(prompt) if prompt > window => format!("{prompt} tokens"),
                Some(prompt) => {
                    format!("{prompt} tokens, which leaves too little room for the completion")
                }
                None => "more than it can take".to_owned(),
            };
            format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted \
                 in {sent}."
            )
        }
        (None, Some(prompt)) => format!(
            "This model's maximum context length is exceeded. Your messages resulted in {prompt} \
             tokens."
        ),
        (None, None) => {
            "This model's maximum context length is exceeded by your messages.".to_owned()
        }
    };
    ErrorBody {
        message: format!("{what} Please reduce the length of the messages."),
        kind: Some("invalid_request_error".into()),
        param: Some("messages".into()),
        code: Some("context_length_exceeded".into()),
    }
}

/// A 429 or a failure of the server is seldom an overflow, and only if it says so plainly. Other
/// statuses are about keys, money and paths.
fn choose_gate(status: StatusCode) -> Gate {
    match status.as_u16() {
        200 | 400 | 413 | 422 => Gate::All,
        429 | 500..=599 => Gate::Sure,
        _ => Gate::None,
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 413)
}

/// The outermost error that is about the length, or about something that only sounds like it.
fn decide_verdict(reading: &ParsedError, gate: Gate) -> OverflowVerdict {
    for said in &reading.texts {
        let hit = |rows: &[&str]| rows.iter().any(|row| template::is_in_text(row, &said.text));
        if hit(VETOES) {
            return OverflowVerdict::Other;
        }
        let overflow = match said.kind {
            ErrorTextKind::Code => CODES.contains(&&*said.text),
            ErrorTextKind::Sentence => hit(SURE) || gate == Gate::All && hit(VAGUE),
        };
        if overflow {
            return OverflowVerdict::Overflow(collect_figures(reading));
        }
        if said.kind == ErrorTextKind::Sentence && WORDLESS.contains(&&*said.text) {
            return OverflowVerdict::Wordless;
        }
    }
    OverflowVerdict::Other
}

/// The numbers of an overflow. Fields count before sentences, outer ones before those they quote.
fn collect_figures(reading: &ParsedError) -> Overflow {
    let mut found = Overflow {
        window: reading.n_ctx,
        prompt_tokens: reading.n_prompt_tokens,
        ..Overflow::default()
    };
    let sentences = reading.texts.iter();
    for said in sentences.filter(|said| said.kind == ErrorTextKind::Sentence) {
        for row in [FIGURES, SURE, VAGUE].into_iter().flatten() {
            template::read_numbers(row, &said.text, &mut found);
        }
    }
    // Prompts come in parts (text, tools, functions); what is left of the whole is all of them.
    let rest = found
        .requested
        .zip(found.answer)
        .and_then(|(all, answer)| all.checked_sub(answer));
    let over = found
        .prompt_limit
        .zip(found.excess)
        .and_then(|(limit, excess)| limit.checked_add(excess));
    found.prompt_tokens = rest.or(found.prompt_tokens).or(over);
    if let Some(prompt) = found.prompt_tokens {
        let whole = found.answer.and_then(|answer| prompt.checked_add(answer));
        found.requested = found.requested.or(whole);
        found.excess = None;
    }
    found
}

#[cfg(test)]
mod tests;
