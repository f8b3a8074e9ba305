//! What the answers of the demo's session tell: a line for each, and sums over all of them.

use std::io::{self, Write};

use http::HeaderMap;
use serde_json::Value;

use crate::{cli::table::grouped, health::limits::Limits};

/// Cells of the gauge.
const CELLS: usize = 56;

/// What stays the same for the whole session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) model: String,
    /// In tokens.
    pub(super) window: u32,
    pub(super) limits: Limits,
    pub(super) steps: u32,
}

/// What one answer told.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// The provider's words, where it refused the request.
    refused: Option<String>,
    prompt_tokens: u32,
    cached_tokens: u64,
    level: String,
    actions: String,
    /// The utilisation of the window.
    hard_util: f64,
    course: u32,
    reminders: u32,
    /// Answers left before a new course, while critical.
    countdown: Option<u32>,
}

/// Writes a line for each answer, and keeps the sums over all of them.
pub(super) struct Report<'a, W> {
    out: &'a mut W,
    session: Session,
    sums: Sums,
}

/// Sums over all answers.
#[derive(Clone, Debug, Default, PartialEq)]
struct Sums {
    requests: u64,
    refused: u64,
    /// New cuts of the guard's: the number of messages left out grew, and not by a new course.
    folds: u64,
    /// Tool results truncated for the first time.
    truncations: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    /// The highest utilisation of the window.
    fullest: f64,
    courses: u64,
    prompts: u64,
    /// Messages left out of the last request, and results truncated in it.
    dropped: u64,
    truncated: u64,
    reminders: u32,
}

impl Reading {
    /// Reads an answer's headers, as any client could, and its usage. What is missing counts as
    /// zero.
    pub(super) fn read(status: u16, headers: &HeaderMap, answer: &Value) -> Self {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| header(name).and_then(|value| value.parse().ok());
        let said = answer["error"]["message"].as_str().unwrap_or("no message");
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        let hard_util = header("x-plimsoll-hard-util").and_then(|value| value.parse().ok());
        Self {
            refused: (status != 200).then(|| format!("{status}: {said}")),
            prompt_tokens: usage["prompt_tokens"].as_u64().unwrap_or(0) as u32,
            cached_tokens: cached.unwrap_or(0),
            level: header("x-plimsoll-health").unwrap_or("unknown").to_owned(),
            actions: header("x-plimsoll-actions").unwrap_or("none").to_owned(),
            hard_util: hard_util.unwrap_or(0.0),
            course: number("x-plimsoll-course").unwrap_or(1),
            reminders: number("x-plimsoll-reminders").unwrap_or(0),
            countdown: number("x-plimsoll-countdown"),
        }
    }

    pub(super) const fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The value of one of `x-plimsoll-actions`.
    fn action(&self, name: &str) -> Option<&str> {
        let mut pairs = self
            .actions
            .split(',')
            .filter_map(|one| one.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    fn count(&self, action: &str) -> u64 {
        self.action(action)
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    }

    /// Where the session stands in its recovery; empty while there is nothing to tell.
    fn describe_recovery(&self) -> String {
        let course = (self.course > 1).then(|| format!("course {}", self.course));
        let reminders = (self.reminders > 0).then(|| format!("{} reminders", self.reminders));
        let countdown = self.countdown.map(|left| format!("countdown {left}"));
        let parts: Vec<String> = [course, reminders, countdown]
            .into_iter()
            .flatten()
            .collect();
        match parts.is_empty() {
            true => String::new(),
            false => format!("  ({})", parts.join(", ")),
        }
    }

    /// What recovery did with this request, each with a line of its own.
    fn describe_events(&self) -> impl Iterator<Item = String> {
        let prompt = self.action("injected").map(|level| match self.countdown {
            _ if level == "caution" => {
                "the model was asked to write down what must not be lost".to_owned()
            }
            None => "the model was told that a new course is near".to_owned(),
            Some(left) => {
                format!("the model was told that a new course is near; answers until then: {left}")
            }
        });
        let course = self.action("course").map(|number| {
            let reminders = self.reminders;
            format!(
                "course {number} begins: the task, {reminders} reminders and the newest steps go on"
            )
        });
        prompt.into_iter().chain(course)
    }
}

impl Sums {
    fn add(&mut self, reading: &Reading) {
        self.requests += 1;
        self.refused += u64::from(reading.is_refused());
        let begins = reading.action("course").is_some();
        let (dropped, truncated) = (reading.count("dropped"), reading.count("truncated"));
        self.folds += u64::from(dropped > self.dropped && !begins);
        self.truncations += truncated.saturating_sub(self.truncated);
        (self.dropped, self.truncated) = (dropped, truncated);
        self.prompt_tokens += u64::from(reading.prompt_tokens);
        self.cached_tokens += reading.cached_tokens;
        self.fullest = self.fullest.max(reading.hard_util);
        self.courses += u64::from(begins);
        self.prompts += u64::from(reading.action("injected").is_some());
        self.reminders = reading.reminders;
    }

    /// The share of all prompt tokens that the provider read from its cache, in percent.
    fn cached_percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

impl<'a, W: Write> Report<'a, W> {
    /// Writes what is about to be shown.
    pub(super) fn begin(out: &'a mut W, session: Session) -> io::Result<Self> {
        writeln!(
            out,
            "A coding session of {} requests in a window of {} tokens ({}), simulated: no key, no \
             network.\nIn the gauge, │ is the optimal limit and ┃ the critical one.\n",
            session.steps,
            grouped(session.window),
            session.model
        )?;
        out.flush()?;
        Ok(Self {
            out,
            session,
            sums: Sums::default(),
        })
    }

    /// Writes the line of one request, and a line for each event of recovery.
    pub(super) fn add_step(&mut self, turn: usize, reading: &Reading) -> io::Result<()> {
        self.sums.add(reading);
        let (out, session) = (&mut *self.out, &self.session);
        write!(
            out,
            "step {:>4}  turn {:>3}  [{}] {:>9} of {} tokens  {:<8}  cached {:>4.1} %  {}{}",
            self.sums.requests,
            turn,
            draw_gauge(reading.prompt_tokens, session.window, &session.limits),
            grouped(reading.prompt_tokens),
            grouped(session.window),
            reading.level,
            self.sums.cached_percent(),
            reading.actions,
            reading.describe_recovery(),
        )?;
        match &reading.refused {
            Some(said) => writeln!(out, "  REFUSED {said}")?,
            None => writeln!(out)?,
        }
        for event in reading.describe_events() {
            writeln!(out, "  ==> {event}")?;
        }
        out.flush()
    }

    /// Writes the sums.
    pub(super) fn end(self) -> io::Result<()> {
        let sums = &self.sums;
        writeln!(
            self.out,
            "\n{} requests, {} refused, {} folds, {} tool results truncated, \
             window at most {:.1} % full, {:.1} % of {} prompt tokens read from the provider's cache, \
             {} recovery prompts, {} new courses, {} reminders kept ({})",
            sums.requests,
            sums.refused,
            sums.folds,
            sums.truncations,
            sums.fullest * 100.0,
            sums.cached_percent(),
            grouped(sums.prompt_tokens),
            sums.prompts,
            sums.courses,
            sums.reminders,
            self.session.model,
        )?;
        self.out.flush()
    }
}

/// How full the window is, with a mark at each limit, never both in the same cell.
fn draw_gauge(prompt_tokens: u32, window: u32, limits: &Limits) -> String {
    let cell = |tokens: u32| {
        let share = f64::from(tokens) / f64::from(window.max(1));
        ((share * CELLS as f64).round() as usize).min(CELLS)
    };
    let critical = cell(limits.critical_max_tokens.unwrap_or(window)).clamp(1, CELLS - 1);
    let optimal = cell(limits.optimal_max_tokens).min(critical - 1);
    let filled = cell(prompt_tokens);
    let cells = (0..CELLS).map(|at| match at {
        _ if at == critical => '┃',
        _ if at == optimal => '│',
        _ if at < filled => '#',
        _ => '.',
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        optimal_max_tokens: 500,
        critical_max_tokens: Some(750),
    };

    fn read(actions: &str) -> Reading {
        Reading {
            actions: actions.to_owned(),
            prompt_tokens: 100,
            cached_tokens: 50,
            reminders: 3,
            course: 2,
            ..Reading::default()
        }
    }

    #[test]
    fn the_gauge_fills_and_keeps_its_marks() {
        for tokens in [0, 1, 250, 500, 999, 1_000, 5_000] {
            let gauge = draw_gauge(tokens, 1_000, &LIMITS);
            assert_eq!(gauge.chars().count(), CELLS);
            assert_eq!(gauge.chars().position(|one| one == '│'), Some(28));
            assert_eq!(gauge.chars().position(|one| one == '┃'), Some(42));
        }
        for (optimal, critical) in [(0, 0), (2_000, 2_000), (900, 100)] {
            let limits = Limits {
                optimal_max_tokens: optimal,
                critical_max_tokens: Some(critical),
            };
            assert_eq!(draw_gauge(10, 0, &limits).chars().count(), CELLS);
        }
    }

    #[test]
    fn cuts_are_counted_once_and_a_new_course_is_no_fold() {
        let mut sums = Sums::default();
        for actions in [
            "none",
            "truncated=1, injected=caution",
            "truncated=2, dropped=9",
            "truncated=1, dropped=30, course=2",
            "dropped=30, refitted=1",
            "dropped=41",
        ] {
            sums.add(&read(actions));
        }
        assert_eq!((sums.requests, sums.folds, sums.truncations), (6, 2, 2));
        assert_eq!((sums.courses, sums.prompts, sums.reminders), (1, 1, 3));
        assert!((sums.cached_percent() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_new_course_has_a_line_of_its_own() {
        let session = Session {
            model: "m".to_owned(),
            window: 1_000,
            limits: LIMITS,
            steps: 9,
        };
        let mut out = Vec::new();
        let mut report = Report::begin(&mut out, session).unwrap();
        report.add_step(4, &read("course=2")).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, text) = text.split_once("\n\n").unwrap();
        let (step, event) = text.split_once('\n').unwrap();
        assert!(
            step.ends_with("course=2  (course 2, 3 reminders)"),
            "{step}"
        );
        assert_eq!(
            event,
            "  ==> course 2 begins: the task, 3 reminders and the newest steps go on\n"
        );
    }

    #[test]
    fn odd_headers_do_no_harm() {
        let mut headers = HeaderMap::new();
        headers.insert("x-plimsoll-course", "x".parse().unwrap());
        headers.insert("x-plimsoll-countdown", "soon".parse().unwrap());
        let reading = Reading::read(400, &headers, &Value::Null);
        assert_eq!((reading.course, reading.countdown), (1, None));
        assert_eq!(reading.refused.as_deref(), Some("400: no message"));
    }
}
