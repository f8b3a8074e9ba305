use std::{sync::Arc, time::Duration};

use super::{Done, Ended, Metrics, Now, Series, StoreCounts, StoreOperation};
use crate::{
    health::Level,
    telemetry::{Operation, record::Answered},
};

fn text(metrics: &Metrics, breakers: &[(&str, i64)]) -> String {
    let now = Now {
        bytes_in_flight: 70,
    };
    metrics.text(breakers.iter().copied(), now)
}

#[track_caller]
fn says(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|found| found == *line), "{line}\n{text}");
    }
}

#[test]
fn what_is_counted_is_shown() {
    let metrics = Arc::new(Metrics::default());
    metrics.attempt("up", "answer");
    metrics.attempt("up", "answer");
    metrics.attempt("up", "busy");
    metrics.retry("up");
    metrics.fallback("up");
    metrics.overflow("up", true);
    metrics.overflow("other", false);
    metrics.truncated("other");
    metrics.reloaded(true);
    metrics.store().failed(StoreOperation::Save);
    metrics
        .store()
        .took(StoreOperation::Save, Duration::from_millis(3));
    StoreCounts::default().failed(StoreOperation::Save);
    metrics.summaries().ended("made");
    metrics.summaries().spent(900, 70);
    let held = metrics.begin();
    drop(metrics.begin());
    let shown = text(&metrics, &[("up", 2), ("other", 0)]);
    says(
        &shown,
        &[
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="up"} 2"#,
            r#"plimsoll_provider_attempts_total{outcome="busy",provider="up"} 1"#,
            r#"plimsoll_provider_attempts_total{outcome="failed",provider="up"} 0"#,
            r#"plimsoll_provider_attempts_total{outcome="answer",provider="other"} 0"#,
            r#"plimsoll_retries_total{provider="up"} 1"#,
            r#"plimsoll_fallbacks_total{provider="up"} 1"#,
            r#"plimsoll_overflows_total{provider="up",result="healed"} 1"#,
            r#"plimsoll_overflows_total{provider="other",result="unhealed"} 1"#,
            r#"plimsoll_overflows_total{provider="other",result="healed"} 0"#,
            r#"plimsoll_silent_truncations_total{provider="other"} 1"#,
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
            r#"plimsoll_config_reloads_total{result="ok"} 1"#,
            r#"plimsoll_config_reloads_total{result="refused"} 0"#,
            r#"plimsoll_summaries_total{outcome="made"} 1"#,
            r#"plimsoll_summaries_total{outcome="timed_out"} 0"#,
            r#"plimsoll_summaries_tokens_total{kind="prompt"} 900"#,
            r#"plimsoll_summaries_tokens_total{kind="completion"} 70"#,
            "plimsoll_summaries_running 0",
            r#"plimsoll_build_info{version="0.1.0"} 1"#,
            "# TYPE plimsoll_retries_total counter",
            "# TYPE plimsoll_breaker_state gauge",
        ],
    );
    drop(held);
    let shown = text(&metrics, &[("up", 0)]);
    says(
        &shown,
        &[
            "plimsoll_requests_in_flight 0",
            r#"plimsoll_breaker_state{provider="up"} 0"#,
        ],
    );
    metrics.forget("up");
    metrics.forget("never");
    let shown = text(&metrics, &[("other", 0)]);
    assert!(!shown.contains("plimsoll_breaker_state{provider=\"up\"}"));
    says(&shown, &[r#"plimsoll_retries_total{provider="up"} 1"#]);
}

#[test]
fn what_the_guard_did_is_counted_once() {
    let metrics = Metrics::default();
    metrics.done(&Done::default());
    metrics.done(&Done {
        truncations: 2,
        cut_chars: 70_000,
        cleared_messages: 5,
        folded: true,
        dropped_messages: 14,
        lowered_cap: true,
        injected: Some("caution"),
        course: true,
        session: true,
    });
    says(
        &text(&metrics, &[]),
        &[
            "plimsoll_truncations_total 2",
            "plimsoll_cut_characters_total 70000",
            "plimsoll_cleared_messages_total 5",
            "plimsoll_folds_total 1",
            "plimsoll_dropped_messages_total 14",
            "plimsoll_lowered_answer_caps_total 1",
            r#"plimsoll_injections_total{kind="caution"} 1"#,
            r#"plimsoll_injections_total{kind="critical"} 0"#,
            "plimsoll_courses_total 1",
            "plimsoll_sessions_total 1",
        ],
    );
}

fn ended(series: &Series) -> Ended<'_> {
    Ended {
        outcome: "done",
        status: Some(200),
        series: Some(series),
        error: None,
        took: Duration::from_millis(300),
        first_chunk: Some(Duration::from_millis(50)),
        guard: Some(Duration::from_micros(80)),
        answered: None,
    }
}

#[test]
fn a_generation_is_counted_under_its_model() {
    let metrics = Arc::new(Metrics::default());
    let series = metrics.series(Operation::Chat, "up", "m", || true);
    let answered = Answered {
        level: Level::Caution,
        hard_util: Some(0.42),
        prompt_tokens: Some(900),
        completion_tokens: Some(20),
        billed: Some((1_700, 50)),
        ..Answered::default()
    };
    metrics.begin().ended(&Ended {
        answered: Some(&answered),
        ..ended(&series)
    });
    metrics.begin().ended(&Ended {
        outcome: "provider_timeout",
        status: Some(504),
        error: Some("provider_timeout"),
        ..ended(&series)
    });
    let of = r#"gen_ai_operation_name="chat",gen_ai_provider_name="up",gen_ai_request_model="m""#;
    let tokens = |kind: &str, sum: u32| {
        format!("gen_ai_client_token_usage_sum{{{of},gen_ai_token_type=\"{kind}\"}} {sum}")
    };
    let took = |error: &str| {
        format!("gen_ai_client_operation_duration_seconds_count{{error_type=\"{error}\",{of}}} 1")
    };
    says(
        &text(&metrics, &[]),
        &[
            &tokens("input", 1_700),
            &tokens("output", 50),
            &took(""),
            &took("provider_timeout"),
            &format!("gen_ai_client_operation_time_to_first_chunk_seconds_count{{{of}}} 1"),
            r#"plimsoll_requests_total{outcome="done",status="2xx"} 1"#,
            r#"plimsoll_requests_total{outcome="provider_timeout",status="5xx"} 1"#,
            r#"plimsoll_answers_total{health="caution"} 1"#,
            r#"plimsoll_answers_total{health="critical"} 0"#,
            r#"plimsoll_hard_utilisation_ratio_bucket{le="0.5"} 1"#,
            r#"plimsoll_hard_utilisation_ratio_bucket{le="0.4"} 0"#,
            "plimsoll_guard_duration_seconds_count 2",
        ],
    );
}

#[test]
fn models_that_clients_make_up_are_one_and_the_others_are_bounded() {
    let metrics = Arc::new(Metrics::default());
    for number in 0..400 {
        let made_up = metrics.series(Operation::Chat, "up", &format!("x{number}"), || false);
        metrics.begin().ended(&ended(&made_up));
        let real = metrics.series(Operation::Chat, "up", &format!("m{number}"), || true);
        metrics.begin().ended(&ended(&real));
    }
    // Once it is known nobody is asked again.
    metrics.series(Operation::Chat, "up", "m7", || panic!("it is known"));
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
