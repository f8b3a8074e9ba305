//! Parses the codes and sentences of a provider's error, in any shape of its body.
//!
//! Only fields that hold a provider's own text are read; all others, such as the `input` that validators
//! repeat, are skipped. Everything before the point where a body breaks off, or is cut off at the limit,
//! counts. JSON inside a text is read like the rest.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::spelling::{begins_json, normalize_text};
use crate::format::{
    other_kinds::WHOLE_PARAMS,
    refusal::{ANSWER_MEMBER, REQUEST_ECHOES},
};

/// Of a body.
const MAX_BYTES: usize = 64 * 1024;
/// Codes and sentences.
const MAX_TEXTS: usize = 32;
/// Errors inside errors.
const MAX_DEPTH: u8 = 12;
/// JSON inside texts.
const MAX_QUOTED: u8 = 3;

/// Names of fields that hold codes, separated by spaces.
const CODE_FIELDS: &str = "code type error_type error_code status reason __type";
/// The same of fields that hold sentences or inner errors.
const TEXT_FIELDS: &str = "error errors message msg detail details \
    error_message error_description error_msg errormessage \
    status_msg base_resp innererror inner_error cause";
/// The same, but only inside an error: elsewhere these names may belong to the request.
const INNER_FIELDS: &str = "metadata raw previous_errors";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorTextKind {
    Code,
    Sentence,
}

/// A code or a sentence, in the spelling of the table of wordings.
#[derive(Debug)]
pub(super) struct ErrorText {
    depth: u8,
    pub(super) kind: ErrorTextKind,
    pub(super) text: String,
}

#[derive(Debug, Default)]
pub(super) struct ParsedError {
    /// The outermost first, codes before sentences.
    pub(super) texts: Vec<ErrorText>,
    pub(super) n_ctx: Option<u32>,
    pub(super) n_prompt_tokens: Option<u32>,
    /// The body has an `error`.
    pub(super) error: bool,
    /// The body has `choices`.
    pub(super) choices: bool,
    /// It names the one part of the request that is wrong, and that is not the conversation as a whole.
    pub(super) names_part: bool,
    /// The `type` or `object` of the body is an error.
    named_error: bool,
    has_code: bool,
    has_message: bool,
    /// The body is blank, or an empty JSON value.
    pub(super) empty: bool,
    /// The depth of JSON inside texts.
    quoted: u8,
}

impl ParsedError {
    pub(super) fn from_body(body: &[u8]) -> Self {
        let body = body.trim_ascii();
        let body = &body[..body.len().min(MAX_BYTES)];
        let mut parsed = Self {
            empty: matches!(body, b"" | b"{}" | b"[]" | b"null" | b"\"\""),
            ..Self::default()
        };
        if begins_json(body) || body.starts_with(b"\"") {
            parsed.walk_json(body, ErrorLocation::Body, 0);
        } else {
            parsed.add_sentence(&String::from_utf8_lossy(body), 0);
        }
        parsed.texts.sort_by_key(|text| (text.depth, text.kind));
        parsed
    }

    /// The body, or the data of an event, is an error.
    pub(super) const fn is_error(&self) -> bool {
        self.error || self.named_error || (self.has_code && self.has_message && !self.choices)
    }

    /// Whether a code, however deep, begins with one of these.
    pub(super) fn has_code_of(&self, beginnings: &[&str]) -> bool {
        let mut codes = self.texts.iter();
        codes.any(|it| {
            it.kind == ErrorTextKind::Code
                && beginnings.iter().any(|code| it.text.starts_with(code))
        })
    }

    /// Walks JSON as far as it is whole.
    fn walk_json(&mut self, json: &[u8], location: ErrorLocation, depth: u8) {
        let mut json = serde_json::Deserializer::from_slice(json);
        let parsed = self;
        let node = Node {
            parsed,
            location,
            depth,
        };
        // A body that breaks off is expected; the texts before that point are kept.
        let _ = node.deserialize(&mut json);
    }

    /// Adds a sentence, and the errors that it quotes as JSON.
    fn add_sentence(&mut self, text: &str, depth: u8) {
        let mut braces = text.match_indices(['{', '[']).map(|(start, _)| start);
        let quoted = braces.find(|&start| begins_json(&text.as_bytes()[start..]));
        let sentence = &text[..quoted.unwrap_or(text.len())];
        let echoes = REQUEST_ECHOES.iter();
        let echo = echoes.filter_map(|echo| sentence.find(echo)).min();
        let sentence = &sentence[..echo.unwrap_or(sentence.len())];
        self.add_text(ErrorTextKind::Sentence, sentence, depth);
        if let Some(start) = quoted
            && echo.is_none()
            && self.quoted < MAX_QUOTED
        {
            self.quoted += 1;
            self.walk_json(&text.as_bytes()[start..], ErrorLocation::Error, depth + 1);
            self.quoted -= 1;
        }
    }

    fn add_text(&mut self, kind: ErrorTextKind, text: &str, depth: u8) {
        let text = normalize_text(text);
        if !text.is_empty() && self.texts.len() < MAX_TEXTS {
            self.texts.push(ErrorText { depth, kind, text });
        }
    }
}

/// The location of a value in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ErrorLocation {
    Body,
    /// In the `response` of an event: its other fields repeat the request.
    Response,
    Error,
    Code,
}

/// Visits one value of an error; its own value is whether that was not empty.
struct Node<'r> {
    parsed: &'r mut ParsedError,
    location: ErrorLocation,
    depth: u8,
}

impl Node<'_> {
    fn inner_node(&mut self, location: ErrorLocation, depth: u8) -> Node<'_> {
        let parsed = &mut *self.parsed;
        Node {
            parsed,
            location,
            depth,
        }
    }

    fn read_field<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let is_one_of = |names: &str| {
            let mut names = names.split(' ');
            names.any(|known| known.eq_ignore_ascii_case(name))
        };
        let body = self.location == ErrorLocation::Body;
        let skipped = match self.location {
            ErrorLocation::Code => true,
            ErrorLocation::Response => name != "error",
            ErrorLocation::Body | ErrorLocation::Error => self.depth >= MAX_DEPTH,
        };
        if skipped {
            map.next_value::<IgnoredAny>()?;
        } else if name == "response" && body {
            map.next_value_seed(self.inner_node(ErrorLocation::Response, self.depth))?;
        } else if name == ANSWER_MEMBER && body {
            let choices: Option<Vec<IgnoredAny>> = map.next_value()?;
            self.parsed.choices |= choices.is_some_and(|choices| !choices.is_empty());
        } else if name == "object" && body {
            map.next_value_seed(self.inner_node(ErrorLocation::Code, self.depth))?;
        } else if is_one_of(CODE_FIELDS) {
            let any = map.next_value_seed(self.inner_node(ErrorLocation::Code, self.depth))?;
            self.parsed.has_code |= body && any && name == "code";
        } else if name == "param" {
            let param = map.next_value::<serde_json::Value>()?;
            let part = param.as_str().map(str::to_ascii_lowercase);
            self.parsed.names_part |= part.is_some_and(|it| !WHOLE_PARAMS.contains(&&*it));
        } else if name == "loc" {
            // Validators name the place of what is wrong.
            map.next_value::<IgnoredAny>()?;
            self.parsed.names_part = true;
        } else if name == "n_ctx" || name == "n_prompt_tokens" {
            let number = map.next_value::<serde_json::Value>()?.as_u64();
            let number = number.and_then(|number| u32::try_from(number).ok());
            let known = match name {
                "n_ctx" => &mut self.parsed.n_ctx,
                _ => &mut self.parsed.n_prompt_tokens,
            };
            *known = known.or(number);
        } else if is_one_of(TEXT_FIELDS) || !body && is_one_of(INNER_FIELDS) {
            // `visit_str` subtracts this level: a sentence belongs to the error that has it.
            let any = map.next_value_seed(self.inner_node(ErrorLocation::Error, self.depth + 1))?;
            self.parsed.error |= body && any && name == "error";
            self.parsed.has_message |= body && any && name == "message";
        } else {
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<bool, D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = bool;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an error")
    }

    fn visit_str<E>(self, text: &str) -> Result<bool, E> {
        match self.location {
            ErrorLocation::Code => {
                let error = matches!(text, "error" | "response.failed");
                self.parsed.named_error |= error && self.depth == 0;
                self.parsed.add_text(ErrorTextKind::Code, text, self.depth);
            }
            ErrorLocation::Body | ErrorLocation::Error => {
                self.parsed.add_sentence(text, self.depth.saturating_sub(1));
            }
            ErrorLocation::Response => {}
        }
        Ok(!text.is_empty())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<bool, A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            self.read_field(&name, &mut map)?;
        }
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<bool, A::Error> {
        let (location, depth) = (self.location, self.depth);
        let mut any = false;
        while let Some(element) = list.next_element_seed(self.inner_node(location, depth))? {
            any |= element;
        }
        Ok(any)
    }

    fn visit_u64<E>(self, number: u64) -> Result<bool, E> {
        if self.location == ErrorLocation::Code {
            let code = number.to_string();
            self.parsed.add_text(ErrorTextKind::Code, &code, self.depth);
        }
        Ok(true)
    }

    fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
        Ok(true)
    }

    fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
        Ok(value)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}
