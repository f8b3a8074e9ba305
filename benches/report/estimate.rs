//! The error of estimates against reported tokens.

use std::{
    collections::BTreeMap,
    hint::black_box,
    io::{self, Write},
    time::Instant,
};

use bytes::Bytes;
use plimsoll::{
    config::tokens::find_token_rule,
    guard::{
        estimate::{Calibration, Weights},
        profile::{self, Profile},
    },
    json::text::{escape_text, measure_text},
};

use serde_json::Value;

use crate::{
    percentile,
    support::{
        count::TokenCounter,
        data::{self, TokenPair, TokenTruth},
        drive::{raw_tokens, raw_tokens_for},
        generate::{
            ConversationSize, Recipe, Session, Shape,
            figures::{KINDS, write_kind},
            tongues::write_tongues,
        },
        parse,
    },
};

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    kinds(out)?;
    writeln!(
        out,
        "\nestimates: error in hundredths of the provider's count\n"
    )?;
    match data::token_truth() {
        Some(truth) => {
            whole_requests(out)?;
            pairs(out, &truth.pairs)?;
            long_session(out, &truth)?;
        }
        None => writeln!(out, "no recorded counts; generated sessions only")?,
    }
    generated(out)
}

/// Each kind of text: the estimate over the count of o200k, and the time that measuring takes, the best of many runs.
fn kinds(out: &mut impl Write) -> io::Result<()> {
    let counter = TokenCounter::o200k();
    let rule = find_token_rule("gpt-4o", &profile::PROFILES[0]);
    let weights = Weights::new(rule, &profile::PROFILES[0], None);
    let kinds = KINDS
        .iter()
        .map(|kind| (kind.0.to_owned(), write_kind(*kind, 8)));
    let texts: Vec<(String, String)> = kinds.chain(write_tongues()).collect();
    writeln!(
        out,
        "\n{} kinds of text: estimate / o200k, ns a kB\n",
        texts.len()
    )?;
    let (mut least, mut most, mut times) = (f64::MAX, 0f64, Vec::new());
    for (name, text) in texts {
        let ratio = weights.plain_weight(&text) / counter.text(&text).max(1) as f64;
        let time = time_of(&text);
        (least, most) = (least.min(ratio), most.max(ratio));
        writeln!(out, "  {name:<34} {ratio:>5.2} {time:>6.0}")?;
        times.push(time);
    }
    let median = percentile(&mut times, 50);
    writeln!(
        out,
        "  all: {least:.2} to {most:.2}; median {median:.0} ns a kB"
    )
}

/// Nanoseconds for a thousand bytes of texts as this one, escaped for JSON.
fn time_of(text: &str) -> f64 {
    let long = escape_text(&text.repeat(16_384 / text.len() + 1));
    let runs = (0..200).map(|_| {
        let begin = Instant::now();
        black_box(measure_text(black_box(long.as_bytes())));
        begin.elapsed().as_nanos() as f64
    });
    runs.fold(f64::MAX, f64::min) * 1_000.0 / long.len() as f64
}

/// Errors of a group, without and with calibration.
#[derive(Default)]
struct Errors {
    raw: Vec<f64>,
    known: Vec<f64>,
}

impl Errors {
    fn line(&mut self, out: &mut impl Write, name: &str) -> io::Result<()> {
        let (requests, after) = (self.raw.len(), self.known.len());
        writeln!(
            out,
            "  {name:<26} {requests:>4}  {:>6.1} {:>6.1}   {after:>4}  {:>6.1} {:>6.1}",
            percentile(&mut self.raw, 50),
            percentile(&mut self.raw, 95),
            percentile(&mut self.known, 50),
            percentile(&mut self.known, 95),
        )
    }
}

fn error(estimate: u32, truth: u64) -> f64 {
    100.0 * f64::from(estimate).mul_add(1.0, -(truth as f64)).abs() / truth.max(1) as f64
}

/// Recorded bodies of 2 kB and more before any usage, counted by vocabularies. The frames of the rule count too, and
/// the vocabulary's count has 4 a message; tools are rendered shorter by the rule.
fn whole_requests(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "whole requests of 2 kB and more, tools by the rule against their JSON: n, 50 %, 95 %"
    )?;
    let profile = &profile::PROFILES[0];
    for (model, counter) in [
        ("gpt-4o", TokenCounter::o200k()),
        ("gpt-4", TokenCounter::cl100k()),
    ] {
        let mut errors = Vec::new();
        for file in data::requests() {
            if file.body.len() >= 2_000 {
                let truth = counter.request(&file.body);
                let raw = raw_tokens_for(&Bytes::from(file.body), profile, model);
                errors.push(error(raw, truth));
            }
        }
        let [median, most] = [50, 95].map(|percent| percentile(&mut errors, percent));
        writeln!(
            out,
            "  {model:<26} {:>4}  {median:>6.1} {most:>6.1}",
            errors.len()
        )?;
    }
    writeln!(out)
}

/// Small requests: before calibration, and with the ratio learnt from the model's earlier answers.
fn pairs(out: &mut impl Write, pairs: &[TokenPair]) -> io::Result<()> {
    writeln!(out, "separate requests (most of them tiny), by provider")?;
    writeln!(
        out,
        "                              before: n, 50 %, 95 %   after the model's earlier answers"
    )?;
    let mut groups: BTreeMap<&str, Errors> = BTreeMap::new();
    let mut all = Errors::default();
    let [mut large, mut small] = [Errors::default(), Errors::default()];
    let mut anchored = Errors::default();
    let mut models: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for pair in pairs {
        let profile = profile_of(pair);
        let raw = raw_tokens_for(&Bytes::from(pair.request.clone()), profile, &pair.model);
        let ratios = models.entry((&pair.provider, &pair.model)).or_default();
        let known = (!ratios.is_empty()).then(|| {
            let ratio = percentile(&mut ratios.clone(), 50);
            error(
                Calibration::from_ratio(ratio).to_expected_tokens(raw),
                pair.prompt_tokens,
            )
        });
        ratios.push(pair.prompt_tokens as f64 / f64::from(raw.max(1)));
        if let Some(before) = pairs.iter().find(|before| continues(pair, before)) {
            let body = Bytes::from(before.request.clone());
            let raw_before = raw_tokens_for(&body, profile, &before.model);
            let learnt =
                Calibration::default().learn_usage(raw_before, before.prompt_tokens as u32, false);
            anchored.raw.push(error(raw, pair.prompt_tokens));
            anchored
                .known
                .push(error(learnt.to_expected_tokens(raw), pair.prompt_tokens));
        }
        let mut targets = vec![&mut all, groups.entry(&pair.provider).or_default()];
        if pair.prompt_tokens >= 60 {
            targets.push(&mut small);
        }
        if pair.prompt_tokens >= 500 {
            targets.push(&mut large);
        }
        for target in targets {
            target.raw.push(error(raw, pair.prompt_tokens));
            target.known.extend(known);
        }
    }
    for (name, mut errors) in groups {
        errors.line(out, name)?;
    }
    all.line(out, "all")?;
    small.line(out, "all of 60 tokens or more")?;
    large.line(out, "all of 500 tokens or more")?;
    writeln!(
        out,
        "requests that continue another one of the list: before, and after that one's usage"
    )?;
    anchored.line(out, "second requests")?;
    writeln!(out)
}

/// Whether a request is another one of the same model that grew.
fn continues(pair: &TokenPair, before: &TokenPair) -> bool {
    let messages = |pair: &TokenPair| match parse::parse_value(&pair.request) {
        Ok(mut body) => body["messages"].take(),
        Err(_) => Value::Null,
    };
    if (&pair.provider, &pair.model) != (&before.provider, &before.model) {
        return false;
    }
    match (messages(pair), messages(before)) {
        (Value::Array(now), Value::Array(then)) => now.len() > then.len() && now.starts_with(&then),
        _ => false,
    }
}

fn profile_of(pair: &TokenPair) -> &'static Profile {
    let name = match () {
        () if pair.model.contains("claude") => "anthropic",
        () if pair.model.contains("gemini") => "gemini",
        () => &pair.provider,
    };
    profile::find_profile(name).unwrap_or(&profile::PROFILES[0])
}

/// A recorded session, whose system prompt and tools are counted but not recorded: before
/// calibration the addition since the previous request, after it the whole.
fn long_session(out: &mut impl Write, truth: &TokenTruth) -> io::Result<()> {
    let Some(body) = data::request(&truth.session) else {
        return Ok(());
    };
    let profile = profile::find_profile("anthropic").unwrap_or(&profile::PROFILES[0]);
    let Some(session) = Session::from_recorded(&body) else {
        return Ok(());
    };
    let mut calibration = Calibration::default();
    let mut errors = Errors::default();
    let mut parts = Errors::default();
    let mut before: Option<(u32, u64)> = None;
    for step in &truth.steps {
        let raw = raw_tokens(
            &Bytes::from(session.beginning(step.assistant_message)),
            profile,
        );
        if let Some((raw_before, tokens)) = before {
            let added = f64::from(raw) - f64::from(raw_before);
            let guess = (tokens as f64 + added).max(0.0) as u32;
            errors.raw.push(error(guess, step.prompt_tokens));
            errors.known.push(error(
                calibration.to_expected_tokens(raw),
                step.prompt_tokens,
            ));
            let grown = step.prompt_tokens.saturating_sub(tokens);
            if grown >= 200 {
                let guess = f64::from(calibration.to_expected_tokens(raw)) - tokens as f64;
                parts.raw.push(error(added.max(0.0) as u32, grown));
                parts.known.push(error(guess.max(0.0) as u32, grown));
            }
        }
        calibration = calibration.learn_usage(raw, step.prompt_tokens as u32, false);
        before = Some((raw, step.prompt_tokens));
    }
    writeln!(
        out,
        "{}, {} requests: the previous answer's usage and what was added since",
        truth.session,
        truth.steps.len()
    )?;
    writeln!(
        out,
        "                              as estimated: 50 %, 95 %   calibrated: 50 %, 95 %"
    )?;
    errors.line(out, "of the whole prompt")?;
    parts.line(out, "of what was added (200+)")?;
    writeln!(out)
}

/// Generated sessions, counted by vocabularies that the guard does not use.
fn generated(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "generated sessions: before calibration; after the previous answer's usage"
    )?;
    writeln!(
        out,
        "                              before: n, 50 %, 95 %   after: n, 50 %, 95 %"
    )?;
    let profile = &profile::PROFILES[0];
    for (name, counter) in [
        ("o200k", TokenCounter::o200k()),
        ("cl100k", TokenCounter::cl100k()),
    ] {
        for shape in [
            Shape::Agent,
            Shape::Mixed,
            Shape::Chinese,
            Shape::Chat,
            Shape::Media,
        ] {
            let mut errors = Errors::default();
            for seed in 0..4 {
                let session =
                    Session::new(seed, Recipe::new(shape), ConversationSize::Messages(120));
                let mut calibration = Calibration::default();
                for (at, body) in session.steps().enumerate() {
                    let truth = counter.request(&body);
                    let raw = raw_tokens(&Bytes::from(body), profile);
                    errors.raw.push(error(raw, truth));
                    if at > 0 {
                        errors
                            .known
                            .push(error(calibration.to_expected_tokens(raw), truth));
                    }
                    calibration = calibration.learn_usage(raw, truth as u32, false);
                }
            }
            errors.line(out, &format!("{shape:?} by {name}"))?;
        }
    }
    writeln!(out)
}
