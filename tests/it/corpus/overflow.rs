//! What an error response is read as, for any status and body.

use super::split;
use http::StatusCode;
use plimsoll::{
    conversation::Format,
    format::error_body::ErrorBody,
    provider::overflow::{self, Overflow, OverflowVerdict},
};

const STATUSES: [u16; 12] = [200, 400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 529];

/// The first byte chooses the status.
pub(super) fn check(data: &[u8]) {
    let (head, body) = split(data, 1);
    let code = STATUSES[usize::from(head[0]) % STATUSES.len()];
    let status = StatusCode::from_u16(code).expect("a status");
    let verdict = overflow::detect_overflow(status, body);
    assert_eq!(verdict, overflow::detect_overflow(status, body));
    match (code, verdict) {
        (401 | 403 | 404 | 408, verdict) => assert_eq!(verdict, OverflowVerdict::Other),
        (429 | 500.., OverflowVerdict::WithoutReason) => {
            panic!("a {code} without words is no refusal")
        }
        _ => {}
    }
    expected_numbers(verdict);
    let event = overflow::detect_overflow_in_event(body);
    assert_ne!(event, OverflowVerdict::WithoutReason);
    expected_numbers(event);
    if let Some(fault) = ErrorBody::parse_body(body) {
        let again = ErrorBody::parse_body(&fault.to_json()).expect("our own spelling of it");
        assert_eq!(again.message, fault.message);
    }
}

/// The numbers agree with each other, and every client can parse the error.
fn expected_numbers(verdict: OverflowVerdict) {
    let OverflowVerdict::Overflow(found) = verdict else {
        return;
    };
    let Overflow {
        prompt_tokens,
        excess,
        ..
    } = found;
    assert!(excess.is_none() || prompt_tokens.is_none(), "{found:?}");
    let _ = found.is_filled_by_answer();
    let fault = Format::Chat.overflow_error(found.window, prompt_tokens);
    let read = ErrorBody::parse_body(&fault.to_json()).expect("an error that can be read");
    assert_eq!(read.code.as_deref(), Some("context_length_exceeded"));
}
