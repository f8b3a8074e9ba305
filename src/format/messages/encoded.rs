//! Encoded data in blocks of the server, which the model does not read as the text that stands there.

use crate::{
    format::values::{skip_value, take_raw_text, take_text},
    json::{
        scan::{JsonScanner, JsonString, MalformedJson, Span},
        text::{self, TextSizes},
    },
};

/// Nesting inside a block that is followed.
const MAX_DEPTH: usize = 8;

/// The sizes of what stands in an opaque block as data that the model reads in another form: encrypted pages,
/// signatures and files.
pub(super) fn measure_encoded(body: &[u8], block: Span) -> TextSizes {
    let mut sizes = TextSizes::default();
    let raw = &body[block.range()];
    let holds = |word: &[u8]| memchr::memmem::find(raw, word).is_some();
    if [&b"encrypted"[..], b"signature", b"base64"]
        .into_iter()
        .any(holds)
    {
        let mut scan = JsonScanner::new(body, block.start as usize);
        // The block was read before.
        let _ = collect_encoded(body, &mut scan, MAX_DEPTH, &mut sizes);
    }
    sizes
}

fn collect_encoded(
    body: &[u8],
    scan: &mut JsonScanner<'_>,
    depth: usize,
    sizes: &mut TextSizes,
) -> Result<(), MalformedJson> {
    let measure = |text: JsonString| text::measure_text(text.raw_bytes(body));
    match scan.peek() {
        Some(b'{') if depth > 0 => {
            let (mut is_base64, mut data) = (false, None);
            scan.walk_object(|scan, key| {
                match key.raw_bytes(body) {
                    b"encrypted_content" | b"encrypted_index" | b"encrypted_stdout"
                    | b"signature" => {
                        if let Some(text) = take_text(scan)? {
                            *sizes += measure(text);
                        }
                    }
                    b"data" => data = take_text(scan)?,
                    b"type" => is_base64 = take_raw_text(body, scan)? == b"base64",
                    _ => collect_encoded(body, scan, depth - 1, sizes)?,
                }
                Ok::<_, MalformedJson>(())
            })?;
            if let Some(data) = data.filter(|_| is_base64) {
                *sizes += measure(data);
            }
        }
        Some(b'[') if depth > 0 => {
            scan.walk_array(|scan| collect_encoded(body, scan, depth - 1, sizes))?;
        }
        _ => skip_value(scan)?,
    }
    Ok(())
}
