//! What the answers of the demo's session tell: a line for each, and sums over all of them.

use std::io::{self, Write};

use http::HeaderMap;
use serde_json::Value;

use crate::cli::table::{draw_bar, grouped};

/// Cells of the bar.
const CELLS: usize = 56;

/// What stays the same for the whole session.
pub(super) struct Session {
    pub(super) model: String,
    /// In tokens.
    pub(super) window: u32,
    pub(super) steps: u32,
}

/// What came back for one request.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// `null` where it is no JSON.
    pub(super) body: Value,
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

impl Answer {
    /// The provider's words, where it refused the request.
    pub(super) fn refusal(&self) -> Option<String> {
        let words = self.body["error"]["message"].as_str();
        let words = words.unwrap_or("no message");
        (self.status != 200).then(|| format!("{}: {words}", self.status))
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn number(&self, name: &str) -> Option<u32> {
        self.header(name)?.parse().ok()
    }

    /// The value of one of `x-plimsoll-actions`.
    fn action(&self, name: &str) -> Option<&str> {
        let actions = self.header("x-plimsoll-actions")?.split(',');
        let mut pairs = actions.filter_map(|action| action.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

impl<'a, W: Write> Report<'a, W> {
    /// Writes what is about to be shown.
    pub(super) fn begin(out: &'a mut W, session: Session) -> io::Result<Self> {
        writeln!(
            out,
            "A coding session of {} requests in a window of {} tokens ({}), simulated: no key, no \
             network.\n",
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

    /// Writes the line of one request, and a line for each event of recovery. What an answer does not tell
    /// counts as zero.
    pub(super) fn add_step(&mut self, turn: usize, answer: &Answer) -> io::Result<()> {
        let usage = &answer.body["usage"];
        let prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or(0);
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        self.requests += 1;
        self.refused += u64::from(answer.refusal().is_some());
        self.prompt_tokens += prompt_tokens;
        self.cached_tokens += cached.unwrap_or(0);
        self.prompts += u64::from(answer.action("injected").is_some());
        self.courses += u64::from(answer.action("course").is_some());
        self.reminders = answer.number("x-plimsoll-reminders").unwrap_or(0);
        let (cached, session) = (self.cached_percent(), &self.session);
        write!(
            self.out,
            "step {:>4}  turn {turn:>3}  [{}] {:>9} of {} tokens  {:<8}  cached {cached:>4.1} %  {}",
            self.requests,
            draw_bar(prompt_tokens, session.window.into(), CELLS),
            grouped(prompt_tokens),
            grouped(session.window),
            answer.header("x-plimsoll-health").unwrap_or("unknown"),
            answer.header("x-plimsoll-actions").unwrap_or("none"),
        )?;
        let course = answer.number("x-plimsoll-course").unwrap_or(1);
        if (course, self.reminders) != (1, 0) {
            write!(
                self.out,
                "  (course {course}, {} reminders)",
                self.reminders
            )?;
        }
        match answer.refusal() {
            Some(said) => writeln!(self.out, "  REFUSED {said}")?,
            None => writeln!(self.out)?,
        }
        self.write_events(answer)?;
        self.out.flush()
    }

    /// What recovery did with this request, each with a line of its own.
    fn write_events(&mut self, answer: &Answer) -> io::Result<()> {
        let left = answer.number("x-plimsoll-countdown");
        match (answer.action("injected"), left) {
            (None, _) => {}
            (Some("caution"), _) => writeln!(
                self.out,
                "  ==> the model was asked to write down what must not be lost"
            )?,
            (Some(_), left) => {
                let left = left.map_or(String::new(), |left| {
                    format!("; answers until then: {left}")
                });
                writeln!(
                    self.out,
                    "  ==> the model was told that a new course is near{left}"
                )?;
            }
        }
        if let Some(number) = answer.action("course") {
            writeln!(
                self.out,
                "  ==> course {number} begins: the task, {} reminders and the newest steps go on",
                self.reminders
            )?;
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use serde_json::json;

    use super::*;

    fn read(status: u16, headers: &[(&'static str, &'static str)], body: Value) -> Answer {
        let headers = headers.iter().map(|(name, value)| {
            let value = value.parse().unwrap();
            (HeaderName::from_static(name), value)
        });
        Answer {
            status,
            headers: headers.collect(),
            body,
        }
    }

    /// What is written of one answer: its line, and what follows.
    fn step(answer: &Answer) -> (String, String) {
        let session = Session {
            model: "m".to_owned(),
            window: 1_000,
            steps: 9,
        };
        let mut out = Vec::new();
        let mut report = Report::begin(&mut out, session).unwrap();
        report.add_step(4, answer).unwrap();
        let text = String::from_utf8(out).unwrap();
        let (_, text) = text.split_once("\n\n").unwrap();
        let (step, events) = text.split_once('\n').unwrap();
        (step.to_owned(), events.to_owned())
    }

    #[test]
    fn a_new_course_has_a_line_of_its_own() {
        let headers = [
            ("x-plimsoll-actions", "course=2"),
            ("x-plimsoll-course", "2"),
            ("x-plimsoll-reminders", "3"),
        ];
        let usage = json!({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 50}});
        let (step, event) = step(&read(200, &headers, json!({"usage": usage})));
        assert!(
            step.ends_with("cached 50.0 %  course=2  (course 2, 3 reminders)"),
            "{step}"
        );
        assert_eq!(
            event,
            "  ==> course 2 begins: the task, 3 reminders and the newest steps go on\n"
        );
    }

    #[test]
    fn odd_headers_do_no_harm() {
        let headers = [
            ("x-plimsoll-actions", "injected=critical"),
            ("x-plimsoll-course", "x"),
            ("x-plimsoll-countdown", "soon"),
        ];
        let (step, event) = step(&read(400, &headers, Value::Null));
        assert!(
            step.ends_with("injected=critical  REFUSED 400: no message"),
            "{step}"
        );
        assert_eq!(
            event,
            "  ==> the model was told that a new course is near\n"
        );
    }
}
