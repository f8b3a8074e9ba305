//! `plimsoll demo`: a long coding session in a small window, with a line for each request.
//!
//! It runs a real proxy in this process, on a free loopback port, with the built-in provider. A simulated agent
//! talks to it over HTTP. It needs no key and no network, and writes nothing to disk.

mod report;

use std::{
    future::pending,
    io::{self, IsTerminal as _, Write},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use http::header::CONTENT_TYPE;
use tokio::{net::TcpListener, time};

use self::report::{DemoAnswer, DemoReport};
use super::{CommandError, CommandResult, block_on, table::group_digits};
use crate::{
    CurrentConfig,
    config::{Config, ModelConfig, StorePlace, secret::SecretKey},
    provider::{
        begin_http_client,
        simulated::{self, DemoAgent},
    },
};

/// The pause after a step where the output is a terminal.
const PACE: Duration = Duration::from_millis(120);
/// The simulated provider answers in milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Requests that the agent sends.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// The model's window: 8k, 32k, 128k, 200k or 1m.
    #[arg(long, default_value = "32k", value_parser = parse_window)]
    window: (&'static str, u32),
    /// Switch the guard off, and see what happens without it.
    #[arg(long)]
    unguarded: bool,
}

/// Plays the session to its end, or until Ctrl-C. Nothing is logged, so that the output stays readable. A refused
/// request is no error: it is counted and shown.
pub(super) fn run(args: &DemoArgs, out: &mut io::Stdout) -> CommandResult {
    let pace = if out.is_terminal() {
        PACE
    } else {
        Duration::ZERO
    };
    block_on(run_demo(args, out, pace))?
}

async fn run_demo(args: &DemoArgs, out: &mut impl Write, pace: Duration) -> CommandResult {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(CommandError::Start)?;
    let mut config = Config::default();
    let address = listener.local_addr().map_err(CommandError::Start)?;
    config.server.listen = address;
    // Neither sessions nor a secret are written to disk.
    config.store.place = StorePlace::Memory;
    config.server.secret = Some(SecretKey::new([0; 32]));
    // With clearing, and with limits just below the size at which the guard cuts, no course would be seen.
    config.guard.clear.enabled = false;
    let (model, window) = args.window;
    let limits = ModelConfig {
        optimal_max_tokens: Some(window / 2),
        critical_max_tokens: Some(window / 10 * 6),
        ..ModelConfig::default()
    };
    config.models.insert(format!("simulated/{model}"), limits);
    let config = Arc::new(CurrentConfig::new(config).map_err(CommandError::Start)?);
    tokio::select! {
        served = crate::serve(config, listener, pending()) => served.map_err(CommandError::Start),
        played = play_session(args, address, out, pace) => played,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn play_session(
    args: &DemoArgs,
    address: SocketAddr,
    out: &mut impl Write,
    pace: Duration,
) -> CommandResult {
    let (model, window) = args.window;
    let model = format!("simulated/{model}");
    let (steps, tokens) = (args.steps, group_digits(window));
    writeln!(
        out,
        "A coding session of {steps} requests in a window of {tokens} tokens ({model}), simulated: no key, no \
         network.\n"
    )?;
    let client = begin_http_client()
        .timeout(ANSWER_TIMEOUT)
        .build()
        .map_err(CommandError::Demo)?;
    let url = format!("http://{address}/v1/chat/completions");
    let mut report = DemoReport::default();
    let mut agent = DemoAgent::new(model.clone());
    for _ in 0..args.steps {
        let mut request = client.post(&url).header(CONTENT_TYPE, "application/json");
        if args.unguarded {
            request = request.header("x-plimsoll-guard", "off");
        }
        let (turn, request) = (agent.turn, request.body(agent.write_request()));
        let answer = request.send().await.map_err(CommandError::Demo)?;
        let answer = DemoAnswer::read(answer).await.map_err(CommandError::Demo)?;
        match answer.describe_refusal() {
            Some(_) => agent.start_over(),
            None => agent.take_answer(&answer.body),
        }
        writeln!(out, "{}", report.add_step(turn, window, &answer))?;
        out.flush()?;
        time::sleep(pace).await;
    }
    writeln!(out, "\n{} ({model})", report.format_summary())?;
    Ok(out.flush()?)
}

/// The model of the simulated provider with that window, and its tokens.
fn parse_window(name: &str) -> Result<(&'static str, u32), String> {
    let mut models = simulated::MODELS.iter().copied();
    let found = models.find(|(model, _)| model.strip_prefix("plimsoll-") == Some(name));
    found.ok_or_else(|| "one of 8k, 32k, 128k, 200k, 1m is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_named_as_in_the_models() {
        assert_eq!(parse_window("8k").unwrap().1, 8_192);
        assert_eq!(parse_window("1m").unwrap().0, "plimsoll-1m");
        assert!(parse_window("9k").is_err());
    }

    async fn shown(steps: u32, unguarded: bool) -> String {
        let args = DemoArgs {
            steps,
            window: parse_window("8k").unwrap(),
            unguarded,
        };
        let mut out = Vec::new();
        run_demo(&args, &mut out, Duration::ZERO).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    #[tokio::test]
    async fn a_guarded_session_goes_on_past_its_window() {
        let text = shown(60, false).await;
        assert_eq!(
            text.lines()
                .filter(|line| line.starts_with("step "))
                .count(),
            60
        );
        assert!(text.contains("in a window of 8,192 tokens"), "{text}");
        assert!(text.contains("dropped="), "{text}");
        assert!(
            text.lines()
                .last()
                .unwrap()
                .starts_with("60 requests, 0 refused"),
            "{text}"
        );
    }

    /// The command of the README.
    #[tokio::test]
    async fn the_default_demo_reaches_a_second_course() {
        let args = <DemoLine as clap::Parser>::parse_from(["demo"]).args;
        let mut out = Vec::new();
        run_demo(&args, &mut out, Duration::ZERO).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let first = |words: &str| lines.iter().position(|line| line.contains(words));
        let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        let caution = first("injected=caution").unwrap();
        let critical = first("injected=critical").unwrap();
        let course = first("  ==> course 2 begins").unwrap();
        assert!(caution < critical && critical < course, "{text}");
        assert!(
            lines[critical].contains("  critical "),
            "{}",
            lines[critical]
        );
        assert!(
            lines[course + 1].contains("  healthy "),
            "{}",
            lines[course + 1]
        );

        let last = lines.last().unwrap();
        let tally = |what: &str| -> usize {
            let before = last.split(what).next().unwrap();
            let number = before.rsplit(' ').next().unwrap();
            number
                .parse()
                .unwrap_or_else(|_| panic!("{what} in {last}"))
        };
        assert_eq!(tally(" requests,"), count("step "));
        assert_eq!(tally(" refused,"), count("REFUSED"));
        assert_eq!(tally(" recovery prompts,"), count("injected="));
        assert_eq!(tally(" new courses,"), count("course="));
        let step = lines
            .iter()
            .rfind(|line| line.starts_with("step "))
            .unwrap();
        let kept = format!(" {} reminders", tally(" reminders kept"));
        assert!(step.contains(&kept), "{kept} in {step}");
    }

    #[derive(clap::Parser)]
    struct DemoLine {
        #[command(flatten)]
        args: DemoArgs,
    }

    #[tokio::test]
    async fn the_same_session_without_the_guard_is_refused() {
        let text = shown(60, true).await;
        assert!(
            text.contains("REFUSED 400: This model's maximum context length"),
            "{text}"
        );
        assert!(!text.contains("dropped="), "{text}");
    }
}
