//! Cuts texts to a number of raw tokens.

use crate::guard::estimate::{Weights, find_last_fit};

/// Replaces the characters that were left out. Its line ends keep the counts of head and tail apart.
const MARKER: &str = "\n... [{} characters left out] ...\n";
/// The longest number in it.
const LONGEST_NUMBER: &str = "000000000000";

/// The text, or its head and tail if it has more than `most` raw tokens. Empty if `most` has no room
/// for the marker.
pub(super) fn keep_head_and_tail(plain: String, most: u32, weights: &Weights) -> String {
    if weights.count_plain_tokens(&plain) <= most {
        return plain;
    }
    let marker = weights.plain_weight(&MARKER.replace("{}", LONGEST_NUMBER));
    let room = (f64::from(most) - marker).floor() / 2.0;
    if room < 0.0 {
        return String::new();
    }
    let whole = plain.len();
    let head = |len| floor_boundary(&plain, len);
    let tail = |len| ceil_boundary(&plain, whole - len);
    let fits = |part: &str| weights.plain_weight(part) <= room;
    let head = head(find_last_fit(whole, |len| fits(&plain[..head(len)])));
    let tail = tail(find_last_fit(whole, |len| fits(&plain[tail(len)..])));
    let tail = tail.max(head);
    let left_out = plain[head..tail].chars().count();
    let marker = MARKER.replace("{}", &left_out.to_string());
    format!("{}{marker}{}", &plain[..head], &plain[tail..])
}

/// The end of the last character that ends at or before byte `at`.
fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The start of the first character that starts at or after byte `at`.
fn ceil_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}
