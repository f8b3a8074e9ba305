//! Words of providers, recorded and invented.

use std::path::PathBuf;

use super::*;

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
        let error: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let status = error["http_status"].as_u64().unwrap_or(0);
        let status = StatusCode::from_u16(status as u16).unwrap_or(StatusCode::OK);
        if error["context_overflow"] == true && [400, 422, 500].contains(&status.as_u16()) {
            overflows += 1;
            let body = error["body"].as_str().unwrap_or_default().to_owned();
            let request = RefusedRequest {
                takes_markers: true,
                ..full()
            };
            let found = judge_error(Format::Chat, status, &body.into(), request);
            assert!(
                matches!(
                    found,
                    Some(Refusal::OverWindow { .. } | Refusal::WithoutReason)
                ),
                "{} {found:?}",
                path.display()
            );
        }
    }
    assert!(overflows > 20, "the recorded errors are there");
}

#[test]
fn refusals_of_additions_differ_from_other_failures() {
    let request = RefusedRequest {
        has_additions: true,
        ..PLAIN
    };
    let check = |status: u16, text: &'static str, refused: bool| {
        let found = judge(status, text, request);
        assert_eq!(found == Some(Refusal::Additions), refused, "{text}");
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

#[test]
fn refusals_of_usage_differ_from_other_errors() {
    let check = |body: &'static str, refused: bool| {
        assert_eq!(
            refuses_usage(StatusCode::BAD_REQUEST, body.as_bytes()),
            refused,
            "{body}"
        );
    };
    check(
        r#"{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted","input":{"include_usage":true}}]}"#,
        true,
    );
    check(
        r#"{"error_code":"BAD_REQUEST","message":"json: unknown field \"stream_options\""}"#,
        true,
    );
    check(
        r#"{"error":{"message":"Unknown parameter","param":"stream_options.include_usage"}}"#,
        true,
    );
    check("Unrecognized request argument: include_usage", true);
    check(
        r#"{"detail":[{"loc":["body","messages"],"msg":"Field required","input":{"stream_options":{"include_usage":true},"x":["stream_options"]}}]}"#,
        false,
    );
    check(
        r#"{"error":{"message":"context_length_exceeded","param":"messages"}}"#,
        false,
    );
    check("", false);
}
