//! What a text weighs, and how it is made lighter.

use crate::{guard::estimate::Weights, json::text};

/// What stands where something was left out at the end of a text.
const MORE: &str = " …";

/// Weighs text by the rule of the summariser.
#[derive(Clone, Copy)]
pub(super) struct Measure {
    weights: Weights,
}

impl Measure {
    pub(super) fn new(chars_per_token: f64) -> Self {
        Self {
            weights: Weights::new(chars_per_token),
        }
    }

    pub(super) const fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Raw tokens.
    pub(super) fn tokens(&self, plain: &str) -> u32 {
        let sizes = text::measure(text::escape(plain).as_bytes());
        self.weights.text(&sizes).ceil() as u32
    }

    /// The text, or its head and tail where it weighs more than `most` raw tokens.
    pub(super) fn within(&self, plain: String, most: u32) -> String {
        let mut tokens = self.tokens(&plain);
        if tokens <= most {
            return plain;
        }
        let chars = plain.chars().count();
        let mut kept = chars;
        while kept > 0 {
            // What stays may be denser than the whole.
            let share = f64::from(most) / f64::from(tokens.max(1)) * 0.95;
            kept = ((kept as f64 * share) as usize).min(kept - 1);
            let cut = ends(&plain, chars, kept);
            tokens = self.tokens(&cut);
            if tokens <= most {
                return cut;
            }
        }
        String::new()
    }
}

/// `kept` characters of a text of `chars`, half from each end, and how many are missing between.
fn ends(text: &str, chars: usize, kept: usize) -> String {
    let at = |nth: usize| {
        text.char_indices()
            .nth(nth)
            .map_or(text.len(), |(at, _)| at)
    };
    let (head, tail) = (at(kept.div_ceil(2)), at(chars - kept / 2));
    let left_out = chars - kept;
    format!(
        "{}\n... [{left_out} characters left out] ...\n{}",
        &text[..head],
        &text[tail..]
    )
}

/// The beginning of a text, in at most so many bytes, to the end of a line where one is near.
/// Empty where there is no room for anything.
pub(super) fn head(text: &str, bytes: usize) -> String {
    let Some(room) = bytes.checked_sub(MORE.len()) else {
        return String::new();
    };
    let mut end = room.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let line = text[..end].rfind('\n').filter(|at| at * 4 > end * 3);
    let head = text[..line.unwrap_or(end)].trim_end();
    match head.is_empty() {
        true => String::new(),
        false => format!("{head}{MORE}"),
    }
}
