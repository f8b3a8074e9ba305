//! How an attempt ends, and who is asked then.

use std::time::Duration;

use http::{Response, StatusCode};

use super::*;
use crate::{error::TimeoutStage, relay::BadAnswer, wire::whole_body};

#[test]
fn the_next_candidate_is_asked_where_another_request_may_be_answered() {
    use AttemptEnd as End;
    use NextCandidate::{Larger, Next, SameOrNext};
    let nobody = NextCandidate::None;
    // In each row: alone, where the candidate that the client names still waits, and in a thread.
    for (end, alone, waits, thread) in [
        (End::Answered, nobody, nobody, nobody),
        (End::Refused, nobody, Next, nobody),
        (End::TooLong, Larger, Larger, nobody),
        (End::Busy, SameOrNext, SameOrNext, nobody),
        (End::Failed, SameOrNext, SameOrNext, nobody),
        (End::Denied, Next, Next, nobody),
        (
            End::Unsent { arrived: true },
            SameOrNext,
            SameOrNext,
            nobody,
        ),
        (
            End::Unsent { arrived: false },
            SameOrNext,
            SameOrNext,
            SameOrNext,
        ),
        (End::ClientFailed { arrived: true }, Next, Next, nobody),
        (End::ClientFailed { arrived: false }, Next, Next, Next),
        (End::Failing, SameOrNext, SameOrNext, nobody),
        (End::Broken, nobody, nobody, nobody),
    ] {
        let follow = |named_one_waits, continues_thread| {
            follow_attempt(
                end,
                CandidateFacts {
                    continues_thread,
                    named_one_waits,
                },
            )
        };
        assert_eq!(follow(false, false), alone, "{end:?}");
        assert_eq!(follow(true, false), waits, "{end:?} while another waits");
        assert_eq!(follow(false, true), thread, "{end:?} in a thread");
    }
}

fn reply(status: u16, inner: Option<u16>, too_long: bool) -> Result<ProviderReply, SendError> {
    let code = |status| StatusCode::from_u16(status).unwrap();
    let mut answer = Response::new(whole_body(""));
    *answer.status_mut() = code(status);
    Ok(ProviderReply {
        answer,
        sent: Extras::default(),
        too_long,
        inner: inner.map(code),
    })
}

#[test]
fn an_attempt_ends_by_its_status_or_by_its_failure() {
    use AttemptEnd as End;
    let provider = || "a".to_owned();
    let unreachable = |connected| UpstreamError::Unreachable {
        provider: provider(),
        cause: String::new(),
        connected,
    };
    let timeout = |wait| UpstreamError::Timeout {
        provider: provider(),
        wait,
        limit: Duration::from_secs(1),
    };
    let nameless = UpstreamError::NoModel {
        provider: provider(),
    };
    let bad = || BadAnswer::Broken {
        provider: provider(),
    };
    // In each row: with the client's key, and with the configured one.
    for (result, end, with_own_key) in [
        (reply(200, None, false), End::Answered, End::Answered),
        (reply(302, None, false), End::Refused, End::Refused),
        (reply(400, None, false), End::Refused, End::Refused),
        (reply(400, None, true), End::TooLong, End::TooLong),
        (reply(401, None, false), End::Refused, End::Denied),
        (reply(402, None, false), End::Refused, End::Denied),
        (reply(404, None, false), End::Refused, End::Refused),
        (reply(413, None, false), End::Refused, End::Refused),
        (reply(429, None, false), End::Busy, End::Busy),
        (reply(500, None, false), End::Failed, End::Failed),
        (reply(501, None, false), End::Refused, End::Refused),
        (reply(529, None, false), End::Failed, End::Failed),
        (reply(200, Some(400), false), End::Refused, End::Refused),
        (reply(200, Some(429), false), End::Busy, End::Busy),
        (reply(200, Some(502), false), End::Failed, End::Failed),
        (reply(200, Some(502), true), End::TooLong, End::TooLong),
        (failed(unreachable(false)), unsent(false), unsent(false)),
        (failed(unreachable(true)), unsent(true), unsent(true)),
        (
            failed(timeout(TimeoutStage::Connect)),
            unsent(false),
            unsent(false),
        ),
        (
            failed(UpstreamError::BodyBroken),
            by_client(true),
            by_client(true),
        ),
        (failed(nameless), by_client(false), by_client(false)),
        (Err(SendError::Failing(bad())), End::Failing, End::Failing),
        (Err(SendError::Broken(bad())), End::Broken, End::Broken),
    ] {
        let name = describe(&result);
        assert_eq!(AttemptEnd::from_result(&result, false), end, "{name}");
        assert_eq!(
            AttemptEnd::from_result(&result, true),
            with_own_key,
            "{name}, own key"
        );
    }
}

fn failed(error: UpstreamError) -> Result<ProviderReply, SendError> {
    Err(SendError::Unsent(error))
}

const fn unsent(arrived: bool) -> AttemptEnd {
    AttemptEnd::Unsent { arrived }
}

const fn by_client(arrived: bool) -> AttemptEnd {
    AttemptEnd::ClientFailed { arrived }
}

fn describe(result: &Result<ProviderReply, SendError>) -> String {
    match result {
        Ok(reply) => format!("{} {:?}", reply.answer.status(), reply.inner),
        Err(error) => format!("{error:?}"),
    }
}

/// Whether the circuit counts an end as a failure, its name in metrics, and whether an earlier error is the better answer.
#[test]
fn an_end_has_its_name_and_its_weight() {
    use AttemptEnd as End;
    for (end, is_failure, label, is_less_informative) in [
        (End::Answered, false, "answer", false),
        (End::Refused, false, "answer", true),
        (End::TooLong, false, "answer", true),
        (End::Busy, false, "busy", false),
        (End::Failed, true, "failed", false),
        (End::Denied, false, "denied", true),
        (unsent(true), true, "unsent", true),
        (by_client(true), false, "unsent", true),
        (End::Failing, true, "failed", true),
        (End::Broken, true, "failed", true),
    ] {
        let found = (end.is_failure(), end.label(), end.is_less_informative());
        assert_eq!(found, (is_failure, label, is_less_informative), "{end:?}");
    }
}
