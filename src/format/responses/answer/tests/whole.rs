//! Whole answers, and how they ended.

use super::{AnswerEvents, EventKind, found, read};
use crate::format::{FinishKind, answer::usage::Usage};

#[test]
fn whole_answers_are_read() {
    let json = r#"{"id":"r","object":"response","status":"completed","error":null,"text":{"format":{}},
        "output":[{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"s"}],"content":[{"type":"reasoning_text","text":"t"}]},
        {"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"},{"type":"output_text","text":"b"}]},
        {"type":"function_call","call_id":"c","name":"n","arguments":"{}"},{"type":"local_shell_call","call_id":"d"},
        {"type":"x_new","text":"e"},null,7],
        "usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":4},"output_tokens":5,"total_tokens":35},"store":false}"#;
    let answer = read(json);
    assert_eq!(answer.kind, EventKind::Response);
    assert!(answer.has_message() && !answer.is_end() && answer.response.is_unstored);
    let events = found(&answer, json);
    let expected = [
        "usage",
        "reasoning s",
        "reasoning t",
        "text a",
        "text b",
        "call c n",
        "call d ",
        "finish Calls",
        "id r",
    ];
    assert_eq!(events, expected);
    assert_eq!(
        answer.iter_reports().next().unwrap().usage,
        Some(Usage {
            prompt_tokens: 30,
            completion_tokens: Some(5),
            cached_tokens: Some(20),
            cache_written_tokens: Some(4),
        })
    );
}

#[test]
fn the_status_says_how_an_answer_ended() {
    let details = |reason: &str| format!(r#","incomplete_details":{{"reason":"{reason}"}}"#);
    let error = r#","error":{"code":"server_error","message":"m"}"#;
    for (status, more, expected) in [
        ("completed", "", vec!["finish Other"]),
        ("incomplete", "", vec!["finish CutOff"]),
        (
            "incomplete",
            &details("max_output_tokens"),
            vec!["finish CutOff"],
        ),
        (
            "incomplete",
            &details("content_filter"),
            vec!["finish CutOff"],
        ),
        ("cancelled", "", vec!["finish CutOff"]),
        ("failed", error, vec!["error"]),
        ("failed", "", vec!["error"]),
        ("error", error, vec!["error"]),
        ("queued", "", vec![]),
        ("in_progress", "", vec![]),
    ] {
        let json = format!(r#"{{"id":"r","status":"{status}","output":[]{more}}}"#);
        let expected = [&expected[..], &["id r"]].concat();
        assert_eq!(found(&read(&json), &json), expected, "{json}");
    }
    // Without a status, the type of the last event says it.
    for (kind, expected) in [
        ("completed", FinishKind::Other),
        ("incomplete", FinishKind::CutOff),
    ] {
        let data = format!(r#"{{"type":"response.{kind}","response":{{}}}}"#);
        assert_eq!(read(&data).find_finish().unwrap().kind, expected, "{data}");
    }
    let cut = format!(
        r#"{{"status":"incomplete"{}}}"#,
        details("max_output_tokens")
    );
    let reason = read(&cut).find_finish().unwrap().reason;
    assert_eq!(&cut[reason.span.range()], "max_output_tokens");
    for body in [
        r#"{"error":{"message":"m"}}"#,
        r#"{"error":"m","status":400}"#,
    ] {
        assert!(
            read(body).has_error() && !read(body).has_message(),
            "{body}"
        );
    }
    assert_eq!(FinishKind::CutOff, read(&cut).find_finish().unwrap().kind);
}
