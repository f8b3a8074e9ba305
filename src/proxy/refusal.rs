//! Whether a provider's error may be about what the proxy added to a request: recovery's additions, or cache markers.
//!
//! Every provider words it differently, so this looks only for evidence against it: an overflow is about the
//! conversation, and most server errors have other reasons. A wrong guess costs one more request, or leaves the client
//! an error that the proxy caused.

use bytes::Bytes;
use http::StatusCode;

use crate::{
    format::refusal::CHAT_TEMPLATE_WORDS,
    provider::overflow::{self, OverflowVerdict},
};

/// Whether an error says that the request itself cannot be accepted.
pub(super) fn is_bad_request(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
    )
}

/// Whether an error may be about what the proxy added. Providers refuse with 400 or 422 what their grammar does not
/// allow; templates of local engines fail with 500.
pub(super) fn refuses_additions(status: StatusCode, text: &Bytes) -> bool {
    let may_refuse = match status {
        _ if is_bad_request(status) => true,
        StatusCode::INTERNAL_SERVER_ERROR => {
            let text = String::from_utf8_lossy(text).to_lowercase();
            CHAT_TEMPLATE_WORDS.iter().any(|word| text.contains(word))
        }
        _ => false,
    };
    may_refuse && overflow::detect_overflow(status, text) == OverflowVerdict::Other
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use http::StatusCode;

    use super::refuses_additions;

    #[test]
    fn an_overflow_is_never_taken_for_a_refusal_of_additions() {
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
            if error["context_overflow"] == true && [400, 422, 500].contains(&status.as_u16()) {
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
    fn refusals_of_additions_differ_from_other_failures() {
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
