//! Refusals of the size of a request, apart from its length in tokens: of its bytes, or of the number, the size or the
//! form of its images. The wordings are of the vendors' documentation and of their errors.

use http::StatusCode;

use super::overflow::{has_code, read_error_sentences};
use crate::format::other_kinds::LARGE_IMAGE;

/// What was too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRefusal {
    /// The images: their number, their bytes or pixels, or one that cannot be read.
    Images,
    /// The bytes of the request.
    Bytes,
}

/// Parts of a sentence about images, or pages of documents, that is a refusal of them.
const OF_IMAGES: &[&str] = &[
    "too much media",
    "could not process",
    "unable to process",
    "cannot be processed",
    "too many",
    "too large",
    "exceed",
    "at most",
    "maximum",
    "not represent a valid",
];

/// Parts of a sentence about the bytes of a request, beside every 413.
const OF_BYTES: &[&str] = &[
    "request_too_large",
    "request exceeds the maximum size",
    "request body too large",
    "request entity too large",
    "payload size exceeds",
    "payload too large",
    "content too large",
    // Vertex.
    "request size (",
];

/// Parts of a sentence that refuses for another reason: too many requests, money, or a model that takes no images.
const OTHER_REASONS: &[&str] = &[
    "rate limit",
    "rate-limit",
    "ratelimit",
    "too many requests",
    "throttl",
    "quota",
    "please wait",
    "billing",
    "credit",
    "account",
    "per minute",
    "per day",
    "per hour",
    "per second",
    "/min",
    " rpm",
    "(tpm)",
    "not support",
    "image input",
    "property",
    "properties",
    "character",
    "not found",
];

/// Judges an answer by its status and its decoded body, after it is known to be no overflow.
pub fn detect_size_refusal(status: StatusCode, body: &[u8]) -> Option<SizeRefusal> {
    let is_large = status == StatusCode::PAYLOAD_TOO_LARGE;
    if !is_large && !matches!(status.as_u16(), 400 | 422) {
        return None;
    }
    if has_code(body, LARGE_IMAGE) {
        return Some(SizeRefusal::Images);
    }
    let sentences: Vec<String> = read_error_sentences(body).collect();
    let any = |parts: &[&str]| sentences.iter().any(|it| has_any(it, parts));
    if any(OTHER_REASONS) {
        return None;
    }
    let mut of_images = sentences.iter().filter(|it| speaks_of_images(it));
    match () {
        () if of_images.any(|it| has_any(it, OF_IMAGES)) => Some(SizeRefusal::Images),
        () if is_large || any(OF_BYTES) => Some(SizeRefusal::Bytes),
        () => None,
    }
}

/// Whether an error says that it is about bytes. A 413 without a word says so.
pub fn names_bytes(body: &[u8]) -> bool {
    let mut sentences = read_error_sentences(body).peekable();
    sentences.peek().is_none() || sentences.any(|it| has_any(&it, OF_BYTES))
}

fn has_any(sentence: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| sentence.contains(part))
}

/// Whether images, or pages of documents, stand in it as a word, and not in the name of a model, a tool or a field.
fn speaks_of_images(sentence: &str) -> bool {
    let is_in_name = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    let mut words = sentence.match_indices("image");
    sentence.contains("pdf pages")
        || words.any(|(at, word)| {
            let rest = sentence[at + word.len()..].trim_start_matches('s');
            let (before, after) = (&sentence[..at], rest.trim_start_matches("(s)"));
            let ends = after.strip_prefix('.').unwrap_or(after);
            !before.ends_with(is_in_name) && !ends.starts_with(is_in_name)
        })
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{SizeRefusal, detect_size_refusal};

    #[track_caller]
    fn check(status: u16, message: &str, expected: Option<SizeRefusal>) {
        let body = serde_json::json!({"error": {"message": message}}).to_string();
        let status = StatusCode::from_u16(status).unwrap();
        let found = detect_size_refusal(status, body.as_bytes());
        assert_eq!(found, expected, "{status} {message}");
    }

    #[test]
    fn refusals_of_images_and_bytes_are_told_from_others() {
        use SizeRefusal::{Bytes, Images};
        for message in [
            "messages.3.content.1.image.source.base64.data: At least one of the image dimensions exceed max allowed size for many-image requests: 2000 pixels",
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 5368712 bytes > 5242880 bytes",
            "Could not process image",
            "A maximum of 100 PDF pages may be provided.",
            "The image data you provided does not represent a valid image.",
            "Too many images and documents: 101 + 0 > 100",
            "At most 16 image(s) may be provided in one request.",
            "Invalid request: the maximum number of images is 500",
            "Too much media: 90 document pages + 20 images > 100",
        ] {
            check(400, message, Some(Images));
        }
        check(413, "Request exceeds the maximum size", Some(Bytes));
        check(413, "Request Entity Too Large", Some(Bytes));
        check(400, "Request body too large for this model", Some(Bytes));
        check(
            400,
            "Request payload size exceeds the limit: 20971520 bytes.",
            Some(Bytes),
        );
        check(
            400,
            "Vertex: request size (41943040 bytes) exceeds 30.000MB limit",
            Some(Bytes),
        );
        // The code decides, not the words.
        let typed = |code: &str| {
            let error = serde_json::json!({"type": "invalid_request_error",
                "message": "messages.3.content.1: 9000 by 200 account for too much", "details": {"error_code": code}});
            let body = serde_json::json!({"type": "error", "error": error}).to_string();
            detect_size_refusal(StatusCode::BAD_REQUEST, body.as_bytes())
        };
        assert_eq!(typed("image_dimensions_too_large"), Some(Images));
        assert_eq!(typed("tool_name_conflict"), None);
        let empty = detect_size_refusal(StatusCode::PAYLOAD_TOO_LARGE, b"");
        assert_eq!(empty, Some(Bytes));
        for (status, message) in [
            (400, "Invalid image URL"),
            (
                400,
                "max_tokens: 65536 exceeds the limit of 32768 for model gemini-2.5-flash-image",
            ),
            (
                400,
                "Invalid 'user': string too long. Expected a string with maximum length 64",
            ),
            (
                400,
                "tools.0.custom.name: 'resize_image' description exceeds 1024 characters",
            ),
            (
                422,
                "Tool 'make_image': object must have a maximum of 100 fields",
            ),
            (
                400,
                "You have exceeded your image quota. Check your billing details.",
            ),
            (
                400,
                "This model does not support image input; at most text may be sent",
            ),
            (
                400,
                "temperature must be at most 1 when image inputs are used",
            ),
            (
                400,
                "Your account is limited: image inputs require verification",
            ),
            (400, "Unable to process: model gpt-image-x not found"),
            (413, "Too many requests, please wait 20s"),
            (413, "Request too large. Limit 30000/min on requests"),
            (400, "max_tokens is too large"),
            (400, "Unsupported parameter: 'temperature'"),
            (
                413,
                "Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 9000",
            ),
            (429, "Too many images"),
            (500, "Could not process image"),
        ] {
            check(status, message, None);
        }
        let page = b"<html><head><title>413 Request Entity Too Large</title></head></html>";
        let found = detect_size_refusal(StatusCode::PAYLOAD_TOO_LARGE, page);
        assert_eq!(found, Some(Bytes));
    }
}
