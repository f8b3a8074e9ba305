//! `plimsoll demo`: a long coding session in a small window, with a line for each request, and beside it what becomes of
//! the same session without the guard.
//!
//! It runs a real proxy in this process, on a free loopback port, with the built-in provider and the default settings. A
//! simulated agent talks to it over HTTP. It needs no key and no network, and writes nothing to disk.

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

use self::report::{DemoAnswer, DemoReport, format_comparison};
use super::{
    CommandError, CommandResult, block_on,
    table::{group_digits, write_table},
};
use crate::{
    CurrentConfig,
    config::{Config, StorePlace, secret::SecretKey},
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
    /// Draw the session without the guard, and see what happens.
    #[arg(long)]
    unguarded: bool,
}

/// How the session is kept inside the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DemoWay {
    /// By the proxy.
    Guarded,
    /// By the agent, which drops its oldest messages.
    OldestDropped,
    /// Not at all: after a refusal, the agent begins a new session.
    Unguarded,
}

impl DemoWay {
    const ALL: [Self; 3] = [Self::Guarded, Self::OldestDropped, Self::Unguarded];

    /// The title where a terminal is narrow.
    const fn short_title(self) -> &'static str {
        match self {
            Self::Guarded => "Plimsoll",
            Self::OldestDropped => "oldest dropped",
            Self::Unguarded => "begun anew",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Guarded => "Plimsoll",
            Self::OldestDropped => "oldest messages dropped",
            Self::Unguarded => "begun anew when full",
        }
    }
}

/// Plays the session to its end, or until Ctrl-C. Nothing is logged, so that the output stays readable. A refused
/// request is no error: it is counted and shown.
pub(super) fn run(args: &DemoArgs, out: &mut io::Stdout) -> CommandResult {
    let columns = terminal_size::terminal_size_of(&*out);
    let screen = DemoScreen {
        pace: if out.is_terminal() {
            PACE
        } else {
            Duration::ZERO
        },
        columns: columns.map(|(columns, _)| columns.0.into()),
    };
    block_on(run_demo(args, out, screen))?
}

/// What the output is written to.
#[derive(Clone, Copy, Debug)]
struct DemoScreen {
    /// The pause after a step.
    pace: Duration,
    /// Of a terminal.
    columns: Option<usize>,
}

async fn run_demo(args: &DemoArgs, out: &mut impl Write, screen: DemoScreen) -> CommandResult {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await;
    let listener = listener.map_err(CommandError::Start)?;
    let mut config = Config::default();
    let address = listener.local_addr().map_err(CommandError::Start)?;
    config.server.listen = address;
    // Neither sessions nor a secret are written to disk.
    config.store.place = StorePlace::Memory;
    config.server.secret = Some(SecretKey::new([0; 32]));
    let config = CurrentConfig::new(config).await;
    let config = Arc::new(config.map_err(CommandError::Start)?);
    tokio::select! {
        served = crate::serve(config, listener, pending()) => served.map_err(CommandError::Start),
        played = play_session(args, address, out, screen) => played,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn play_session(
    args: &DemoArgs,
    address: SocketAddr,
    out: &mut impl Write,
    DemoScreen { pace, columns }: DemoScreen,
) -> CommandResult {
    let (model, window) = args.window;
    let (steps, tokens) = (args.steps, group_digits(window));
    writeln!(
        out,
        "A coding session of {steps} requests in a window of {tokens} tokens,\nsimulated (simulated/{model}): no key, no \
         network.\n"
    )?;
    let client = begin_http_client()
        .timeout(ANSWER_TIMEOUT)
        .build()
        .map_err(CommandError::Demo)?;
    let url = format!("http://{address}/v1/chat/completions");
    let drawn = if args.unguarded {
        DemoWay::Unguarded
    } else {
        DemoWay::Guarded
    };
    let mut reports = Vec::new();
    for way in DemoWay::ALL {
        let mut play = Play {
            way,
            agent: DemoAgent::new(format!("simulated/{model}"), way.title()),
            report: DemoReport::for_columns(columns),
            request: client.post(&url).header(CONTENT_TYPE, "application/json"),
        };
        for _ in 0..args.steps {
            let line = play.take_step(window).await.map_err(CommandError::Demo)?;
            if way == drawn {
                writeln!(out, "{line}")?;
                out.flush()?;
                time::sleep(pace).await;
            }
        }
        play.ask_question(window)
            .await
            .map_err(CommandError::Demo)?;
        reports.push(play.report);
    }
    writeln!(out, "\nThe same session in the same window:\n")?;
    let is_narrow = columns.is_some_and(|columns| columns < 100);
    let title = if is_narrow {
        DemoWay::short_title
    } else {
        DemoWay::title
    };
    let titles = DemoWay::ALL.map(title);
    write_table(out, &format_comparison(titles, &reports))?;
    Ok(out.flush()?)
}

/// A session that is played in one way.
struct Play {
    way: DemoWay,
    agent: DemoAgent,
    report: DemoReport,
    /// Without its body.
    request: reqwest::RequestBuilder,
}

impl Play {
    /// One request, and its line.
    async fn take_step(&mut self, window: u32) -> reqwest::Result<String> {
        if self.way == DemoWay::OldestDropped {
            self.agent.drop_oldest(window, false);
        }
        let turn = self.agent.turn;
        let answer = self.send_body(self.agent.write_request()).await?;
        match answer.describe_refusal() {
            Some(_) => self.agent.start_over(),
            None => self.agent.take_answer(&answer.body),
        }
        Ok(self.report.add_step(turn, window, &answer))
    }

    /// Asks for the names of the session, which are counted.
    async fn ask_question(&mut self, window: u32) -> reqwest::Result<()> {
        if self.way == DemoWay::OldestDropped {
            self.agent.drop_oldest(window, true);
        }
        let answer = self.send_body(self.agent.write_question()).await?;
        self.report.known = self.agent.count_known(&answer.body);
        Ok(())
    }

    async fn send_body(&self, body: Vec<u8>) -> reqwest::Result<DemoAnswer> {
        let mut request = self.request.try_clone().expect("it has no body yet");
        if self.way != DemoWay::Guarded {
            request = request.header("x-plimsoll-guard", "off");
        }
        DemoAnswer::read(request.body(body).send().await?).await
    }
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

    const UNPACED: DemoScreen = DemoScreen {
        pace: Duration::ZERO,
        columns: None,
    };

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
        run_demo(&args, &mut out, UNPACED).await.unwrap();
        String::from_utf8(out).unwrap()
    }

    /// The cells of a row of the table at the end: Plimsoll, the oldest dropped, begun anew.
    fn find_row(text: &str, name: &str) -> [f64; 3] {
        let table = text.split_once("The same session").unwrap().1;
        let row = table
            .lines()
            .find_map(|line| line.trim().strip_prefix(name))
            .unwrap();
        let cells = row
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        let number = |cell: &str| {
            let digits = |c: char| c.is_ascii_digit() || c == '.';
            let number: String = cell
                .replace(',', "")
                .chars()
                .take_while(|c| digits(*c))
                .collect();
            number.parse().unwrap()
        };
        let cells: Vec<&str> = cells.collect();
        std::array::from_fn(|at| number(cells[cells.len() - 3 + at]))
    }

    #[tokio::test]
    async fn a_guarded_session_goes_on_past_its_window() {
        let text = shown(60, false).await;
        let steps = text.lines().filter(|line| line.starts_with("step "));
        assert_eq!(steps.count(), 60);
        assert!(text.contains("in a window of 8,192 tokens"), "{text}");
        assert!(!text.contains("REFUSED"), "{text}");
        assert_eq!(find_row(&text, "steps done")[0], 60.0);
    }

    /// The command of the README: what it shows must be better in each row than what people do without it.
    #[tokio::test]
    async fn the_default_demo_shows_what_the_guard_is_worth() {
        let args = <DemoLine as clap::Parser>::parse_from(["demo"]).args;
        let mut out = Vec::new();
        run_demo(&args, &mut out, UNPACED).await.unwrap();
        let text = String::from_utf8(out).unwrap();
        let [guarded, dropped, anew] = find_row(&text, "refused");
        assert!(guarded == 0.0 && dropped == 0.0 && anew > 0.0, "{text}");
        let [guarded, dropped, anew] = find_row(&text, "known of");
        assert!(guarded > dropped && guarded > anew, "{text}");
        let [guarded, dropped, _] = find_row(&text, "cost");
        assert!(guarded < dropped, "{text}");
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
