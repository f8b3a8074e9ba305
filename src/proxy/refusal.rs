//! Whether a provider's error may be about what recovery added to a request.
//!
//! Providers say so in as many ways as there are of them, so nothing is looked for but what speaks
//! against it: an overflow is about the conversation, and a server that fails for reasons of its own
//! is not asked twice. A wrong guess costs one request more, or leaves an error that was ours.

use bytes::Bytes;
use http::StatusCode;

use crate::format::refusal::CHAT_TEMPLATE_WORDS;
use crate::provider::overflow::{self, OverflowVerdict};

/// Statuses with which providers refuse what their grammar does not allow; templates of local
/// engines fail with a 500.
pub(super) fn may_refuse(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::UNPROCESSABLE_ENTITY
            | StatusCode::INTERNAL_SERVER_ERROR
    )
}

/// Whether an error of such a status may be about what recovery added.
pub(super) fn refuses_additions(status: StatusCode, text: &Bytes) -> bool {
    if overflow::detect_overflow(status, text) != OverflowVerdict::Other {
        return false;
    }
    let text = String::from_utf8_lossy(text).to_lowercase();
    status != StatusCode::INTERNAL_SERVER_ERROR
        || CHAT_TEMPLATE_WORDS.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use http::StatusCode;

    use super::{may_refuse, refuses_additions};

    #[test]
    fn an_overflow_is_never_taken_for_a_refusal_of_ours() {
        let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        let data = std::env::var_os("PLIMSOLL_DATA").map_or(beside, PathBuf::from);
        let Ok(errors) = std::fs::read_dir(data.join("errors")) else {
            println!("the recorded errors are absent");
            return;
        };
        let mut overflows = 0;
        for entry in errors {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|kind| kind != "json") {
                continue;
            }
            let error: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            let status = error["http_status"].as_u64().unwrap_or(0);
            let status = StatusCode::from_u16(status as u16).unwrap_or(StatusCode::OK);
            if error["context_overflow"] == true && may_refuse(status) {
                overflows += 1;
                let body = error["body"].as_str().unwrap_or_default().to_owned();
                assert!(
                    !refuses_additions(status, &body.into()),
                    "{}",
                    path.display()
                );
            }
        }
        assert!(overflows > 20, "the recorded errors are there");
    }

    #[test]
    fn refusals_are_told_from_failures() {
        let check = |status: u16, text: &'static str, refused: bool| {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(refuses_additions(status, &text.into()), refused, "{text}");
        };
        check(400, "messages with role 'tool' must be a response", true);
        check(422, "Extra inputs are not permitted", true);
        check(
            400,
            "Invalid 'tools[3].function.description': string too long. Expected a string with maximum length 1024",
            true,
        );
        check(500, "Jinja template: roles must alternate", true);
        check(500, "out of memory", false);
        check(
            400,
            r#"{"error":{"message":"too much","code":"context_length_exceeded"}}"#,
            false,
        );
    }
}
