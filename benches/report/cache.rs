//! How much of long sessions the provider's prompt cache keeps, compared with an unlimited window.

use std::io::{self, Write};

use plimsoll::{config::GuardConfig, guard::profile};

use crate::support::{
    count::TokenCounter,
    data,
    drive::{GuardedSession, TokenMeter, make_policy, run_unlimited},
    generate::{ConversationSize, Recipe, Session, Shape},
};

const RECORDED: &[&str] = &[
    "coding-pi-899-messages",
    "zh-stitched-long",
    "coding-openhands-ponyc-a",
    "coding-openhands-ponyc-b",
    "coding-swesmith-pydantic",
    "chat-aider-long-no-tools",
    "service-tau-airline-52",
];
const WINDOWS: &[u32] = &[8_192, 16_384, 32_768, 131_072];

pub(crate) fn report(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "\nprompt cache: each session grown request by request; tokens by o200k; the cache holds \
         the beginning\nin common with the previous request, in blocks of 128 from 1,024 on\n"
    )?;
    let counter = TokenCounter::o200k();
    let recorded = RECORDED.iter().filter_map(|name| {
        let session = Session::from_recorded(&data::request(name)?)?;
        Some(((*name).to_owned(), session))
    });
    for (name, session) in recorded.chain(generated()) {
        session_report(out, &name, &session, &counter)?;
    }
    required(out, &counter)
}

fn generated() -> impl Iterator<Item = (String, Session)> {
    [Shape::Agent, Shape::OneTurn, Shape::Chinese, Shape::Chat]
        .into_iter()
        .map(|shape| {
            let session = Session::new(21, Recipe::new(shape), ConversationSize::Messages(400));
            (format!("generated {shape:?}"), session)
        })
}

fn session_report(
    out: &mut impl Write,
    name: &str,
    session: &Session,
    counter: &TokenCounter,
) -> io::Result<()> {
    let whole = run_unlimited(session, counter);
    writeln!(
        out,
        "{name}: {} requests, {} tokens at the end, {:.1} % cached in an unlimited window",
        whole.requests,
        counter.request(&session.whole()),
        100.0 * whole.share(),
    )?;
    writeln!(
        out,
        "   window  state    edited  folds  changed   cached  of unlimited  refused  over  lost (hopeless)"
    )?;
    let settings = GuardConfig::default();
    for &window in WINDOWS {
        for keeps in [true, false] {
            let outcome = GuardedSession {
                policy: make_policy(&profile::PROFILES[0], window, &settings),
                meter: TokenMeter::Foreign(counter),
                counter,
                keeps,
            }
            .run(session);
            writeln!(
                out,
                "{window:>9}  {:<7} {:>7} {:>6} {:>8} {:>7.1}% {:>12.3} {:>9} {:>5} {:>5} {:>10}",
                if keeps { "kept" } else { "emptied" },
                outcome.edited,
                outcome.folds,
                outcome.changes,
                100.0 * outcome.share(),
                outcome.share() / whole.share(),
                outcome.refused + outcome.unsound,
                outcome.over,
                outcome.lost,
                format!("({})", outcome.hopeless),
            )?;
        }
    }
    writeln!(out)
}

/// The promised figure: 300 steps at 32k.
fn required(out: &mut impl Write, counter: &TokenCounter) -> io::Result<()> {
    writeln!(
        out,
        "300 steps of an agent at 32,768 tokens: cached share of the prompt tokens, the same as a part of that in an\n\
         unlimited window, and the mean share of the window in use; with the state kept, and emptied before each request"
    )?;
    writeln!(
        out,
        "  session        cached  of unlimited  in use   emptied: cached  of unlimited  in use"
    )?;
    let settings = GuardConfig::default();
    let window = 32_768;
    let mut sums = [0.0; 6];
    let sessions = 6;
    for seed in 0..sessions {
        for shape in [Shape::OneTurn, Shape::Agent] {
            let session = steps(seed, shape, 300);
            let whole = run_unlimited(&session, counter).share();
            let shares = |keeps| {
                let drive = GuardedSession {
                    policy: make_policy(&profile::PROFILES[0], window, &settings),
                    meter: TokenMeter::Foreign(counter),
                    counter,
                    keeps,
                };
                let outcome = drive.run(&session);
                let in_use = outcome.prompt as f64 / outcome.requests as f64 / f64::from(window);
                [outcome.share(), outcome.share() / whole, in_use]
            };
            let row = [shares(true), shares(false)].concat();
            sums.iter_mut()
                .zip(&row)
                .for_each(|(sum, share)| *sum += share);
            write_shares(out, &format!("{shape:?} {seed}"), &row)?;
        }
    }
    let mean = sums.map(|sum| sum / f64::from(2 * sessions as u32));
    write_shares(out, "mean", &mean)?;
    writeln!(out)
}

fn write_shares(out: &mut impl Write, name: &str, shares: &[f64]) -> io::Result<()> {
    let [cached, part, in_use, emptied @ ..] = shares else {
        return Ok(());
    };
    write!(out, "  {name:<14} {cached:>6.3} {part:>13.3} {in_use:>7.3}")?;
    let emptied: Vec<String> = emptied.iter().map(|share| format!("{share:.3}")).collect();
    writeln!(out, "            {}", emptied.join("         "))
}

/// A session of so many requests.
pub(crate) fn steps(seed: u64, shape: Shape, requests: usize) -> Session {
    let recipe = Recipe::new(shape);
    (requests..)
        .step_by(20)
        .map(|messages| Session::new(seed, recipe, ConversationSize::Messages(messages)))
        .find(|session| session.requests() >= requests)
        .expect("sessions grow without end")
}
