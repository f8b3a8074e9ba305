//! The compaction entry that the proxy makes: a text that replaces a conversation which its client compacted.
//!
//! `encrypted_content` is a tag with a version, a checksum, a dot, and the text in base64. It is encoded and not
//! encrypted: the conversation is the client's own, which may say the same in a message. The checksum shows what was cut
//! off or damaged on the way. Such content, content of an unknown version, and the content of a provider stay as they
//! came. Base64 gives the content the size from which clients estimate the tokens of encrypted content.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use bytes::Bytes;
use memchr::memmem;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    request::{ends_in_trigger, fixed_entries, has_whole_history, is_compaction},
    write::text_item,
};
use crate::{
    conversation::{Author, Conversation, Item, ItemPlace, edit::Edits},
    format::values::find_member,
    json::{scan::JsonKind, text::escape_text},
};

/// Begins the content of every entry that the proxy makes.
const TAG: &str = "plimsoll-compaction-1.";

/// The entry that asks to compact.
const TRIGGER: &str = r#"{"type":"compaction_trigger"}"#;

/// The content of an entry with this text.
pub(super) fn encode_text(text: &str) -> String {
    let sum = xxh3_64(text.as_bytes());
    format!("{TAG}{sum:016x}.{}", BASE64.encode(text))
}

fn decode_text(content: &str) -> Option<String> {
    let (sum, encoded) = content.strip_prefix(TAG)?.split_once('.')?;
    let text = BASE64.decode(encoded).ok()?;
    let is_whole = sum == format!("{:016x}", xxh3_64(&text));
    let text = String::from_utf8(text).ok().filter(|_| is_whole)?;
    (!text.trim().is_empty()).then_some(text)
}

/// Whether a body may have an entry that the proxy made.
pub(super) fn may_have_entries(body: &[u8]) -> bool {
    memmem::find(body, TAG.as_bytes()).is_some()
}

/// The body with a developer message in the place of each entry that the proxy made; `None` where there is none.
pub(super) fn unfold_entries(found: &Conversation) -> Option<Bytes> {
    let mut edits = Edits::default();
    for item in fixed_entries(found) {
        if let Some(text) = read_text(found, item) {
            let message = text_item(Author::System, &escape_text(&text));
            edits.replace(item.span, message);
        }
    }
    (!edits.is_empty()).then(|| edits.apply(&found.body).to_bytes())
}

/// The text of an entry that the proxy made.
fn read_text(found: &Conversation, item: &Item) -> Option<String> {
    let content = find_member(&found.body, item.span.start, b"encrypted_content");
    let content = content.filter(|_| is_compaction(found, item));
    let (content, _) = content.filter(|(_, kind)| *kind == JsonKind::String)?;
    decode_text(&serde_json::from_slice::<String>(found.span_bytes(content)).ok()?)
}

/// Returns the body of a request for a compacted list as a body that ends in an entry that asks to compact. Returns
/// `None` if there is nothing to compact, or if a part of the history is not in the request.
pub(in crate::format) fn append_trigger(found: &Conversation) -> Option<Bytes> {
    if !has_whole_history(found) {
        return None;
    }
    if ends_in_trigger(found) {
        return Some(found.body.clone());
    }
    let mut edits = Edits::default();
    match found.find_field("input")?.kind {
        JsonKind::Array => {
            // Instructions are outside the list.
            found
                .items
                .last()
                .filter(|last| last.place == ItemPlace::Whole)?;
            edits.insert(found.list.end - 1, format!(",{TRIGGER}"));
        }
        _ => {
            edits.insert(found.list.start, r#"[{"role":"user","content":"#.to_owned());
            edits.insert(found.list.end, format!("}},{TRIGGER}]"));
        }
    }
    Some(edits.apply(&found.body).to_bytes())
}

#[cfg(test)]
mod tests;
