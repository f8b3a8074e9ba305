use std::{sync::Arc, time::Duration};

use http::{Method, Response};

use super::{Metrics, StoreOperation};
use crate::{
    health::HealthLevel,
    telemetry::{
        Operation,
        record::{GenerationFacts, RequestRecord},
    },
    wire::whole_body,
};

fn text(metrics: &Metrics, breakers: &[(&str, i64)]) -> String {
    metrics.render_text(breakers.iter().copied(), 70)
}

#[track_caller]
fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\n{text}");
    }
}

#[test]
fn counters_and_their_zeros_are_shown() {
    let metrics = Arc::new(Metrics::default());
    metrics.count_attempt("up", "answer");
    metrics.count_attempt("up", "answer");
    metrics.count_attempt("up", "busy");
    metrics.retries.with_label_values(&["up"]).inc();
    metrics.record_store_call(StoreOperation::Save, Duration::from_millis(3), true);
    let in_flight = metrics.begin_request();
    drop(metrics.begin_request());
    let shown = text(&metrics, &[("up", 2), ("other", 0)]);
    assert_lines(
        &shown,
        &[
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="up"} 2"#,
            r#"plimsoll_provider_attempts_total{outcome="busy",provider="up"} 1"#,
            r#"plimsoll_provider_attempts_total{outcome="failed",provider="up"} 0"#,
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="other"} 0"#,
            r#"plimsoll_retries_total{provider="up"} 1"#,
            r#"plimsoll_fallbacks_total{provider="up"} 0"#,
            r#"plimsoll_overflows_total{provider="other",result="unhealed"} 0"#,
            r#"plimsoll_overflows_total{provider="other",result="healed"} 0"#,
            r#"plimsoll_silent_truncations_total{provider="other"} 0"#,
            r#"plimsoll_store_errors_total{operation="save"} 1"#,
            r#"plimsoll_store_errors_total{operation="find"} 0"#,
            r#"plimsoll_store_errors_total{operation="order"} 0"#,
            r#"plimsoll_store_errors_total{operation="session"} 0"#,
            r#"plimsoll_store_errors_total{operation="share"} 0"#,
            r#"plimsoll_store_duration_seconds_bucket{operation="save",le="0.005"} 1"#,
            r#"plimsoll_store_duration_seconds_bucket{operation="save",le="0.0025"} 0"#,
            r#"plimsoll_breaker_state{provider="up"} 2"#,
            r#"plimsoll_breaker_state{provider="other"} 0"#,
            "plimsoll_requests_in_flight 1",
            "plimsoll_in_flight_bytes 70",
            r#"plimsoll_config_reloads_total{result="ok"} 0"#,
            r#"plimsoll_config_reloads_total{result="refused"} 0"#,
            r#"plimsoll_summaries_total{outcome="made"} 0"#,
            r#"plimsoll_summaries_total{outcome="timed_out"} 0"#,
            r#"plimsoll_summaries_tokens_total{kind="prompt"} 0"#,
            r#"plimsoll_summaries_tokens_total{kind="completion"} 0"#,
            "plimsoll_summaries_running 0",
            r#"plimsoll_answers_total{health="critical"} 0"#,
            r#"plimsoll_injections_total{kind="caution"} 0"#,
            r#"plimsoll_requests_total{outcome="done",status="2xx"} 0"#,
            r#"plimsoll_spans_total{outcome="exported"} 0"#,
            r#"plimsoll_build_info{version="0.1.0"} 1"#,
            "# TYPE plimsoll_retries_total counter",
            "# TYPE plimsoll_breaker_state gauge",
        ],
    );
    drop(in_flight);
    let shown = text(&metrics, &[("up", 0)]);
    assert_lines(
        &shown,
        &[
            "plimsoll_requests_in_flight 0",
            r#"plimsoll_breaker_state{provider="up"} 0"#,
        ],
    );
    metrics.forget_provider("up");
    metrics.forget_provider("never");
    let shown = text(&metrics, &[("other", 0)]);
    assert!(!shown.contains("plimsoll_breaker_state{provider=\"up\"}"));
    assert_lines(&shown, &[r#"plimsoll_retries_total{provider="up"} 1"#]);
}

/// The record of a generation whose answer has ended.
fn record(metrics: &Arc<Metrics>, model: &str, is_known: bool) -> RequestRecord {
    let mut record = RequestRecord::new(&Method::POST, "/");
    record.in_flight = Some(metrics.begin_request());
    let labels = metrics.label_model(Operation::Chat, "up", model, || is_known);
    record.notes.facts().model_labels = Some(labels);
    record.outcome = Some("done");
    record
}

#[test]
fn a_generation_is_counted_under_its_model() {
    let metrics = Arc::new(Metrics::default());
    let done = record(&metrics, "m", true);
    let mut facts = done.notes.facts();
    facts.guard_took = Some(Duration::from_micros(80));
    facts.is_stream = true;
    facts.generation = Some(GenerationFacts {
        level: HealthLevel::Caution,
        hard_util: Some(0.42),
        prompt_tokens: Some(900),
        completion_tokens: Some(20),
        billed: Some((1_700, 50)),
        ..GenerationFacts::default()
    });
    drop(facts);
    let answer = done.attach_to_response(Response::new(whole_body("hello")));
    let read = http_body_util::BodyExt::collect(answer.into_body());
    futures_util::FutureExt::now_or_never(read)
        .unwrap()
        .unwrap();
    let mut failed = record(&metrics, "m", true);
    failed.outcome = Some("provider_timeout");
    let mut answer = Response::new(whole_body(""));
    *answer.status_mut() = http::StatusCode::GATEWAY_TIMEOUT;
    drop(failed.attach_to_response(answer));
    let labels =
        r#"gen_ai_operation_name="chat",gen_ai_provider_name="up",gen_ai_request_model="m""#;
    let tokens = |kind: &str, sum: u32| {
        format!(
            "gen_ai_client_token_usage_sum{{client=\"other\",{labels},gen_ai_token_type=\"{kind}\"}} {sum}"
        )
    };
    let took = |error: &str| {
        format!(
            "gen_ai_client_operation_duration_seconds_count{{error_type=\"{error}\",{labels}}} 1"
        )
    };
    assert_lines(
        &text(&metrics, &[]),
        &[
            &tokens("input", 1_700),
            &tokens("output", 50),
            &took(""),
            &took("provider_timeout"),
            &format!("gen_ai_client_operation_time_to_first_chunk_seconds_count{{{labels}}} 1"),
            r#"plimsoll_requests_total{outcome="done",status="2xx"} 1"#,
            r#"plimsoll_requests_total{outcome="provider_timeout",status="5xx"} 1"#,
            r#"plimsoll_answers_total{health="caution"} 1"#,
            r#"plimsoll_answers_total{health="critical"} 0"#,
            r#"plimsoll_hard_utilisation_ratio_bucket{le="0.5"} 1"#,
            r#"plimsoll_hard_utilisation_ratio_bucket{le="0.4"} 0"#,
            "plimsoll_guard_duration_seconds_count 1",
            "plimsoll_requests_in_flight 0",
        ],
    );
}

#[test]
fn unknown_models_share_a_label_and_known_ones_are_bounded() {
    let metrics = Arc::new(Metrics::default());
    for number in 0..400 {
        drop(record(&metrics, &format!("x{number}"), false));
        drop(record(&metrics, &format!("m{number}"), true));
    }
    // A model with a series is not checked again.
    metrics.label_model(Operation::Chat, "up", "m7", || panic!("it is known"));
    let shown = text(&metrics, &[]);
    let counts: Vec<_> = shown
        .lines()
        .filter(|line| line.starts_with("gen_ai_client_operation_duration_seconds_count"))
        .collect();
    assert_eq!(counts.len(), 257, "{counts:?}");
    let other = counts.iter().find(|line| line.contains("\"other\""));
    assert!(other.unwrap().ends_with(" 544"), "{other:?}");
    assert!(!shown.contains("\"x1\""));
}
