//! `plimsoll demo`: a long coding session in a small window, with a line for each request.
//!
//! A real proxy in this process, on a free loopback port, in front of the built-in provider; an
//! agent that talks to it over HTTP as any client would. No key, no network, and nothing stays
//! on the disk.

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
use super::{CommandError, block_on, table::group_digits};
use crate::{
    CurrentConfig,
    config::{Config, StorePlace, secret::SecretKey},
    provider::simulated::{self, DemoAgent},
};

/// Pause after a step where the output is a terminal, so that a reader can follow.
const PACE: Duration = Duration::from_millis(120);
/// The simulated provider answers in milliseconds; past this something is broken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// What the demo may be told.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct DemoArgs {
    /// Requests that the agent sends.
    #[arg(long, default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// The model's window: 8k, 32k, 128k, 200k or 1m.
    #[arg(long, default_value = "32k", value_parser = window)]
    window: (&'static str, u32),
    /// Switch the guard off, and see what happens without it.
    #[arg(long)]
    unguarded: bool,
}

/// Plays the session to its end, or until Ctrl-C. Logs nothing, so that the lines stay whole.
///
/// # Errors
///
/// No loopback port, no output, or a proxy that does not answer. A refused request is none: it
/// is counted and shown.
pub(super) fn run(args: &DemoArgs, out: &mut io::Stdout) -> Result<(), CommandError> {
    let pace = match out.is_terminal() {
        true => PACE,
        false => Duration::ZERO,
    };
    block_on(run_demo(args, out, pace))?
}

async fn run_demo(
    args: &DemoArgs,
    out: &mut impl Write,
    pace: Duration,
) -> Result<(), CommandError> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(CommandError::Start)?;
    let mut config = Config::default();
    let address = listener.local_addr().map_err(CommandError::Start)?;
    config.server.listen = address;
    // It ends with what it shows, so neither sessions nor a secret go to the disk.
    config.store.place = StorePlace::Memory;
    config.server.secret = Some(SecretKey::new([0; 32]));
    // It keeps a session of this length healthy; what is shown here is what follows where it does not.
    config.guard.clear.enabled = false;
    let live = CurrentConfig::new(config).map_err(CommandError::Start)?;
    tokio::select! {
        served = crate::serve(Arc::new(live), listener, pending()) => served.map_err(CommandError::Start),
        played = play_session(args, address, out, pace) => played,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn play_session(
    args: &DemoArgs,
    address: SocketAddr,
    out: &mut impl Write,
    pace: Duration,
) -> Result<(), CommandError> {
    let (model, window) = args.window;
    let model = format!("simulated/{model}");
    writeln!(
        out,
        "A coding session of {} requests in a window of {} tokens ({model}), simulated: no key, no \
         network.\n",
        args.steps,
        group_digits(window),
    )?;
    let client = super::build_http_client(ANSWER_TIMEOUT).map_err(CommandError::Demo)?;
    let url = format!("http://{address}/v1/chat/completions");
    let mut report = DemoReport::default();
    let mut agent = DemoAgent::new(model);
    for _ in 0..args.steps {
        let mut request = client.post(&url).header(CONTENT_TYPE, "application/json");
        if args.unguarded {
            request = request.header("x-plimsoll-guard", "off");
        }
        let (turn, request) = (agent.turn, request.body(agent.write_request()));
        let answer = request.send().await.map_err(CommandError::Demo)?;
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let body = answer.bytes().await.map_err(CommandError::Demo)?;
        let answer = DemoAnswer {
            status,
            headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        match answer.refusal_text() {
            Some(_) => agent.start_over(),
            None => agent.take_answer(&answer.body),
        }
        writeln!(out, "{}", report.add_step(turn, window, &answer))?;
        out.flush()?;
        time::sleep(pace).await;
    }
    writeln!(
        out,
        "\n{} (simulated/{})",
        report.summary_line(),
        args.window.0
    )?;
    Ok(out.flush()?)
}

/// The model of the simulated provider whose window has that name, and its tokens.
fn window(name: &str) -> Result<(&'static str, u32), String> {
    let mut models = simulated::MODELS.iter();
    let found = models.find(|(model, _)| model.strip_prefix("plimsoll-") == Some(name));
    let found = found.copied();
    found.ok_or_else(|| "one of 8k, 32k, 128k, 200k, 1m is expected".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_named_as_the_models_are() {
        assert_eq!(window("8k").unwrap().1, 8_192);
        assert_eq!(window("1m").unwrap().0, "plimsoll-1m");
        assert!(window("9k").is_err());
    }

    async fn shown(steps: u32, unguarded: bool) -> String {
        let args = DemoArgs {
            steps,
            window: window("8k").unwrap(),
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

    /// As the README shows it: nothing but the command.
    #[tokio::test]
    async fn by_default_a_course_changes_before_the_eyes() {
        let args = <Played as clap::Parser>::parse_from(["demo"]).args;
        let mut out = Vec::new();
        run_demo(&args, &mut out, Duration::ZERO).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let at = |words: &str| lines.iter().position(|line| line.contains(words));
        let told = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        let caution = at("injected=caution").unwrap();
        let critical = at("injected=critical").unwrap();
        let course = at("  ==> course 2 begins").unwrap();
        assert!(caution < critical && critical < course, "{text}");
        // Full before, and healthy after.
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
        assert_eq!(tally(" requests,"), told("step "));
        assert_eq!(tally(" refused,"), told("REFUSED"));
        assert_eq!(tally(" recovery prompts,"), told("injected="));
        assert_eq!(tally(" new courses,"), told("course="));
        let step = lines
            .iter()
            .rfind(|line| line.starts_with("step "))
            .unwrap();
        let kept = format!(" {} reminders", tally(" reminders kept"));
        assert!(step.contains(&kept), "{kept} in {step}");
    }

    #[derive(clap::Parser)]
    struct Played {
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
