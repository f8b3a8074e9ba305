//! Conversations that grow: each request is the one before, its answer, and a step of the client. So is the traffic of an
//! agent; a body that is sent again and again flatters whoever remembers it.

use std::ops::Range;

use bytes::Bytes;
use plimsoll::conversation::Format;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    bodies::{BodySize, Mode, bodies, model},
    support::{generate_messages::escape_beyond_ascii, translate_chat::translate_chat},
};

/// Digits of the number that tells conversations apart.
const DIGITS: usize = 10;

/// A conversation of one connection. Once it has grown by half, another one begins in its place.
pub(crate) struct GrowingConversation {
    base: Vec<u8>,
    /// The place of its number, near its start.
    number_at: usize,
    /// Where the entries of the base end.
    end: usize,
    /// Entries behind them.
    steps: Vec<u8>,
    step: Vec<u8>,
    next_number: Box<dyn FnMut() -> usize + Send>,
}

impl GrowingConversation {
    /// `next_number`: a number that no other conversation has.
    ///
    /// # Panics
    /// If a generated conversation is none, which is a defect of the generator.
    pub(crate) fn new(
        format: Format,
        size: BodySize,
        light: bool,
        next_number: impl FnMut() -> usize + Send + 'static,
    ) -> Self {
        let chat = bodies(size, Mode::Whole, light).swap_remove(0);
        let base = match format {
            Format::Chat => chat.to_vec(),
            _ => translate_chat(&chat, format, false),
        };
        let mut base = String::from_utf8(base).expect("a body is text");
        if !light {
            // Translating has unescaped it.
            base = base.chars().map(escape_beyond_ascii).collect();
        }
        // Translating has set another model.
        let (before, rest) = base.split_once("\"model\":").expect("a body has a model");
        let rest = rest.trim_start().trim_start_matches('"');
        let (_, after) = rest.split_once('"').expect("a model is text");
        let mut base = format!("{before}\"model\":\"{}\"{after}", model(size, Mode::Whole));
        // The first conversation of `bodies` has the number 0.
        let number_at = base.find("(0) ").expect("a body has a number") + 1;
        base.replace_range(number_at..=number_at, &"0".repeat(DIGITS));
        let end = find_entries(&base).end - 1;
        let mut growing = Self {
            base: base.into_bytes(),
            number_at,
            end,
            steps: Vec::new(),
            step: make_step(format, size.bytes),
            next_number: Box::new(next_number),
        };
        growing.begin_anew();
        growing
    }

    pub(crate) fn next_body(&mut self) -> Bytes {
        if self.steps.len() > self.base.len() / 2 {
            self.begin_anew();
        }
        let (entries, rest) = self.base.split_at(self.end);
        let body = [entries, &self.steps, rest].concat();
        self.steps.extend_from_slice(&self.step);
        body.into()
    }

    fn begin_anew(&mut self) {
        let number = (self.next_number)();
        let digits = format!("{number:0DIGITS$}");
        self.base[self.number_at..self.number_at + DIGITS].copy_from_slice(digits.as_bytes());
        self.steps.clear();
    }
}

/// The array of entries in a body.
fn find_entries(body: &str) -> Range<usize> {
    #[derive(Deserialize)]
    struct Entries<'a> {
        #[serde(borrow, alias = "messages")]
        input: &'a RawValue,
    }
    let found: Entries<'_> = serde_json::from_str(body).expect("a body has entries");
    let entries = found.input.get();
    let start = entries.as_ptr() as usize - body.as_ptr() as usize;
    start..start + entries.len()
}

/// The provider's answer, and what the client says to it: a fiftieth of the body, but at most 2,000 bytes.
fn make_step(format: Format, body_bytes: usize) -> Vec<u8> {
    let answer = match format {
        Format::Responses => {
            r#"{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Aye."}]}"#
        }
        _ => r#"{"role":"assistant","content":"Aye."}"#,
    };
    let line = r#"let depth = sound(\"lead\", 7);\n"#;
    let lines = (body_bytes / 50).clamp(100, 2_000) / line.len();
    let said = line.repeat(lines);
    format!(r#",{answer},{{"role":"user","content":"{said}"}}"#).into_bytes()
}
