//! Overflow errors and errors that resemble them: recognised or not, numbers read, windows learnt
//! or refused. From a table and from all recorded errors.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::StatusCode;
use plimsoll::{
    guard::profile,
    health::silent_truncation::{UsageSample, detect_truncation, has_filled_window},
    provider::{
        Window, WindowSource,
        learnt_windows::{LearntWindows, Lesson, LessonKey, LessonScope, RefusedPrompt},
        overflow::{Overflow, OverflowVerdict, detect_overflow, read_unknown_wording},
    },
};
use serde_json::{Value, json};

mod clouds;
mod wordings;

use wordings::{near_misses, overflows};

use crate::support::{data, drive::raw_tokens, generate::Session};

fn body(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.clone().into_bytes(),
        value => value.to_string().into_bytes(),
    }
}

#[test]
fn every_overflow_wording_is_recognised() {
    for (status, value, numbers) in overflows() {
        let [window, prompt_limit, prompt_tokens, requested, excess] =
            numbers.map(|number| Some(number).filter(|&number| number > 0));
        let expected = |answer| Overflow {
            window,
            prompt_limit,
            prompt_tokens,
            answer,
            requested,
            excess,
        };
        let status = StatusCode::from_u16(status).unwrap();
        let OverflowVerdict::Overflow(found) = detect_overflow(status, &body(&value)) else {
            panic!("{value}");
        };
        assert_eq!(found, expected(found.answer), "{value}");
        // A rate limit with the same words is no overflow.
        if status == StatusCode::BAD_REQUEST && value["error"]["message"].is_string() {
            let mut limited = value;
            limited["error"]["code"] = json!("rate_limit_exceeded");
            assert_eq!(
                detect_overflow(status, &body(&limited)),
                OverflowVerdict::Other,
                "{limited}"
            );
        }
    }
}

#[test]
fn wordings_of_clouds_and_gateways_are_recognised() {
    let judge = |status: StatusCode, words: &str| {
        let body = json!({"error": {"message": words, "type": "rix_api_error", "code": 400}});
        detect_overflow(status, body.to_string().as_bytes())
    };
    for words in clouds::OVERFLOWS {
        for status in [StatusCode::BAD_REQUEST, StatusCode::UNPROCESSABLE_ENTITY] {
            let found = judge(status, words);
            assert!(matches!(found, OverflowVerdict::Overflow(_)), "{words}");
        }
    }
    for words in clouds::OTHERS {
        let found = judge(StatusCode::BAD_REQUEST, words);
        assert_eq!(found, OverflowVerdict::Other, "{words}");
        let body = json!({"error": {"message": words}}).to_string();
        let unknown = read_unknown_wording(StatusCode::BAD_REQUEST, body.as_bytes());
        assert_eq!(unknown, None, "{words}");
    }
}

#[test]
fn similar_errors_are_no_overflow() {
    for (status, value) in near_misses() {
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(
            detect_overflow(status, &body(&value)),
            OverflowVerdict::Other,
            "{value}"
        );
    }
}

/// The window learnt from an overflow where the settings claim this one.
fn learnt_window(overflow: Overflow, claimed: u32) -> String {
    let learnt = LearntWindows::new(Duration::from_secs(86_400));
    let now = SystemTime::now();
    let refused = RefusedPrompt {
        overflow,
        claimed: Window {
            tokens: claimed,
            input: None,
            taught: None,
            source: WindowSource::Catalogue,
        },
        expected: claimed / 10 * 9,
        answer: 8_192,
        reserve: 8_192,
        answered: 0,
        by_one_host: false,
    };
    let key = LessonKey::new("p", "m", LessonScope::default());
    let lesson = learnt.record_refused_prompt(&key, &refused, now);
    let known = learnt.find_bounds(&key, 0, now);
    let tried = refused.count_prompt_tokens().unwrap_or(refused.expected);
    // What the error confirms is not learnt.
    let window = known.window.unwrap_or(claimed);
    let room = window - 8_192.min(window / 2);
    let most = room.min(known.input.unwrap_or(u32::MAX));
    assert!(
        most < tried || tried <= 256 || overflow.is_filled_by_answer(),
        "{known:?}"
    );
    assert!(
        known
            .window
            .is_none_or(|window| (1_024..claimed).contains(&window))
    );
    match lesson {
        Lesson::Window(tokens) => format!("window {tokens}"),
        Lesson::Input(tokens) if overflow.prompt_limit == Some(tokens) => format!("input {tokens}"),
        Lesson::Input(_) if overflow.is_filled_by_answer() => "nothing: the answer".to_owned(),
        Lesson::Input(tokens) => format!("inferred {tokens}"),
    }
}

/// Whether a silent cut is noticed: by an answer that counts more tokens than the window, or the
/// same count twice. An answer without usage is left to `judge`.
fn noticed_in_silence(name: &str) -> bool {
    let sample = |raw_sent, prompt_tokens| UsageSample {
        raw_sent,
        prompt_tokens,
    };
    match name {
        "code-zai-silent.json" => has_filled_window(210_000, 200_000, Some(3), false),
        "code-ollama-silent.json" => {
            detect_truncation(Some(sample(20_000, 4_090)), sample(21_000, 4_096), true).is_some()
        }
        _ => false,
    }
}

#[test]
fn recorded_errors_are_recognised() {
    let errors = data::errors();
    println!(
        "{:<38} {:<26} {:>4}  {:<9} {:>8} {:>8} {:>8} {:>8} {:>8}  {:<20} {:<20}",
        "file",
        "provider",
        "HTTP",
        "verdict",
        "window",
        "limit",
        "prompt",
        "both",
        "excess",
        "of 128k claimed",
        "of 1M claimed",
    );
    for (name, error) in &errors {
        let status = error["http_status"].as_u64().unwrap() as u16;
        let body = error["body"].as_str().unwrap();
        let found = detect_overflow(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        let (verdict, recognised) = match found {
            _ if noticed_in_silence(name) => ("silent", true),
            OverflowVerdict::Other => ("-", false),
            OverflowVerdict::Overflow(_) => ("overflow", true),
            OverflowVerdict::WithoutReason => ("wordless", true),
        };
        let provider: String = error["provider"]
            .as_str()
            .unwrap()
            .chars()
            .take(26)
            .collect();
        print!("{name:<38} {provider:<26} {status:>4}  {verdict:<9}");
        if let OverflowVerdict::Overflow(found) = found {
            for number in [
                found.window,
                found.prompt_limit,
                found.prompt_tokens,
                found.requested,
                found.excess,
            ] {
                print!(
                    " {:>8}",
                    number.map_or_else(String::new, |number| number.to_string())
                );
            }
            print!(
                "  {:<20} {:<20}",
                learnt_window(found, 128_000),
                learnt_window(found, 1_000_000)
            );
        }
        println!();
        assert_eq!(error["context_overflow"], recognised, "{name}");
    }
    println!("{} recorded errors", errors.len());
}

/// No provider with honest counts is taken for one that cuts silently.
#[test]
fn honest_token_counts_are_not_taken_for_silent_cuts() {
    let Some(truth) = data::token_truth() else {
        return;
    };
    let openai = profile::find_profile("openai").unwrap();
    let samples: Vec<_> = truth
        .pairs
        .iter()
        .map(|pair| {
            let raw_sent = raw_tokens(&Bytes::from(pair.request.clone()), openai);
            let sample = UsageSample {
                raw_sent,
                prompt_tokens: u32::try_from(pair.prompt_tokens).unwrap(),
            };
            (&pair.provider, &pair.model, sample)
        })
        .collect();
    // Every two requests of a model, as if one followed the other.
    let mut followed = 0;
    for (provider, model, before) in &samples {
        for (_, _, now) in samples
            .iter()
            .filter(|one| (one.0, one.1) == (*provider, *model))
        {
            followed += 1;
            for counts_missed_only in [false, true] {
                let found = detect_truncation(Some(*before), *now, counts_missed_only);
                assert_eq!(found, None, "{provider} {model}: {before:?}, {now:?}");
            }
        }
    }
    let anthropic = profile::find_profile("anthropic").unwrap();
    let session = Session::from_recorded(&data::request(&truth.session).unwrap()).unwrap();
    let steps: Vec<_> = truth
        .steps
        .iter()
        .map(|step| UsageSample {
            raw_sent: raw_tokens(
                &Bytes::from(session.beginning(step.assistant_message)),
                anthropic,
            ),
            prompt_tokens: u32::try_from(step.prompt_tokens).unwrap(),
        })
        .collect();
    // Also as if there were none in between.
    for apart in [1, 2, 10, 50] {
        for (before, now) in steps.iter().zip(&steps[apart..]) {
            for counts_missed_only in [false, true] {
                let found = detect_truncation(Some(*before), *now, counts_missed_only);
                assert_eq!(found, None, "{before:?}, {now:?}");
            }
        }
    }
    println!("{followed} pairs and {} steps", steps.len());
    assert!(followed > 1_000 && steps.len() > 300);
    // A server that keeps 8,000 tokens of a session is noticed soon.
    let mut capped = steps.iter().map(|step| UsageSample {
        raw_sent: step.raw_sent,
        prompt_tokens: step.prompt_tokens.min(8_000),
    });
    let mut before = None;
    let noticed =
        capped.position(|now| detect_truncation(before.replace(now), now, false).is_some());
    println!("a cut to 8,000 is noticed at answer {noticed:?}");
    assert!(noticed.is_some_and(|answer| answer < 60));
}
