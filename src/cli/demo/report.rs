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
    course: u32,
    reminders: u32,
    /// Answers left before a new course, while critical.
    countdown: Option<u32>,
}

/// Writes a line for each answer, and keeps the sums over all of them.
pub(super) struct Report<'a, W> {
    out: &'a mut W,
    session: Session,
    requests: u64,
    refused: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    prompts: u64,
    courses: u64,
    /// As the last answer told.
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
        Self {
            refused: (status != 200).then(|| format!("{status}: {said}")),
            prompt_tokens: usage["prompt_tokens"].as_u64().unwrap_or(0) as u32,
            cached_tokens: cached.unwrap_or(0),
            level: header("x-plimsoll-health").unwrap_or("unknown").to_owned(),
            actions: header("x-plimsoll-actions").unwrap_or("none").to_owned(),
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
        let actions = self.actions.split(',');
        let mut pairs = actions.filter_map(|action| action.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
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
            requests: 0,
            refused: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            prompts: 0,
            courses: 0,
            reminders: 0,
        })
    }

    /// Writes the line of one request, and a line for each event of recovery.
    pub(super) fn add_step(&mut self, turn: usize, reading: &Reading) -> io::Result<()> {
        self.requests += 1;
        self.refused += u64::from(reading.is_refused());
        self.prompt_tokens += u64::from(reading.prompt_tokens);
        self.cached_tokens += reading.cached_tokens;
        self.prompts += u64::from(reading.action("injected").is_some());
        self.courses += u64::from(reading.action("course").is_some());
        self.reminders = reading.reminders;
        let recovery = match (reading.course, reading.reminders) {
            (1, 0) => String::new(),
            (course, reminders) => format!("  (course {course}, {reminders} reminders)"),
        };
        let (cached, session) = (self.cached_percent(), &self.session);
        write!(
            self.out,
            "step {:>4}  turn {turn:>3}  [{}] {:>9} of {} tokens  {:<8}  cached {cached:>4.1} %  {}{recovery}",
            self.requests,
            draw_gauge(reading.prompt_tokens, session.window, &session.limits),
            grouped(reading.prompt_tokens),
            grouped(session.window),
            reading.level,
            reading.actions,
        )?;
        match &reading.refused {
            Some(said) => writeln!(self.out, "  REFUSED {said}")?,
            None => writeln!(self.out)?,
        }
        for event in reading.describe_events() {
            writeln!(self.out, "  ==> {event}")?;
        }
        self.out.flush()
    }

    /// Writes the sums.
    pub(super) fn end(self) -> io::Result<()> {
        writeln!(
            self.out,
            "\n{} requests, {} refused, {:.1} % of {} prompt tokens read from the provider's cache, \
             {} recovery prompts, {} new courses, {} reminders kept ({})",
            self.requests,
            self.refused,
            self.cached_percent(),
            grouped(self.prompt_tokens),
            self.prompts,
            self.courses,
            self.reminders,
            self.session.model,
        )?;
        self.out.flush()
    }

    /// The share of all prompt tokens that the provider read from its cache, in percent.
    fn cached_percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
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
