use http::StatusCode;
use proptest::prelude::*;
use serde_json::json;

use super::{
    Overflow, OverflowVerdict, detect_overflow, detect_overflow_in_event, hide_private,
    read_request_limit, read_unknown_wording,
};
use crate::conversation::Format;

fn judged(status: u16, body: &str) -> OverflowVerdict {
    detect_overflow(StatusCode::from_u16(status).unwrap(), body.as_bytes())
}

fn is_overflow(status: u16, body: &str) -> bool {
    matches!(judged(status, body), OverflowVerdict::Overflow(_))
}

const OVERFLOW: &str = "This model's maximum context length is 8000 tokens.";

#[test]
fn wordings_of_this_autumn_are_read() {
    for (message, expected) in [
        (
            "The input token count is 32825 but model only supports up to 32768",
            Overflow {
                prompt_tokens: Some(32_825),
                prompt_limit: Some(32_768),
                ..Overflow::default()
            },
        ),
        (
            "max_completion_tokens=99002 cannot be greater than max_model_len=max_total_tokens=65536. Please request fewer output tokens.",
            Overflow {
                answer: Some(99_002),
                window: Some(65_536),
                ..Overflow::default()
            },
        ),
        (
            "prompt_too_long: the prompt has 41000 tokens, max prompt/context tokens is 32768",
            Overflow {
                prompt_tokens: Some(41_000),
                window: Some(32_768),
                ..Overflow::default()
            },
        ),
    ] {
        let body = json!({"error": {"message": message, "code": 400}}).to_string();
        assert_eq!(
            judged(400, &body),
            OverflowVerdict::Overflow(expected),
            "{message}"
        );
    }
}

#[test]
fn a_repeated_request_is_never_read() {
    // An overflow, in every field where validators and proxies repeat a request.
    for body in [
        json!({ "detail": [{ "type": "string_type", "loc": ["body", "messages", 0], "msg": "Input should be a valid string", "input": OVERFLOW, "ctx": { "error": OVERFLOW } }] }),
        json!({ "error": { "message": "Bad request", "code": 400 }, "request": { "message": OVERFLOW } }),
        json!({ "error": { "message": "Bad request", "param": OVERFLOW, "failed_generation": OVERFLOW } }),
        json!({ "message": "Bad request", "metadata": { "raw": OVERFLOW }, "body": OVERFLOW }),
        json!({ "error": { "message": format!("1 validation error [type=string_type, input_value='{OVERFLOW}', input_type=str]") } }),
        json!({ "error": { "message": format!("Invalid value: '{OVERFLOW}'. Supported values are: 'a' and 'b'.") } }),
        json!({ "error": { "message": format!("litellm: bad messages=[{{'role': 'user', 'content': '{OVERFLOW}'}}]") } }),
        json!({ "error": { "message": format!("bad {}", json!({ "messages": [{ "content": OVERFLOW }] })) } }),
        json!({ "error": { "message": format!("bad stop: {}", json!([OVERFLOW])) } }),
        json!({ "object": "error", "message": { "detail": [{ "msg": "no", "input": { "error": { "message": OVERFLOW } } }] } }),
    ] {
        let body = body.to_string();
        let found = judged(400, &body);
        assert_eq!(found, OverflowVerdict::Other, "{body}");
        // The same body, when it breaks off somewhere.
        for end in 0..body.len() {
            let cut = &body.as_bytes()[..end];
            let found = detect_overflow(StatusCode::BAD_REQUEST, cut);
            let is_overflow = matches!(found, OverflowVerdict::Overflow(_));
            assert!(!is_overflow, "{}", &body[..end]);
        }
    }
}

#[test]
fn a_rate_limit_in_a_repeated_request_is_not_read() {
    let body = json!({
        "error": { "message": OVERFLOW, "code": 400 },
        "input": "rate limit, per minute, quota",
        "detail": [{ "input": "429 Too many requests" }],
    });
    assert!(is_overflow(400, &body.to_string()));
}

#[test]
fn an_error_that_a_gateway_quotes_is_read() {
    let inner = json!({ "error": { "message": OVERFLOW, "code": 400 } }).to_string();
    for body in [
        json!({ "error": { "message": "Provider returned error", "metadata": { "raw": inner } } }),
        json!({ "error": { "message": "Provider returned error", "metadata": { "raw": OVERFLOW } } }),
        json!({ "error": { "message": format!("BadRequestError: OpenAIException - {inner}") } }),
        json!({ "error": { "message": format!("Error code: 400 - {{'error': {{'message': \"{OVERFLOW}\", 'type': 'BadRequestError'}}}}") } }),
        json!({ "error": { "message": json!({ "error": inner }).to_string() } }),
        json!([{ "error": { "message": OVERFLOW } }]),
        json!({ "errors": [{ "message": OVERFLOW }] }),
        json!({ "detail": OVERFLOW }),
        json!({ "error": OVERFLOW }),
        json!(OVERFLOW),
    ] {
        let OverflowVerdict::Overflow(found) = judged(400, &body.to_string()) else {
            panic!("{body}");
        };
        assert_eq!(found.window, Some(8_000), "{body}");
    }
}

#[test]
fn the_outer_error_decides() {
    let body = |outer: &str, inner: &str| {
        let previous = json!([{ "message": inner }]);
        json!({ "error": { "message": outer, "metadata": { "previous_errors": previous } } })
            .to_string()
    };
    let limited = "Too many requests; retry later";
    assert!(is_overflow(400, &body(OVERFLOW, limited)));
    assert!(!is_overflow(400, &body(limited, OVERFLOW)));
    assert!(is_overflow(400, &body("Provider returned error", OVERFLOW)));
}

#[test]
fn the_status_decides_which_wordings_are_believed() {
    let code = r#"{"error":{"message":"no","code":"context_length_exceeded"}}"#;
    let sure = json!({ "error": { "message": OVERFLOW } }).to_string();
    let vague = r#"{"error":{"message":"Too many tokens"}}"#;
    for status in [400, 413, 422] {
        for body in [code, &sure, vague] {
            assert!(is_overflow(status, body), "{status} {body}");
        }
    }
    for status in [429, 500, 502, 503] {
        assert!(is_overflow(status, code) && is_overflow(status, &sure));
        assert!(!is_overflow(status, vague), "{status}");
    }
    for status in [301, 401, 402, 403, 404, 409] {
        for body in [code, &sure, vague] {
            let found = judged(status, body);
            assert_eq!(found, OverflowVerdict::Other, "{status} {body}");
        }
    }
}

#[test]
fn an_empty_refusal_is_no_overflow_by_itself() {
    for body in ["", " \r\n", "{}", "null", "\"\""] {
        assert_eq!(
            judged(400, body),
            OverflowVerdict::WithoutReason,
            "{body:?}"
        );
        assert_eq!(
            judged(413, body),
            OverflowVerdict::WithoutReason,
            "{body:?}"
        );
        assert_eq!(judged(500, body), OverflowVerdict::Other, "{body:?}");
    }
    let said = r#"{"error":{"message":"400 status code (no body)"}}"#;
    assert_eq!(judged(400, said), OverflowVerdict::WithoutReason);
    assert_eq!(judged(500, said), OverflowVerdict::Other);
    assert_eq!(judged(200, ""), OverflowVerdict::WithoutReason);
    assert_eq!(judged(200, "{}"), OverflowVerdict::Other);
    // A 413 with a text is about bytes.
    let bytes = r#"{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}"#;
    assert_eq!(judged(413, bytes), OverflowVerdict::Other);
    let page = "<html><head><title>413 Request Entity Too Large</title></head></html>";
    assert_eq!(judged(413, page), OverflowVerdict::Other);
    let bytes = "Request payload size exceeds the limit: 20971520 bytes.";
    assert_eq!(judged(400, bytes), OverflowVerdict::Other);
}

#[test]
fn a_success_is_an_error_only_without_choices() {
    let error = json!({ "message": OVERFLOW });
    assert!(is_overflow(200, &json!({ "error": error }).to_string()));
    let choice = json!([{ "message": { "content": OVERFLOW } }]);
    for body in [
        json!({ "error": error, "choices": choice }),
        json!({ "error": null, "choices": choice }),
        json!({ "error": null, "message": OVERFLOW }),
        json!({ "message": OVERFLOW }),
    ] {
        let found = judged(200, &body.to_string());
        assert_eq!(found, OverflowVerdict::Other, "{body}");
    }
    assert_eq!(judged(200, OVERFLOW), OverflowVerdict::Other);
}

#[test]
fn the_first_event_of_a_stream_may_be_an_error() {
    let error = json!({ "message": OVERFLOW, "type": "BadRequestError", "code": 400 });
    for event in [
        json!({ "error": error }),
        json!({ "error": { "object": "error", "message": OVERFLOW } }),
        json!({ "error": OVERFLOW }),
        json!({ "object": "error", "message": OVERFLOW, "type": "BadRequestError", "param": null, "code": 400 }),
        json!({ "type": "error", "code": "context_length_exceeded", "message": "m", "param": null, "sequence_number": 1 }),
        json!({ "type": "error", "error": { "type": "invalid_request_error", "message": OVERFLOW } }),
        json!({ "type": "response.failed", "response": { "instructions": "rate limit", "metadata": { "message": "quota" }, "error": { "code": "context_length_exceeded", "message": "m" } } }),
        json!({ "error": { "code": 400, "message": "m", "type": "exceed_context_size_error", "n_prompt_tokens": 14_429, "n_ctx": 8_192 } }),
        json!({ "id": "gen-1", "choices": [{ "delta": {}, "finish_reason": "error" }], "error": error }),
        json!({ "code": 20_015, "message": "length of prompt_tokens (68957) must be less than max_seq_len (65536).", "data": null }),
    ] {
        let found = detect_overflow_in_event(event.to_string().as_bytes());
        assert!(matches!(found, OverflowVerdict::Overflow(_)), "{event}");
    }
    for event in [
        json!({ "choices": [{ "delta": { "content": OVERFLOW } }] }),
        json!({ "choices": [{ "delta": { "content": OVERFLOW } }], "error": null }),
        json!({ "choices": [], "prompt_filter_results": [{ "code": "context_length_exceeded" }] }),
        json!({ "type": "response.created", "response": { "error": null, "instructions": OVERFLOW, "metadata": { "message": OVERFLOW } } }),
        json!({ "type": "message_start", "message": { "role": "assistant", "content": OVERFLOW } }),
        json!({ "error": { "message": "Rate limit reached", "code": 429 } }),
        json!({ "error": { "message": "" } }),
    ] {
        let found = detect_overflow_in_event(event.to_string().as_bytes());
        assert_eq!(found, OverflowVerdict::Other, "{event}");
    }
    for data in ["", "[DONE]", OVERFLOW] {
        let found = detect_overflow_in_event(data.as_bytes());
        assert_eq!(found, OverflowVerdict::Other, "{data}");
    }
}

#[test]
fn answers_of_messages_are_no_errors_but_their_error_events_are() {
    let words = "prompt is too long: 210000 tokens > 200000 maximum";
    let error =
        json!({"type": "error", "error": {"type": "invalid_request_error", "message": words}});
    let found = detect_overflow_in_event(error.to_string().as_bytes());
    let OverflowVerdict::Overflow(overflow) = found else {
        panic!("{found:?}")
    };
    assert_eq!(
        (overflow.prompt_tokens, overflow.prompt_limit),
        (Some(210_000), Some(200_000))
    );
    assert!(is_overflow(400, &error.to_string()));
    let content = json!([{"type": "text", "text": words}]);
    let message =
        json!({"type": "message", "content": content, "stop_reason": "end_turn", "error": null});
    for event in [
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}),
        message.clone(),
    ] {
        let found = detect_overflow_in_event(event.to_string().as_bytes());
        assert_eq!(found, OverflowVerdict::Other, "{event}");
        assert_eq!(
            judged(200, &event.to_string()),
            OverflowVerdict::Other,
            "{event}"
        );
    }
}

#[test]
fn only_the_beginning_of_a_long_body_is_read() {
    let long = "x".repeat(1 << 20);
    let body = json!({ "error": { "message": OVERFLOW, "request": long } }).to_string();
    assert!(is_overflow(400, &body));
    let body = format!("{long}{OVERFLOW}");
    assert_eq!(judged(400, &body), OverflowVerdict::Other);
    // A lone surrogate in a skipped field does no harm.
    let body = format!(r#"{{"input":"\ud83d","error":{{"message":"{OVERFLOW}"}}}}"#);
    assert!(is_overflow(400, &body));
}

#[test]
fn an_answer_that_fills_the_window_is_detected() {
    let sizes = |prompt: u32, requested: u32| Overflow {
        window: Some(8_000),
        prompt_tokens: Some(prompt),
        requested: Some(requested),
        ..Overflow::default()
    };
    assert!(sizes(100, 8_100).is_filled_by_answer());
    assert!(!sizes(5_000, 9_000).is_filled_by_answer());
    assert!(!Overflow::default().is_filled_by_answer());
    // The prompt is counted in characters, so only the answer is known.
    let body = "You passed 900 input characters and requested 8000 output tokens. However, the \
                model's context length is only 8000 tokens.";
    let OverflowVerdict::Overflow(found) = judged(400, body) else {
        panic!("{body}");
    };
    assert_eq!((found.answer, found.prompt_tokens), (Some(8_000), None));
    assert!(found.is_filled_by_answer());
}

fn unknown(status: u16, body: &str) -> Option<String> {
    read_unknown_wording(StatusCode::from_u16(status).unwrap(), body.as_bytes())
}

#[test]
fn a_wording_is_unknown_only_in_a_refusal_of_no_known_kind() {
    let body = json!({"error": {"message": "E-4711: \"declined\"", "type": "invalid_request_error", "code": 4711, "param": null}});
    let body = body.to_string();
    let words = "4711; invalid_request_error; e-4711: declined";
    for status in [200, 400, 413, 422] {
        assert_eq!(unknown(status, &body).as_deref(), Some(words), "{status}");
    }
    for status in [401, 403, 404, 429, 500] {
        assert_eq!(unknown(status, &body), None, "{status}");
    }
    assert_eq!(unknown(400, "Zu viel.").as_deref(), Some("zu viel."));
    assert_eq!(unknown(400, ""), None);
    // An answer is no error.
    assert_eq!(unknown(200, r#"{"choices":[{"index":0}]}"#), None);
    for error in [
        json!({"message": "No.", "param": "temperature"}),
        json!({"message": "No.", "param": "messages[3].content"}),
        json!({"message": "No.", "code": "invalid_api_key"}),
        json!({"message": "No.", "code": 429}),
        json!({"message": "No.", "type": "overloaded_error"}),
        json!({"message": "messages.3.content.1.text: No."}),
        json!({"message": "Rate limit reached"}),
        json!({"message": "The image is bad"}),
        json!({"message": "tool_call_id 'x' was declined"}),
    ] {
        let body = json!({ "error": error }).to_string();
        assert_eq!(unknown(400, &body), None, "{body}");
    }
    for param in ["messages", "input", "max_tokens"] {
        let body = json!({"error": {"message": "No.", "param": param}}).to_string();
        assert_eq!(unknown(400, &body).as_deref(), Some("no."), "{param}");
    }
}

#[test]
fn what_a_wording_repeats_of_the_request_is_hidden() {
    let request = br#"{"content":"My Secret Plan is to sail"}"#;
    let shown = hide_private("declined: my secret plan is to sail away, e-4711", request);
    assert!(
        !shown.contains("secret") && shown.starts_with("declined"),
        "{shown}"
    );
    assert!(shown.ends_with("away, e-4711"), "{shown}");
    assert_eq!(hide_private("上下文", "上下文".as_bytes()), "上下文");
    let long = "我的秘密计划是出海远航去";
    assert!(!hide_private(&format!("拒绝：{long}"), long.as_bytes()).contains("秘密"));
}

#[test]
fn what_may_be_a_key_or_somebodys_name_is_hidden_in_a_wording() {
    for (wording, shown) in [
        (
            "schluessel bearer 0123456789abcdef0123456789abcdef hat keinen zugang",
            "schluessel bearer … hat keinen zugang",
        ),
        ("key 'sk-proj-abc123def456' is odd", "key '…' is odd"),
        ("basic correcthorse: no", "basic … no"),
        ("api_key=hunter, from 10.0.0.1: no", "…, from … no"),
        ("your token: hunter", "your token: …"),
        ("pa$$w0rd!x is wrong", "… is wrong"),
        ("too long...", "too long..."),
        ("密钥ghp_abcdefghijklmnopqrstuvwxyz无效", "密钥…无效"),
        (
            "no access for me@example.com (4711471147114711)",
            "no access for … (…)",
        ),
        (
            "context_length_exceeded: 140000 tokens > 131,072 (code e-4711)",
            "context_length_exceeded: 140000 tokens > 131,072 (code e-4711)",
        ),
    ] {
        assert_eq!(hide_private(wording, b"{}"), shown);
    }
}

#[test]
fn a_limit_a_minute_counts_where_the_one_request_is_beyond_it() {
    let read = |status: u16, message: &str| {
        let body = json!({"error": {"message": message, "code": "rate_limit_exceeded"}});
        read_request_limit(
            StatusCode::from_u16(status).unwrap(),
            body.to_string().as_bytes(),
        )
    };
    let words = |limit: u32, asked: u32| {
        format!(
            "Request too large for m on tokens per min (TPM): Limit {limit}, Requested {asked}."
        )
    };
    let found = read(429, &words(6_000, 9_000)).unwrap();
    assert_eq!((found.window, found.requested), (Some(6_000), Some(9_000)));
    assert_eq!(read(429, &words(9_000, 6_000)), None);
    assert_eq!(read(500, &words(6_000, 9_000)), None);
    let used = "Rate limit reached on tokens per min (TPM): Limit 6000, Used 5000, Requested 2000.";
    assert_eq!(read(429, used), None);
    assert_eq!(
        read(429, "Rate limit reached on requests: Limit 3, Requested 9"),
        None
    );
    let anthropic = "This request would exceed your organization's rate limit of 30,000 input tokens per minute";
    assert_eq!(read(429, anthropic).unwrap().prompt_limit, Some(30_000));
}

#[test]
fn the_error_for_clients_leaves_unknown_numbers_out() {
    let message = |window, prompt| Format::Chat.overflow_error(window, prompt).message;
    assert_eq!(
        message(Some(4_097), Some(4_294)),
        "This model's maximum context length is 4097 tokens. However, your messages resulted in \
         4294 tokens. Please reduce the length of the messages."
    );
    assert!(!message(None, Some(4_294)).contains("4097"));
    assert!(!message(Some(4_097), None).contains("4294"));
    assert!(message(Some(4_097), Some(4_000)).contains("too little room"));
    let fault = Format::Chat.overflow_error(None, None);
    assert_eq!(fault.kind.as_deref(), Some("invalid_request_error"));
    assert_eq!(fault.param.as_deref(), Some("messages"));
    assert_eq!(fault.code.as_deref(), Some("context_length_exceeded"));
}

proptest! {
    #[test]
    fn the_error_for_clients_is_detected_as_an_overflow(window: Option<u32>, prompt: Option<u32>) {
        let mut fault = Format::Chat.overflow_error(window, prompt);
        for code in [fault.code.clone(), None] {
            fault.code = code;
            let expected = Overflow { window, prompt_tokens: prompt, ..Overflow::default() };
            let found = detect_overflow(StatusCode::BAD_REQUEST, &fault.to_json());
            prop_assert_eq!(found, OverflowVerdict::Overflow(expected));
        }
    }

    #[test]
    fn no_bytes_panic(body: Vec<u8>, status in 100_u16..600) {
        let status = StatusCode::from_u16(status).unwrap();
        detect_overflow(status, &body);
        detect_overflow_in_event(&body);
        read_request_limit(status, &body);
        if let Some(words) = read_unknown_wording(status, &body) {
            hide_private(&words, &body);
        }
    }

    /// Pieces of errors in any order.
    #[test]
    fn no_pieces_panic(pieces in prop::collection::vec(
        prop::sample::select(vec![
            "{", "}", "[", "]", "\"", ":", ",", "\\", "\\u", "\\ud83d", "error", "\"error\":",
            "\"message\":", "\"metadata\":{\"raw\":", "\"code\":", "maximum context length is ",
            "9", "99999999999", ",000", ".5", "é", "超长", " tokens", "{\\\"error\\\":", "null",
            "\"n_ctx\":", "-1", "\"choices\":", "data: ", "\u{feff}", "max_tokens must be at least 1, got -",
        ]), 0..40))
    {
        let body = pieces.concat();
        detect_overflow(StatusCode::BAD_REQUEST, body.as_bytes());
        detect_overflow_in_event(body.as_bytes());
    }
}

/// Anthropic's `error.details.error_code` says what an error is about, whatever its words.
#[test]
fn a_code_that_is_about_something_else_rules_an_overflow_out() {
    for (code, is_overflow) in [
        ("image_dimensions_too_large", false),
        ("available_tools_limit_exceeded", false),
        ("thread_not_found", false),
        ("thread_unsupported_request", false),
        ("compaction_incomplete_turn", false),
        ("prompt_too_long", true),
        ("code_of_tomorrow", true),
    ] {
        let body = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": "prompt is too long: 210000 tokens > 200000 maximum", "details": {"error_code": code}}});
        let found = detect_overflow(StatusCode::BAD_REQUEST, body.to_string().as_bytes());
        assert_eq!(
            matches!(found, OverflowVerdict::Overflow(_)),
            is_overflow,
            "{code}"
        );
    }
}
