//! Texts that are cut to a weight.

use crate::guard::estimate::Weights;

/// What stands for the characters that were left out.
const MARKER: &str = "\n... [{} characters left out] ...\n";
/// Characters of the longest such number beyond the two that it takes the place of.
const MARKER_MORE: usize = 10;

/// The text, or its head and tail where it weighs more than `most` raw tokens. Empty where there is no
/// room for anything.
pub(super) fn keep_head_and_tail(plain: String, most: u32, weights: &Weights) -> String {
    if weights.count_plain_tokens(&plain) <= most {
        return plain;
    }
    let marker = (MARKER.len() + MARKER_MORE) as f64 * weights.char_weight(u32::from('.'));
    let room = (f64::from(most) - marker).floor() / 2.0;
    if room < 0.0 {
        return String::new();
    }
    let head = fitting_bytes(plain.chars(), room, weights);
    let tail = plain.len() - fitting_bytes(plain.chars().rev(), room, weights);
    let left_out = plain[head..tail].chars().count();
    let marker = MARKER.replace("{}", &left_out.to_string());
    format!("{}{marker}{}", &plain[..head], &plain[tail..])
}

/// Bytes of the first of these characters that weigh no more than so many raw tokens together.
fn fitting_bytes(chars: impl Iterator<Item = char>, mut room: f64, weights: &Weights) -> usize {
    let fits = |c: &char| {
        room -= weights.char_weight(u32::from(*c));
        room >= 0.0
    };
    chars.take_while(fits).map(char::len_utf8).sum()
}
