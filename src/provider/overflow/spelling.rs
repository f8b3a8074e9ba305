//! Normalizes texts to the spelling of the table of wordings.

/// Of one sentence; longer ones hold stack traces and repeated requests.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// Whether a JSON object, or an array of objects, begins here. A Python dictionary is none, nor is
/// `[1, 6000]`.
pub(super) fn begins_json(text: &[u8]) -> bool {
    match text.split_first() {
        Some((b'{', rest)) => matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')),
        Some((b'[', rest)) => rest.trim_ascii_start().starts_with(b"{"),
        _ => false,
    }
}

/// Lower case, single spaces, no quotes.
pub(super) fn normalize_text(text: &str) -> String {
    let mut normalized = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    let letters = text.char_indices();
    for (_, letter) in letters.take_while(|(start, _)| *start < MAX_TEXT_BYTES) {
        match letter {
            '\'' | '"' | '`' | '\\' | '’' | '‘' | '“' | '”' => {}
            space if space.is_whitespace() => {
                if !normalized.is_empty() && !normalized.ends_with(' ') {
                    normalized.push(' ');
                }
            }
            letter => normalized.push(letter.to_ascii_lowercase()),
        }
    }
    normalized.truncate(normalized.trim_end().len());
    normalized
}
