//! Detects a context overflow in a provider's error, and reads its numbers.
//!
//! Every provider has its own wording, so the wordings are rows of a table (`wording.rs`), and this file
//! decides which of them count: codes before sentences, the outer error before those that it quotes.
//! Wordings of a rate limit, a quota or a single long text rule an overflow out. Only fields with the
//! provider's own text are read, never a request that an error repeats: a prompt may contain any
//! sentence of the table.
//!
//! Never panics; reads 64 KiB of a body at most, in linear time.

mod error_body;
mod spelling;
mod template;
mod wording;

use http::StatusCode;
use memchr::memmem;

use self::{
    error_body::{ErrorText, ErrorTextKind, ParsedError},
    wording::{CODES, FIGURES, REQUEST_LIMITS, SURE, VAGUE, VETOES, WORDLESS},
};
use crate::format::other_kinds::{
    BEGINNINGS, DECIDING_CODES, OTHER_CODES, OTHER_KINDS, OVERLOADS, STATUS_OF_CODES,
};

/// Characters of an unknown wording that are kept.
const MAX_WORDING_CHARS: usize = 300;
/// Bytes of it in a row that stand in the request, and so may be a text of the conversation.
const LEAST_REPEATED: usize = 16;
/// What is named so, with `=` or `:`, is not shown.
const SECRET_NAMES: [&str; 4] = ["key", "token", "password", "secret"];
/// Letters and digits in a row that may be a key.
const LEAST_MIXED: usize = 8;
/// Letters in a row that are no word.
const LONGEST_WORD: usize = 20;
/// Digits in a row that are no number of tokens or bytes.
const MOST_DIGITS: usize = 9;

/// The numbers of an overflow, in tokens by the provider's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overflow {
    /// The window: prompt and answer together.
    pub window: Option<u32>,
    /// The largest prompt, where the error names a limit of the prompt alone.
    pub prompt_limit: Option<u32>,
    /// The refused prompt.
    pub prompt_tokens: Option<u32>,
    /// The requested answer.
    pub answer: Option<u32>,
    /// The refused prompt and the requested answer together.
    pub requested: Option<u32>,
    /// The prompt less its limit, where the error names neither.
    pub excess: Option<u32>,
}

impl Overflow {
    /// The number by its name in the table of wordings.
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

    /// The requested answer, named or as the rest of `requested`.
    pub(super) fn asked_answer(&self) -> Option<u32> {
        let rest = || Some(self.requested?.saturating_sub(self.prompt_tokens?));
        self.answer.or_else(rest)
    }

    /// The requested answer fills the window by itself: cutting the prompt does not help.
    pub fn is_filled_by_answer(&self) -> bool {
        let sizes = self.asked_answer().zip(self.window);
        sizes.is_some_and(|(answer, window)| answer >= window)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowVerdict {
    /// Not about the length of the conversation.
    Other,
    Overflow(Overflow),
    /// Without any text, as some providers refuse: an overflow only if the request was long.
    WithoutReason,
}

/// Sentences that are believed; where any are, all codes are.
type Sentences = &'static [&'static [&'static str]];

/// Judges an answer by its status and its decoded body.
///
/// A body with status 200 is an error where it has an `error` and no `choices`.
pub fn detect_overflow(status: StatusCode, body: &[u8]) -> OverflowVerdict {
    let Some(sentences) = believed_sentences(status) else {
        return OverflowVerdict::Other;
    };
    let error = ParsedError::from_body(body);
    let is_refusal = matches!(status.as_u16(), 400 | 413);
    if error.empty {
        // Some engines answer an overlong streamed request with an empty success.
        let is_empty_success = status.is_success() && body.trim_ascii().is_empty();
        return if is_refusal || is_empty_success {
            OverflowVerdict::WithoutReason
        } else {
            OverflowVerdict::Other
        };
    }
    if status.is_success() && (!error.error || error.choices) {
        return OverflowVerdict::Other;
    }
    match decide_verdict(&error, sentences) {
        OverflowVerdict::WithoutReason if !is_refusal => OverflowVerdict::Other,
        verdict => verdict,
    }
}

/// Judges the data of the first event of a stream that began as a success.
pub fn detect_overflow_in_event(data: &[u8]) -> OverflowVerdict {
    let error = ParsedError::from_body(data);
    if !error.is_error() {
        return OverflowVerdict::Other;
    }
    match decide_verdict(&error, &[SURE, VAGUE]) {
        OverflowVerdict::WithoutReason => OverflowVerdict::Other,
        verdict => verdict,
    }
}

/// The words of a refusal of which no table knows what it is about, in the spelling of the tables, so that it may be about
/// the length of the conversation. `None` where the kind is known, or where the error is no refusal of the request. With
/// status 200, `body` may be the data of an event.
pub fn read_unknown_wording(status: StatusCode, body: &[u8]) -> Option<String> {
    let error = ParsedError::from_body(body);
    let is_refusal = match status.as_u16() {
        200 => error.is_error(),
        status => matches!(status, 400 | 413 | 422),
    };
    if !is_refusal || error.empty || error.names_part || error.texts.iter().any(is_of_known_kind) {
        return None;
    }
    let words = error.texts.iter().map(|text| &*text.text);
    let words = words.collect::<Vec<_>>().join("; ");
    Some(words.chars().take(MAX_WORDING_CHARS).collect()).filter(|it: &String| !it.is_empty())
}

/// A wording as the log may show it: without what it repeats of the request, and without what may be a key, an account or an
/// address.
///
/// SECURITY: the log holds no text of a conversation, and no key. Some gateways repeat the credentials of a request.
pub(super) fn hide_private(wording: &str, request: &[u8]) -> String {
    let (repeated, mut shown) = (hide_repeated(wording, request), String::new());
    let mut names_secret = false;
    let is_of_value = |it: char| it.is_ascii_graphic() && !"\"'`()[]{}<>,;".contains(it);
    let mut rest = &*repeated;
    while !rest.is_empty() {
        let end = rest.find(|it| !is_of_value(it)).unwrap_or(rest.len());
        let (value, after) = rest.split_at(end);
        let hides = !value.is_empty() && (names_secret || may_be_private(value));
        shown.push_str(if hides { "…" } else { value });
        if !value.is_empty() {
            let name = value.strip_suffix([':', '=']);
            names_secret = matches!(value, "bearer" | "basic") || name.is_some_and(is_secret_name);
        }
        let next = after.find(is_of_value).unwrap_or(after.len());
        shown.push_str(&after[..next]);
        rest = &after[next..];
    }
    shown
}

/// Whether a run of letters, digits and marks is neither a word, nor a code of words, nor a number of tokens.
fn may_be_private(value: &str) -> bool {
    let mut words = value.split(|it: char| !it.is_ascii_alphanumeric());
    let has = |is: fn(&u8) -> bool| value.as_bytes().iter().any(is);
    let (has_letter, has_digit) = (has(u8::is_ascii_alphabetic), has(u8::is_ascii_digit));
    let is_mixed = has_letter && has_digit && value.len() >= LEAST_MIXED;
    let is_number = has_digit && !has_letter && value.len() > MOST_DIGITS;
    let is_address = value.contains('@') || has_digit && value.matches('.').count() >= 3;
    let named = value.split_once([':', '=']);
    let is_named = named.is_some_and(|(name, secret)| is_secret_name(name) && !secret.is_empty());
    is_address || is_named || is_mixed || is_number || words.any(|word| word.len() > LONGEST_WORD)
}

fn is_secret_name(name: &str) -> bool {
    SECRET_NAMES.iter().any(|it| name.ends_with(it))
}

/// Without what a wording repeats of the request: each row of [`LEAST_REPEATED`] bytes that stands there, too.
fn hide_repeated(wording: &str, request: &[u8]) -> String {
    let request = request.to_ascii_lowercase();
    let (mut shown, mut rest) = (String::new(), wording);
    while let Some(first) = rest.chars().next() {
        let end = (LEAST_REPEATED..rest.len()).find(|&end| rest.is_char_boundary(end));
        let (row, after) = rest.split_at(end.unwrap_or(rest.len()));
        if row.len() >= LEAST_REPEATED && memmem::find(&request, row.as_bytes()).is_some() {
            shown.push('…');
            rest = after;
        } else {
            shown.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shown
}

/// Whether a table knows what an error with this text is about.
fn is_of_known_kind(ErrorText { kind, text, .. }: &ErrorText) -> bool {
    let has_any = |rows: &[&str]| rows.iter().any(|row| template::is_in_text(row, text));
    let is_known = match kind {
        ErrorTextKind::Code => {
            let status = status_of_code(text);
            OTHER_CODES.iter().any(|code| text.contains(code))
                || status.is_some_and(|it| !matches!(it, 400 | 413 | 422))
        }
        ErrorTextKind::Sentence => {
            has_any(OTHER_KINDS) || BEGINNINGS.iter().any(|it| text.starts_with(it))
        }
    };
    is_known || has_any(VETOES)
}

/// The status that a code means: its own number, or that of its kind.
fn status_of_code(code: &str) -> Option<u16> {
    let number = code.parse().ok().filter(|it| (400..600).contains(it));
    let mut kinds = STATUS_OF_CODES.iter();
    number.or_else(|| Some(kinds.find(|(kind, _)| *kind == code)?.1))
}

/// The status of an error inside a success: a whole body, or the data of an event. `None` where it is no error. Its code or
/// kind says it, else its words; without any it is a failure of the provider.
pub fn read_inner_status(body: &[u8]) -> Option<StatusCode> {
    let error = ParsedError::from_body(body);
    if !error.is_error() {
        return None;
    }
    let of_texts = |kind: ErrorTextKind| error.texts.iter().filter(move |it| it.kind == kind);
    let mut codes = of_texts(ErrorTextKind::Code);
    let by_code = codes.find_map(|code| status_of_code(&code.text));
    let is_in = |rows: &[&str], text: &str| rows.iter().any(|row| template::is_in_text(row, text));
    let by_words = || {
        let kind = of_texts(ErrorTextKind::Sentence).find_map(|it| match &*it.text {
            text if is_in(OVERLOADS, text) => Some(529),
            text if is_in(VETOES, text) => Some(429),
            text if is_in(OTHER_KINDS, text) => Some(400),
            _ => None,
        });
        let refuses = || of_texts(ErrorTextKind::Code).any(|it| it.text.starts_with("invalid"));
        kind.or_else(|| refuses().then_some(400))
    };
    let status = by_code.or_else(by_words).unwrap_or(502);
    Some(StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY))
}

/// The limit of tokens a minute that a single request is beyond, with the size of the request if the error tells it. It is
/// no window: a smaller request may be answered, and the same one never is.
pub fn read_request_limit(status: StatusCode, body: &[u8]) -> Option<Overflow> {
    if !matches!(status.as_u16(), 200 | 400 | 413 | 429) {
        return None;
    }
    let error = ParsedError::from_body(body);
    if status == StatusCode::OK && !error.is_error() {
        return None;
    }
    error.texts.iter().find_map(|ErrorText { kind, text, .. }| {
        let mut found = Overflow::default();
        if *kind == ErrorTextKind::Sentence && text.contains("token") {
            let rows = REQUEST_LIMITS.iter();
            rows.for_each(|row| template::read_numbers(row, text, &mut found));
        }
        let is_alone = found.requested > found.window && found.window.is_some();
        (is_alone || found.prompt_limit.is_some()).then_some(found)
    })
}

/// The sentences of an error, lower case and without quotes, the outermost first. None in a `body` that is an answer.
pub(super) fn read_error_sentences(body: &[u8]) -> impl Iterator<Item = String> {
    let error = ParsedError::from_body(body);
    let texts = if error.choices {
        Vec::new()
    } else {
        error.texts
    };
    let sentences = texts.into_iter();
    let sentences = sentences.filter(|text| text.kind == ErrorTextKind::Sentence);
    sentences.map(|sentence| sentence.text)
}

/// A 429 or a 5xx is an overflow only by an unambiguous sentence. Other statuses are about keys, money
/// and paths.
fn believed_sentences(status: StatusCode) -> Option<Sentences> {
    match status.as_u16() {
        200 | 400 | 413 | 422 => Some(&[SURE, VAGUE]),
        429 | 500..=599 => Some(&[SURE]),
        _ => None,
    }
}

/// Whether an error has a code that begins so, however deep.
pub(super) fn has_code(body: &[u8], code: &str) -> bool {
    ParsedError::from_body(body).has_code_of(&[code])
}

/// A code that is about something else decides, then the outermost text of the tables.
fn decide_verdict(error: &ParsedError, sentences: Sentences) -> OverflowVerdict {
    if error.has_code_of(DECIDING_CODES) {
        return OverflowVerdict::Other;
    }
    for ErrorText { kind, text, .. } in &error.texts {
        let matches = |rows: &&[&str]| rows.iter().any(|row| template::is_in_text(row, text));
        let is_sentence = *kind == ErrorTextKind::Sentence;
        if matches(&VETOES) {
            return OverflowVerdict::Other;
        }
        let is_overflow = if is_sentence {
            sentences.iter().any(matches)
        } else {
            CODES.contains(&&**text)
        };
        if is_overflow {
            return OverflowVerdict::Overflow(collect_figures(error));
        }
        if is_sentence && WORDLESS.contains(&&**text) {
            return OverflowVerdict::WithoutReason;
        }
    }
    OverflowVerdict::Other
}

/// The numbers of an overflow. Fields count before sentences, outer ones before those they quote.
fn collect_figures(error: &ParsedError) -> Overflow {
    let mut found = Overflow {
        window: error.n_ctx,
        prompt_tokens: error.n_prompt_tokens,
        ..Overflow::default()
    };
    let texts = error.texts.iter();
    for sentence in texts.filter(|text| text.kind == ErrorTextKind::Sentence) {
        for row in [FIGURES, SURE, VAGUE].into_iter().flatten() {
            template::read_numbers(row, &sentence.text, &mut found);
        }
    }
    // A prompt may be named in parts (text, tools, functions); the rest of the whole is their sum.
    let rest = || found.requested?.checked_sub(found.answer?);
    let over = || found.prompt_limit?.checked_add(found.excess?);
    found.prompt_tokens = rest().or(found.prompt_tokens).or_else(over);
    if let Some(prompt) = found.prompt_tokens {
        let whole = found.answer.and_then(|answer| prompt.checked_add(answer));
        found.requested = found.requested.or(whole);
        found.excess = None;
    }
    found
}

#[cfg(test)]
mod tests;
