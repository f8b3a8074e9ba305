//! Finds media (base64, data URLs, addresses) in the blocks and values that the format does not read as text. The values
//! decide, and keys only for what is sealed. There is no list of the types that are media, so that types of the future
//! are found too.

use std::io::Read as _;

use flate2::read::ZlibDecoder;
use memchr::memmem;

use super::sealed::measure_sealed;
use crate::{
    conversation::{Author, BlockKind, Content, Conversation, Item, Medium, MediumKind},
    json::{
        scan::{JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextSizes, decode_base64},
    },
};

/// Levels of nesting that are followed inside a value. What is deeper counts as text.
const MAX_DEPTH: usize = 16;
/// A string of base64 with fewer bytes counts as text: it may be a word, and costs little.
const LEAST_BASE64: usize = 256;
/// Bytes at both ends of a string that are looked at.
const ENDS: usize = 1_024;
/// A string that is longer, or holds a blank, is a text for the model.
const SHORT_TEXT: usize = 200;
/// Bytes of a document for each page, if its pages cannot be counted.
const PAGE_BYTES: usize = 50_000;
/// Bytes to which the compressed objects of a document may be inflated, in total.
const MAX_INFLATED: u64 = 4 << 20;
/// The same limit as a multiple of the document's size: many small documents must not become large together.
const MOST_DENSE: u64 = 16;
/// Streams of compressed objects that are read of a document.
const MAX_STREAMS: usize = 256;
/// Bytes behind the name of such a stream within which the stream must begin. The search is bounded, so that a document
/// of names alone takes linear time.
const STREAM_WITHIN: usize = 1_024;

/// Lists the media of an item in its conversation. If an unknown block of the user's or of a result holds a medium, then
/// the block itself becomes a medium, so that it can be cleared.
pub(super) fn find_media(found: &mut Conversation, item: &Item) {
    let author = item.author;
    match item.content {
        Content::Blocks(ref blocks, _) | Content::FixedBlocks(ref blocks, _) => {
            for at in blocks.start as usize..blocks.end as usize {
                let block = found.blocks[at].clone();
                let is_known = match block.kind {
                    BlockKind::Opaque => false,
                    BlockKind::Media | BlockKind::Image { url: None, .. } => true,
                    _ => continue,
                };
                let mut values = FoundValues::read(&found.body, block.span, author);
                let may_go = matches!(author, Author::User | Author::Tool);
                if values.holds_medium() && may_go && !is_known {
                    found.blocks[at].kind = BlockKind::Media;
                }
                if found.blocks[at].kind == BlockKind::Media {
                    values.list_texts();
                }
                found.media.append(&mut values.media);
            }
        }
        Content::Other(span) => {
            let mut values = FoundValues::read(&found.body, span, author);
            found.media.append(&mut values.media);
        }
        _ => {}
    }
}

/// The strings of a value.
struct FoundValues<'a> {
    body: &'a [u8],
    author: Author,
    media: Vec<Medium>,
    addresses: Vec<JsonString>,
    /// Texts for the model to read.
    texts: Vec<JsonString>,
}

impl<'a> FoundValues<'a> {
    /// Reads the strings of a value. Addresses count as media only if there is no text next to them; they do not count in
    /// what a server did for an answer.
    fn read(body: &'a [u8], span: Span, author: Author) -> Self {
        let mut values = Self {
            body,
            author,
            media: Vec::new(),
            addresses: Vec::new(),
            texts: Vec::new(),
        };
        let mut scan = JsonScanner::new(body, span.start as usize);
        // The value was read before; what is nested too deep was left out.
        let _ = values.read_value(&mut scan, b"", MAX_DEPTH);
        let is_given = matches!(author, Author::User | Author::Tool | Author::System);
        if is_given && values.texts.is_empty() {
            for address in std::mem::take(&mut values.addresses) {
                values.add(address, MediumKind::Data);
            }
            values.media.sort_by_key(|it| it.span.start);
        }
        values
    }

    fn add(&mut self, text: JsonString, kind: MediumKind) {
        let span = text.span;
        self.media.push(Medium { span, kind });
    }

    fn holds_medium(&self) -> bool {
        self.media.iter().any(Medium::is_medium)
    }

    /// Adds the texts next to the media, with their sizes, since the model reads them.
    fn list_texts(&mut self) {
        for text in std::mem::take(&mut self.texts) {
            let sizes = text::measure_text(text.raw_bytes(self.body));
            self.add(text, MediumKind::Beside(Box::new(sizes)));
        }
        self.media.sort_by_key(|it| it.span.start);
    }

    fn read_value(
        &mut self,
        scan: &mut JsonScanner<'a>,
        key: &[u8],
        depth: usize,
    ) -> Result<(), MalformedJson> {
        match scan.peek() {
            Some(b'{') if depth > 0 => {
                let body = self.body;
                scan.walk_object(|scan, key| self.read_value(scan, key.raw_bytes(body), depth - 1))
                    .map(drop)
            }
            Some(b'[') if depth > 0 => scan
                .walk_array(|scan| self.read_value(scan, key, depth - 1))
                .map(drop),
            Some(b'"') => {
                let text = scan.take_string()?;
                self.read_string(key, text);
                Ok(())
            }
            _ => scan.take_value().map(drop),
        }
    }

    fn read_string(&mut self, key: &[u8], text: JsonString) {
        let raw = text.raw_bytes(self.body);
        let is_long = raw.len() >= LEAST_BASE64;
        if is_long && (key.starts_with(b"encrypted") || key == b"signature") {
            // The model reads no signature, and in an answer not the encrypted content of a page that the server found.
            let sizes = if self.author == Author::Model || key == b"signature" {
                TextSizes::default()
            } else {
                measure_sealed(text)
            };
            self.add(text, MediumKind::Beside(Box::new(sizes)));
        } else if let Some(kind) = detect_kind(raw) {
            self.add(text, kind);
        } else if is_address(raw) {
            self.addresses.push(text);
        } else if raw.len() > SHORT_TEXT || memchr::memchr(b' ', raw).is_some() {
            self.texts.push(text);
        }
    }
}

/// Whether a string is an address: `scheme://…` in one word, whether its slashes are escaped or not.
fn is_address(raw: &[u8]) -> bool {
    let Some(colon) = raw.iter().take(12).position(|byte| *byte == b':') else {
        return false;
    };
    let (scheme, rest) = raw.split_at(colon);
    let is_scheme = !scheme.is_empty() && scheme.iter().all(u8::is_ascii_alphanumeric);
    let is_address = rest.starts_with(b"://") || rest.starts_with(br":\/\/");
    is_scheme && is_address && memchr::memchr(b' ', raw).is_none()
}

/// Returns the kind of medium that a data URL or base64 holds; `None` for any other string.
fn detect_kind(raw: &[u8]) -> Option<MediumKind> {
    let (declared, data) = split_data_url(raw);
    if declared.is_none() && !is_base64(raw) {
        return None;
    }
    let declared = declared.unwrap_or_default();
    let head = decode_base64(data, 64).unwrap_or_default();
    if declared.starts_with(b"image") || imagesize::image_type(&head).is_ok() {
        return Some(MediumKind::Image);
    }
    if head.starts_with(b"%PDF") {
        return Some(MediumKind::Pages(count_pages(data)));
    }
    let is_text = |bytes: &[u8]| !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok();
    // A character may lie across the end of the head.
    if declared.starts_with(b"text") || head.len() > 8 && is_text(&head[..head.len() - 4]) {
        let decoded = decode_base64(data, data.len()).unwrap_or_default();
        if let Ok(text) = std::str::from_utf8(&decoded) {
            return Some(MediumKind::Text(Box::new(text::measure_plain(text))));
        }
    }
    Some(MediumKind::Data)
}

/// The type that a data URL declares, and its data; any other string is data alone.
fn split_data_url(raw: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let Some(rest) = raw.strip_prefix(b"data:") else {
        return (None, raw);
    };
    match memchr::memchr(b',', &rest[..rest.len().min(100)]) {
        Some(comma) => (Some(&rest[..comma]), &rest[comma + 1..]),
        None => (None, raw),
    }
}

/// Whether a long string has nothing but base64 at both ends, and no blank, `{` or `<` between them.
fn is_base64(raw: &[u8]) -> bool {
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=\\".contains(byte);
    raw.len() >= LEAST_BASE64
        && raw[..raw.len().min(ENDS)].iter().all(known)
        && raw[raw.len().saturating_sub(ENDS)..].iter().all(known)
        && memchr::memchr3(b' ', b'{', b'<', raw).is_none()
}

/// Counts the pages of a PDF by its page objects, including those in compressed streams; if there are none, by its size.
fn count_pages(data: &[u8]) -> u16 {
    let Some(pdf) = decode_base64(data, data.len()) else {
        return 1;
    };
    let mut pages = count_page_objects(&pdf);
    let mut room = MAX_INFLATED.min(pdf.len() as u64 * MOST_DENSE);
    for at in memmem::find_iter(&pdf, b"/ObjStm").take(MAX_STREAMS) {
        let near = &pdf[at..pdf.len().min(at + STREAM_WITHIN)];
        let Some(start) = memmem::find(near, b"stream") else {
            continue;
        };
        let stream = pdf[at + start + 6..].trim_ascii_start();
        let mut objects = Vec::new();
        // What is inflated before an error counts.
        let _ = ZlibDecoder::new(stream)
            .take(room)
            .read_to_end(&mut objects);
        room -= objects.len() as u64;
        pages += count_page_objects(&objects);
    }
    let by_size = pdf.len() / PAGE_BYTES + 1;
    let pages = if pages == 0 { by_size } else { pages };
    u16::try_from(pages).unwrap_or(u16::MAX)
}

/// Counts the objects of the type `/Page`, but not those of the type `/Pages`.
fn count_page_objects(pdf: &[u8]) -> usize {
    let behind = |at| pdf[at + 5..].trim_ascii_start();
    let is_page = |at: &usize| {
        let name = behind(*at).strip_prefix(b"/Page");
        name.is_some_and(|rest| !rest.first().is_some_and(u8::is_ascii_alphanumeric))
    };
    memmem::find_iter(pdf, b"/Type").filter(is_page).count()
}

#[cfg(test)]
mod tests;
