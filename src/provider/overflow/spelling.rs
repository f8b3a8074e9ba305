//! Texts in the spelling of the table of wordings.

/// How much of one sentence is; after that come stack traces and repeated requests.
const MAX_TEXT_BYTES: usize = 4 * 1024;

/// Whether this is the beginning of a JSON object, or of an array of such. A Python dictionary in a
/// text is none, nor is `[1, 6000]`.
pub(super) fn begins_json(text: &[u8]) -> bool {
    match text.split_first() {
        Some((b'{', rest)) => matches!(rest.trim_ascii_start().first(), Some(b'"' | b'}')),
        Some((b'[', rest)) => rest.trim_ascii_start().starts_with(b"{"),
        _ => false,
    }
}

/// A text in the spelling of the table: small letters, single spaces, no quotes.
pub(super) fn normalize_text(text: &str) -> String {
    let mut spelt = String::with_capacity(text.len().min(MAX_TEXT_BYTES));
    let letters = text.char_indices();
    for (_, letter) in letters.take_while(|(place, _)| *place < MAX_TEXT_BYTES) {
        match letter {
            '\'' | '"' | '`' | '\\' | '’' | '‘' | '“' | '”' => {}
            space if space.is_whitespace() => {
                if !spelt.is_empty() && !spelt.ends_with(' ') {
                    spelt.push(' ');
                }
            }
            letter => spelt.push(letter.to_ascii_lowercase()),
        }
    }
    spelt.truncate(spelt.trim_end().len());
    spelt
}
