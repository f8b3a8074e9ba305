//! The estimate before any usage, against vocabularies that the guard does not carry.

mod kinds;
mod tongues;

use std::{ffi::OsStr, fs, path::Path};

use bytes::Bytes;
use plimsoll::{
    config::tokens::find_token_rule,
    format::chat::index_body,
    guard::{
        self, Policy, SessionKnowledge,
        estimate::{Calibration, Weights, estimate_message},
        profile::find_profile,
    },
    json::text::measure_json,
};
use serde_json::json;

use crate::support::{
    count::TokenCounter,
    data,
    drive::{raw_tokens, settings},
    generate::{
        Session,
        prose::{self, Tongue},
        random::Random,
    },
};

/// A conversation with texts of one kind that takes half of the window by the vocabulary's count.
fn half_full(counter: &TokenCounter, tongue: Tongue, window: u64) -> Bytes {
    let mut random = Random::for_part(window, tongue as u64);
    let mut messages = vec![json!({"role": "system", "content": "You help."})];
    for turn in 0.. {
        let author = ["user", "assistant"][turn % 2];
        let text = prose::text(&mut random, tongue, 900);
        messages.push(json!({"role": author, "content": text}));
        let body = json!({"model": "gpt-4o", "messages": messages}).to_string();
        if counter.request(body.as_bytes()) >= window / 2 {
            return body.into();
        }
    }
    unreachable!("conversations grow without end")
}

#[test]
fn a_half_full_window_is_untouched_on_first_sight() {
    let counter = TokenCounter::o200k();
    let (settings, profile) = (settings(), find_profile("openai").unwrap());
    for tongue in [Tongue::Prose, Tongue::Code, Tongue::Json, Tongue::Chinese] {
        for window in [8_192, 16_384, 32_768] {
            let body = half_full(&counter, tongue, window);
            let conversation = index_body(body).unwrap();
            let policy = Policy::new(
                profile,
                window as u32,
                find_token_rule("gpt-4o", profile),
                &settings,
            );
            let plan = guard::plan(&conversation, &policy, &SessionKnowledge::default());
            let raw = plan.report.raw_before;
            assert!(plan.edits.is_empty(), "{tongue:?}, {raw} of {window}");
        }
    }
}

/// The errors of whole requests in hundredths, sorted. Both sides count texts, tools as JSON, and 4 a message.
fn request_errors(counter: &TokenCounter, model: &str, least: usize) -> Vec<f64> {
    let profile = find_profile("openai").unwrap();
    let weights = Weights::new(find_token_rule(model, profile), profile, None);
    let bodies = data::requests().into_iter().chain(data::unusual());
    let bodies = bodies.filter(|file| file.body.len() >= least);
    let errors = bodies.filter_map(|file| {
        let conversation = index_body(file.body.clone().into()).ok()?;
        let media = |item| guard::estimate::estimate_media(&conversation, item, &weights);
        let mut items = conversation.items.iter();
        if items.any(|item| media(item) > 0) {
            return None;
        }
        let texts = conversation.items.iter().map(|item| {
            let call = weights.call_tokens() * item.calls.len() as u32;
            estimate_message(&conversation, item, &item.sizes, &weights) - call
        });
        let tools = conversation.beside_items();
        let tools = tools
            .map(|span| weights.count_text_tokens(&measure_json(conversation.span_bytes(span))));
        let estimate: u32 = texts.chain(tools).sum();
        let truth = counter.request(&file.body).max(1) as f64;
        Some(100.0 * (f64::from(estimate) - truth).abs() / truth)
    });
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    errors
}

#[test]
fn recorded_requests_are_estimated_within_a_few_hundredths() {
    for (counter, model) in [
        (TokenCounter::o200k(), "gpt-4o"),
        (TokenCounter::cl100k(), "gpt-4"),
    ] {
        let errors = request_errors(&counter, model, 2_000);
        let at = |share: f64| errors.get((errors.len() as f64 * share) as usize).copied();
        let [median, most] = [at(0.5), at(0.95)].map(Option::unwrap_or_default);
        println!(
            "{model}: {} requests, median {median:.1}, 95 % {most:.1}",
            errors.len()
        );
        assert!(median <= 3.0 && most <= 11.0, "{model}: {errors:?}");
    }
}

/// The pages and sources of this repository, which are there without any recording.
fn read_own_texts() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = ["docs", "src"].map(|folder| root.join(folder)).to_vec();
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension().and_then(OsStr::to_str) {
                _ if path.is_dir() => folders.push(path),
                Some("md" | "rs") => texts.push(fs::read_to_string(path).unwrap()),
                _ => {}
            }
        }
    }
    texts.retain(|text| text.len() >= 2_000);
    texts
}

#[test]
fn english_and_code_are_estimated_within_a_few_hundredths() {
    let (counter, profile) = (TokenCounter::o200k(), find_profile("openai").unwrap());
    let weights = Weights::new(find_token_rule("gpt-4o", profile), profile, None);
    let errors = read_own_texts().into_iter().map(|text| {
        let estimate = weights.plain_weight(&text);
        let truth = counter.text(&text) as f64;
        100.0 * (estimate - truth).abs() / truth
    });
    let mut errors: Vec<f64> = errors.collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors.len() > 200, "{} texts", errors.len());
    let [median, most] = [0.5, 0.95].map(|share| errors[(errors.len() as f64 * share) as usize]);
    println!("{} texts, median {median:.1}, 95 % {most:.1}", errors.len());
    assert!(median <= 5.0 && most <= 11.0, "{errors:?}");
}

/// Of a recorded session whose provider counted every request: how much denser what was added is than all before.
#[test]
fn what_is_added_to_a_session_is_hardly_denser_than_the_rest() {
    let Some(truth) = data::token_truth() else {
        return;
    };
    let Some(session) =
        data::request(&truth.session).and_then(|body| Session::from_recorded(&body))
    else {
        return;
    };
    let profile = find_profile("anthropic").unwrap();
    let mut calibration = Calibration::default();
    let (mut before, mut ratios): (Option<(u32, u64)>, Vec<f64>) = (None, Vec::new());
    for step in &truth.steps {
        let body = Bytes::from(session.beginning(step.assistant_message));
        let raw = raw_tokens(&body, profile);
        if let Some((raw_before, tokens)) = before
            && raw >= raw_before + 400
            && step.prompt_tokens > tokens
        {
            let added = f64::from(raw - raw_before) * calibration.slope();
            ratios.push((step.prompt_tokens - tokens) as f64 / added);
        }
        calibration = calibration.learn_usage(raw, step.prompt_tokens as u32, false);
        before = Some((raw, step.prompt_tokens));
    }
    ratios.sort_by(f64::total_cmp);
    let at = |share: f64| ratios[(ratios.len() as f64 * share) as usize];
    let [low, half, most, all] = [0.05, 0.5, 0.95, 0.999].map(at);
    println!(
        "{} additions: 5 % {low:.2}, 50 % {half:.2}, 95 % {most:.2}, all {all:.2}",
        ratios.len()
    );
    assert!(most <= 1.2, "{ratios:?}");
}
