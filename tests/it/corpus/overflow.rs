//! What an error says, whatever its status and body.

use super::split;
use http::StatusCode;
use plimsoll::{
    format::fault::Fault,
    provider::overflow::{self, Overflow, Verdict},
};

const STATUSES: [u16; 12] = [200, 400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 529];

/// The first byte chooses the status.
pub(super) fn check(data: &[u8]) {
    let (head, body) = split(data, 1);
    let code = STATUSES[usize::from(head[0]) % STATUSES.len()];
    let status = StatusCode::from_u16(code).expect("a status");
    let verdict = overflow::judge(status, body);
    assert_eq!(verdict, overflow::judge(status, body));
    match (code, verdict) {
        (401 | 403 | 404 | 408, verdict) => assert_eq!(verdict, Verdict::Other),
        (429 | 500.., Verdict::Wordless) => panic!("a {code} without words is no refusal"),
        _ => {}
    }
    told(verdict);
    let event = overflow::judge_event(body);
    assert_ne!(event, Verdict::Wordless);
    told(event);
    if let Some(fault) = Fault::read(body) {
        let again = Fault::read(&fault.to_json()).expect("our own spelling of it");
        assert_eq!(again.message, fault.message);
    }
}

/// Numbers that agree with each other, and an error that every client can read.
fn told(verdict: Verdict) {
    let Verdict::Overflow(found) = verdict else {
        return;
    };
    let Overflow {
        prompt_tokens,
        excess,
        ..
    } = found;
    assert!(excess.is_none() || prompt_tokens.is_none(), "{found:?}");
    let _ = found.answer_alone();
    let fault = overflow::classic(found.window, prompt_tokens);
    let read = Fault::read(&fault.to_json()).expect("an error that can be read");
    assert_eq!(read.code.as_deref(), Some("context_length_exceeded"));
}
