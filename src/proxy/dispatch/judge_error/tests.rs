//! One row for each rule, and one for each rule that another one comes before.

mod words;

use super::*;
use crate::{
    format::block_binding::MismatchField,
    provider::{overflow::Overflow, thinking_refusal::ThinkingRefusal},
};

const UNCLEAR: &str = r#"{"error":{"message":"Extra inputs are not permitted"}}"#;
const OVERFLOW: &str = r#"{"error":{"message":"This model's maximum context length is 4096 tokens.","code":"context_length_exceeded"}}"#;
const SIGNATURE: &str =
    r#"{"error":{"message":"messages.1.content.0: Invalid `signature` in `thinking` block"}}"#;
const BINDING: &str = r#"{"error":{"message":"thinking.block_binding.prefix_mismatch_behavior: Extra inputs are not permitted"}}"#;
const NO_USAGE: &str = r#"{"error":{"message":"Unknown parameter: stream_options"}}"#;
const NO_COMPACTION: &str = r#"{"error":{"message":"compaction: Extra inputs are not permitted"}}"#;
const COMPACTION_ADVICE: &str = r#"{"error":{"message":"This model's maximum context length is 4096 tokens. Use compaction.","code":"context_length_exceeded"}}"#;
const NO_BETA: &str =
    r#"{"error":{"message":"The long context beta is not yet available for this subscription."}}"#;
const MINUTE: &str = r#"{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 60000. The input or output tokens must be reduced in order to run successfully."}}"#;
const IMAGES: &str = r#"{"error":{"message":"Too many images and documents: 101 + 0 > 100"}}"#;
const BYTES: &str = r#"{"error":{"message":"Request body too large"}}"#;
const ODD_WORDS: &str = r#"{"error":{"message":"the frobnicator is full"}}"#;
const TEMPLATE: &str = r#"{"error":{"message":"Jinja template: roles must alternate"}}"#;

/// A request to which the proxy added nothing.
const PLAIN: RefusedRequest = RefusedRequest {
    sent: Extras {
        usage: false,
        markers: false,
        drop_by: None,
        thinking_off: false,
        filling: AnswerFilling::Nothing,
    },
    window_betas: 0,
    has_client_betas: false,
    has_provider_summary: false,
    has_additions: false,
    takes_markers: false,
    tries_drop: false,
};

fn sent(change: impl FnOnce(&mut Extras)) -> RefusedRequest {
    let mut request = PLAIN;
    change(&mut request.sent);
    request
}

/// A request with all that an unclear refusal may be of.
fn full() -> RefusedRequest {
    let mut request = sent(|it| {
        it.markers = true;
        it.filling = AnswerFilling::ByName;
    });
    request.has_additions = true;
    request
}

fn judge(status: u16, text: &'static str, request: RefusedRequest) -> Option<Refusal> {
    let status = StatusCode::from_u16(status).unwrap();
    judge_error(Format::Chat, status, &text.into(), request)
}

fn too_long(window: u32, classic: bool) -> Option<Refusal> {
    Some(Refusal::OverWindow {
        overflow: Overflow {
            window: Some(window),
            ..Overflow::default()
        },
        classic,
        by_one_host: false,
    })
}

fn unknown(wording: &str, size: Option<SizeRefusal>) -> Option<Refusal> {
    let wording = wording.to_owned();
    Some(Refusal::Unknown { wording, size })
}

fn to_drop(named: bool, by_name: bool) -> Option<Refusal> {
    Some(Refusal::ToDrop { named, by_name })
}

/// A row of the table: a name, a status, an error, the refused request, and what is refused.
type Row = (
    &'static str,
    u16,
    &'static str,
    RefusedRequest,
    Option<Refusal>,
);

#[track_caller]
fn check_rows(rows: impl IntoIterator<Item = Row>) {
    for (name, status, text, request, expected) in rows {
        assert_eq!(judge(status, text, request), expected, "{name}");
    }
}

#[test]
fn an_error_refuses_what_the_first_rule_that_fits_says() {
    use Refusal::{
        Markers, OverMinuteLimit, OverSize, Summary, Thinking, Usage, WindowBeta, WithoutReason,
    };
    let asks_usage = sent(|it| it.usage = true);
    let asks_to_drop = sent(|it| it.drop_by = Some(MismatchField::Prefix));
    let has_markers = sent(|it| it.markers = true);
    let with_beta = RefusedRequest {
        window_betas: 1,
        ..PLAIN
    };
    let with_summary = RefusedRequest {
        has_provider_summary: true,
        ..PLAIN
    };
    let tries_drop = RefusedRequest {
        tries_drop: true,
        ..PLAIN
    };
    let minute = Overflow {
        window: Some(30_000),
        requested: Some(60_000),
        ..Overflow::default()
    };
    let with_additions = RefusedRequest {
        has_additions: true,
        ..PLAIN
    };
    let signature = || Some(Thinking(ThinkingRefusal::Signature));
    let bytes = Some(OverSize(SizeRefusal::Bytes));
    let no_summary = Some(Summary(SummaryRefusal::Unknown));
    #[rustfmt::skip]
    check_rows([
        ("usage", 400, NO_USAGE, asks_usage, Some(Usage)),
        ("usage that the client asks for", 400, NO_USAGE, PLAIN, None),
        ("the beta of a window", 400, NO_BETA, with_beta, Some(WindowBeta)),
        ("the beta, in a 429", 429, NO_BETA, with_beta, Some(WindowBeta)),
        ("a summary", 400, NO_COMPACTION, with_summary, no_summary),
        ("an overflow with advice", 400, COMPACTION_ADVICE, with_summary, too_long(4096, true)),
        ("thinking", 400, SIGNATURE, PLAIN, signature()),
        ("thinking, with all additions", 400, SIGNATURE, full(), signature()),
        ("an overflow", 400, OVERFLOW, full(), too_long(4096, true)),
        ("an overflow in a 413", 413, OVERFLOW, full(), too_long(4096, false)),
        ("an overflow in a 500", 500, OVERFLOW, full(), too_long(4096, false)),
        ("an overflow, asked to drop", 400, OVERFLOW, tries_drop, too_long(4096, true)),
        ("the member that drops thinking", 400, BINDING, asks_to_drop, to_drop(true, true)),
        ("perhaps that member", 400, UNCLEAR, tries_drop, to_drop(false, false)),
        ("perhaps that member, no words", 400, "", tries_drop, to_drop(false, false)),
        ("not that member", 500, TEMPLATE, tries_drop, None),
        ("bytes, no words", 413, "", full(), bytes),
        ("no words", 400, "", PLAIN, Some(WithoutReason)),
        ("no words, markers", 400, "", has_markers, Some(Markers)),
        ("no words, additions", 400, "", with_additions, Some(WithoutReason)),
        ("a limit a minute", 429, MINUTE, full(), Some(OverMinuteLimit(minute))),
        ("a busy provider", 429, UNCLEAR, full(), None),
        ("a failing provider", 500, UNCLEAR, full(), None),
        ("a refused key", 401, UNCLEAR, full(), None),
    ]);
}

#[test]
fn an_unclear_refusal_is_of_the_least_addition_first() {
    use Refusal::{Additions, Filling, Markers, OverSize};
    let knows_markers = RefusedRequest {
        takes_markers: true,
        ..full()
    };
    let filled = sent(|it| it.filling = AnswerFilling::ByName);
    let filled_after_refusal = sent(|it| it.filling = AnswerFilling::All);
    let with_additions = RefusedRequest {
        has_additions: true,
        ..PLAIN
    };
    let odd = |size| unknown("the frobnicator is full", size);
    let [images, bytes] = [SizeRefusal::Images, SizeRefusal::Bytes];
    #[rustfmt::skip]
    check_rows([
        ("markers first", 400, UNCLEAR, full(), Some(Markers)),
        ("then members of answers", 400, UNCLEAR, knows_markers, Some(Filling)),
        ("members alone", 422, UNCLEAR, filled, Some(Filling)),
        ("members that were demanded", 422, UNCLEAR, filled_after_refusal, None),
        ("then recovery's additions", 400, UNCLEAR, with_additions, Some(Additions)),
        ("a chat template", 500, TEMPLATE, with_additions, Some(Additions)),
        ("nothing was added", 400, ODD_WORDS, PLAIN, odd(None)),
        ("images", 400, IMAGES, full(), Some(OverSize(images))),
        ("bytes", 413, BYTES, full(), Some(OverSize(bytes))),
        ("a 413 in unknown words", 413, ODD_WORDS, full(), odd(Some(bytes))),
    ]);
}

#[test]
fn an_error_inside_a_success_is_not_about_additions() {
    let event = |text: &'static str, classic| judge_event(&text.into(), classic);
    let whole = |text: &'static str| judge_success(&text.into());
    let odd = || unknown("the frobnicator is full", None);
    let signature = || Some(Refusal::Thinking(ThinkingRefusal::Signature));
    #[rustfmt::skip]
    let rows = [
        ("thinking", whole(SIGNATURE), signature()),
        ("thinking in an event", event(SIGNATURE, false), signature()),
        ("an overflow", whole(OVERFLOW), too_long(4096, false)),
        ("an overflow in an event", event(OVERFLOW, true), too_long(4096, true)),
        ("unknown words", whole(ODD_WORDS), odd()),
        ("unknown words in an event", event(ODD_WORDS, true), odd()),
        ("an answer", whole(r#"{"choices":[]}"#), None),
        ("nothing", whole(""), None),
    ];
    for (name, found, expected) in rows {
        assert_eq!(found, expected, "{name}");
    }
}
