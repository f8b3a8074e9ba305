//! Recognizes lines that report an error.

/// Words that indicate an error, in lower case.
pub(in crate::guard) const WORDS: [&str; 9] = [
    "error",
    "failed",
    "exception",
    "panic",
    "failure",
    "fatal",
    "traceback",
    "错误",
    "失败",
];
/// They negate such a word if they are directly before it.
const NEGATIONS: [&str; 4] = ["0 ", "no ", "without ", "zero "];

/// Whether a line has a word that indicates an error and is not negated.
pub(in crate::guard) fn indicates_error(line: &str) -> bool {
    let line = line.to_lowercase();
    let is_negated = |at: usize| {
        NEGATIONS.iter().any(|negation| {
            let rest = line[..at].strip_suffix(negation);
            // "10 failed" does not end with the negation "0 ".
            rest.is_some_and(|rest| !rest.ends_with(|c: char| c.is_ascii_alphanumeric()))
        })
    };
    let mut places = WORDS.iter().flat_map(|word| line.match_indices(word));
    places.any(|(at, _)| !is_negated(at))
}
