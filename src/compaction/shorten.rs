//! Cuts texts to a number of raw tokens.

use crate::guard::estimate::Weights;

/// Replaces the characters that were left out.
const MARKER: &str = "\n... [{} characters left out] ...\n";
/// Characters of the longest number beyond the two of the `{}` that it replaces.
const MARKER_MORE: usize = 10;

/// The text, or its head and tail if it has more than `most` raw tokens. Empty if `most` has no room
/// for the marker.
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

/// Bytes of the leading characters that fit into `room` raw tokens.
fn fitting_bytes(chars: impl Iterator<Item = char>, mut room: f64, weights: &Weights) -> usize {
    let fits = |c: &char| {
        room -= weights.char_weight(u32::from(*c));
        room >= 0.0
    };
    chars.take_while(fits).map(char::len_utf8).sum()
}
