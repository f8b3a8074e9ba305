//! Refusals of the size of a request that is not its length in tokens: its bytes, or the number, the size or the form of its
//! images. The wordings are of the vendors' documentation and of their errors.

use http::StatusCode;

use super::overflow::read_error_sentences;

/// What was too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeRefusal {
    /// The images: their number, their bytes or pixels, or one that cannot be read.
    Images,
    /// The bytes of the request.
    Bytes,
}

/// Parts of a sentence about images that is a refusal of them.
const OF_IMAGES: &[&str] = &[
    "could not process",
    "unable to process",
    "cannot be processed",
    "too many",
    "too large",
    "exceed",
    "at most",
    "maximum",
    "limit",
];

/// Whole sentences, or parts of them, about the bytes of a request, beside every 413.
const OF_BYTES: &[&str] = &[
    "request_too_large",
    "request exceeds the maximum size",
    "request body too large",
    "request entity too large",
    "payload too large",
    "string too long. expected a string with maximum length",
];

/// A refusal of tokens for a time, which some providers answer with 413.
const OF_RATES: &[&str] = &["per minute", "per day", "rate limit", "tpm"];

/// Judges an answer by its status and its decoded body, after it is known to be no overflow.
pub fn detect_size_refusal(status: StatusCode, body: &[u8]) -> Option<SizeRefusal> {
    let is_large = status == StatusCode::PAYLOAD_TOO_LARGE;
    if !is_large && !matches!(status.as_u16(), 400 | 422) {
        return None;
    }
    let sentences: Vec<String> = read_error_sentences(body).collect();
    let any = |parts: &[&str]| {
        let mut all = sentences.iter();
        all.any(|it| parts.iter().any(|part| it.contains(part)))
    };
    if any(OF_RATES) {
        return None;
    }
    let mut of_images = sentences.iter().filter(|it| it.contains("image"));
    match () {
        () if of_images.any(|it| OF_IMAGES.iter().any(|part| it.contains(part))) => {
            Some(SizeRefusal::Images)
        }
        () if is_large || any(OF_BYTES) => Some(SizeRefusal::Bytes),
        () => None,
    }
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
            "Too many images and documents: 101 + 0 > 100",
            "At most 16 image(s) may be provided in one request.",
            "Invalid request: the maximum number of images is 500",
        ] {
            check(400, message, Some(Images));
        }
        check(413, "Request exceeds the maximum size", Some(Bytes));
        check(413, "Request Entity Too Large", Some(Bytes));
        check(400, "Request body too large for this model", Some(Bytes));
        for (status, message) in [
            (400, "Invalid image URL"),
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
