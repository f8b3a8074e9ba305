use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::conversation::Format;

fn image() -> String {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend_from_slice(&[0, 0, 4, 0, 0, 0, 4, 0, 8, 6, 0, 0, 0, 0, 0, 0, 0]);
    png.resize(30_000, 7);
    STANDARD.encode(png)
}

/// Bytes that are no text.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn index(format: Format, author: &str, content: Value) -> Conversation {
    let body = match format {
        Format::Responses => json!({"input": [{"role": author, "content": content}]}),
        _ => json!({"messages": [{"role": author, "content": content}]}),
    };
    format.index_body(Bytes::from(body.to_string())).unwrap()
}

fn kinds(found: &Conversation) -> Vec<MediumKind> {
    found.media.iter().map(|it| it.kind.clone()).collect()
}

#[test]
fn a_medium_is_found_in_any_shape() {
    let data = image();
    let url = format!("data:image/png;base64,{data}");
    let far = "https://host/a.mp4";
    use MediumKind::{Data, Image};
    for (block, expected) in [
        (
            json!({"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}]}}),
            Image,
        ),
        (
            json!({"type": "image", "data": data, "mimeType": "image/png"}),
            Image,
        ),
        (
            json!({"type": "resource", "resource": {"uri": "file:///a.png", "mimeType": "image/png", "blob": data}}),
            Image,
        ),
        (
            json!({"inlineData": {"mimeType": "image/png", "data": data}}),
            Image,
        ),
        (
            json!({"image": {"format": "png", "source": {"bytes": data}}}),
            Image,
        ),
        (
            json!({"type": "media", "mimeType": "image/png", "data": url}),
            Image,
        ),
        (
            json!({"type": "shape_of_tomorrow", "of": [{"deep": {"in": [url]}}]}),
            Image,
        ),
        (json!({"type": "video", "video": [far]}), Data),
        (
            json!({"type": "input_video", "video_url": {"url": far}}),
            Data,
        ),
        (json!({"fileData": {"fileUri": "gs://bucket/a.mp4"}}), Data),
        (
            json!({"type": "anything", "payload": STANDARD.encode(noise(900))}),
            Data,
        ),
    ] {
        for format in [Format::Chat, Format::Messages, Format::Responses] {
            let found = index(format, "user", json!([block]));
            assert!(kinds(&found).contains(&expected), "{format:?}, {block}");
            let is_medium =
                |kind| matches!(kind, BlockKind::Media | BlockKind::Image { url: None, .. });
            assert!(is_medium(found.blocks[0].kind), "{format:?}, {block}");
            assert!(
                found.items[0].sizes.total_chars() < 40,
                "{format:?}, {block}"
            );
            // The same in the place of a list.
            let found = index(format, "user", block.clone());
            assert!(kinds(&found).contains(&expected), "{format:?}, {block}");
            assert!(
                found.items[0].sizes.total_chars() < 300,
                "{format:?}, {block}"
            );
        }
    }
}

#[test]
fn what_is_a_text_stays_one() {
    let long = "a word and another one ".repeat(40);
    for block in [
        json!({"type": "search_result", "source": "https://host/page", "title": "t", "content": [{"type": "text", "text": long}]}),
        json!({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": long}}),
        json!({"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": long}]}}),
        json!({"type": "resource", "resource": {"uri": "https://host/a.txt", "text": long}}),
        json!({"type": "unknown", "note": "hash", "of": "ab".repeat(60)}),
    ] {
        let found = index(Format::Messages, "user", json!([block]));
        assert!(kinds(&found).is_empty(), "{block}");
        assert_eq!(found.blocks[0].kind, BlockKind::Opaque, "{block}");
        let whole = text::measure_text(block.to_string().as_bytes());
        assert_eq!(found.items[0].sizes, whole, "{block}");
    }
}

#[test]
fn the_texts_beside_a_medium_count() {
    let long = "a word and another one ".repeat(40);
    let content = json!([{"type": "text", "text": long}, {"type": "image", "source": {"type": "base64", "data": image()}}]);
    let block = json!({"type": "document", "title": "a b", "source": {"type": "content", "content": content}});
    let found = index(Format::Messages, "user", json!([block]));
    let beside: usize = found
        .media
        .iter()
        .map(|it| match &it.kind {
            MediumKind::Beside(sizes) => sizes.total_chars(),
            _ => 0,
        })
        .sum();
    assert!((920..940).contains(&beside), "{beside}");
    assert_eq!(found.blocks[0].kind, BlockKind::Media);
}

#[test]
fn what_the_server_did_stays_and_its_addresses_are_text() {
    let data = image();
    let fetched = json!({"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {"type": "web_fetch_result",
        "url": "https://host/a.png", "content": {"type": "document", "source": {"type": "base64", "data": data}}}});
    let sought = json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": [
        {"type": "web_search_result", "url": "https://host/a", "encrypted_content": STANDARD.encode(noise(3_000))}]});
    let found = index(Format::Messages, "assistant", json!([fetched, sought]));
    let none = MediumKind::Beside(Box::default());
    assert_eq!(kinds(&found), [MediumKind::Image, none]);
    assert!(found.blocks.iter().all(|it| it.kind == BlockKind::Opaque));
    assert!(found.items[0].sizes.total_chars() < 400);
    let run = json!({"input": [{"type": "code_interpreter_call", "id": "c", "code": "plot()", "container_id": "k",
        "outputs": [{"type": "image", "url": format!("data:image/png;base64,{data}")}], "status": "completed"}]});
    let found = Format::Responses
        .index_body(Bytes::from(run.to_string()))
        .unwrap();
    assert_eq!(kinds(&found), [MediumKind::Image]);
    assert!(found.items[0].sizes.total_chars() < 250);
}

/// A PDF of so many pages. `packed`: its page objects lie in a compressed stream.
fn write_pdf(pages: usize, packed: bool) -> Vec<u8> {
    let list = "<</Type /Page /Parent 2 0 R>>\n".repeat(pages);
    let mut pdf =
        b"%PDF-1.7\n1 0 obj <</Type /Catalog /Pages 2 0 R>>\n2 0 obj <</Type/Pages>>\n".to_vec();
    if packed {
        let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut writer, list.as_bytes()).unwrap();
        pdf.extend_from_slice(b"3 0 obj <</Type /ObjStm /Filter /FlateDecode>>\nstream\r\n");
        pdf.extend_from_slice(&writer.finish().unwrap());
        pdf.extend_from_slice(b"\nendstream");
    } else {
        pdf.extend_from_slice(list.as_bytes())
    }
    pdf.extend_from_slice(&noise(5_000));
    pdf
}

#[test]
fn a_pdf_has_its_pages_or_those_of_its_size() {
    let count = |pdf: &[u8]| count_pages(STANDARD.encode(pdf).as_bytes());
    for pages in [1, 7, 250] {
        assert_eq!(count(&write_pdf(pages, false)), pages as u16);
        assert_eq!(count(&write_pdf(pages, true)), pages as u16);
    }
    assert_eq!(count(b"%PDF-1.7 /Type /ObjStm stream broken"), 1);
    assert_eq!(count(&[b"%PDF-1.7 /Type", &noise(120_000)[..]].concat()), 3);
    // In linear time.
    let names = b"/ObjStm ".repeat(300_000);
    assert_eq!(count(&[b"%PDF-1.7 ", &names[..], b"stream"].concat()), 49);
    let data = STANDARD.encode(write_pdf(7, false));
    let url = format!("data:application/pdf;base64,{data}");
    for (format, block) in [
        (
            Format::Chat,
            json!({"type": "file", "file": {"filename": "a.pdf", "file_data": url}}),
        ),
        (
            Format::Messages,
            json!({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}),
        ),
        (
            Format::Responses,
            json!({"type": "input_file", "file_data": url, "filename": "a.pdf"}),
        ),
    ] {
        let found = index(format, "user", json!([block]));
        assert_eq!(kinds(&found), [MediumKind::Pages(7)], "{block}");
    }
}

#[test]
fn a_file_of_text_counts_as_that_text() {
    let text = "name, value\n".repeat(100);
    let url = format!("data:text/csv;base64,{}", STANDARD.encode(&text));
    let block = json!({"type": "input_file", "filename": "a.csv", "file_data": url});
    let found = index(Format::Responses, "user", json!([block]));
    let sizes = Box::new(text::measure_plain(&text));
    assert_eq!(kinds(&found), [MediumKind::Text(sizes)]);
}
