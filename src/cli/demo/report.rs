//! The report of the demo: a line for each answer, and sums over all of them.

use http::HeaderMap;
use serde_json::Value;

use crate::cli::table::{draw_bar, group_digits};

const BAR_CELLS: usize = 56;
/// Columns of a line with that bar, and a little of what was done.
const WIDE: usize = 160;
/// Columns of a short line without its bar, and of the shortest bar.
const SHORT_LINE: [usize; 2] = [62, 8];

pub(super) struct DemoAnswer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    /// `null` where it is not JSON.
    pub(super) body: Value,
}

/// USD per million tokens: of the prompt, of the prompt from the cache, of answers. Prices of a large model in autumn
/// 2026; those of other models have about the same ratios.
const PRICES: [f64; 3] = [3.0, 0.3, 15.0];

/// The sums over all answers so far.
#[derive(Default)]
pub(super) struct DemoReport {
    requests: u64,
    refused: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    answer_tokens: u64,
    /// Names that the model knew at the end, and all names of the session.
    pub(super) known: (usize, usize),
    /// Of the last answer.
    reminders: u32,
    /// Columns of the terminal; `None`: any.
    columns: Option<usize>,
}

impl DemoAnswer {
    pub(super) async fn read(response: reqwest::Response) -> reqwest::Result<Self> {
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: serde_json::from_slice(&response.bytes().await?).unwrap_or_default(),
        })
    }

    /// Status and message, where the request was refused.
    pub(super) fn describe_refusal(&self) -> Option<String> {
        let message = self.body["error"]["message"].as_str();
        let message = message.unwrap_or("no message");
        (self.status != 200).then(|| format!("{}: {message}", self.status))
    }

    fn read_header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    fn parse_header(&self, name: &str) -> Option<u32> {
        self.read_header(name)?.parse().ok()
    }

    /// The value of one action in `x-plimsoll-actions`.
    fn find_action(&self, name: &str) -> Option<&str> {
        let actions = self.read_header("x-plimsoll-actions")?.split(',');
        let mut pairs = actions.filter_map(|action| action.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

impl DemoReport {
    /// Of a terminal with so many columns.
    pub(super) fn for_columns(columns: Option<usize>) -> Self {
        Self {
            columns,
            ..Self::default()
        }
    }

    /// The line of one request, and a line for each event of recovery. Numbers that the answer does not have
    /// count as zero. `window` is in tokens.
    pub(super) fn add_step(&mut self, turn: usize, window: u32, answer: &DemoAnswer) -> String {
        let usage = &answer.body["usage"];
        let prompt_tokens = usage["prompt_tokens"].as_u64().unwrap_or(0);
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        self.requests += 1;
        self.refused += u64::from(answer.describe_refusal().is_some());
        self.prompt_tokens += prompt_tokens;
        self.cached_tokens += cached.unwrap_or(0);
        self.answer_tokens += usage["completion_tokens"].as_u64().unwrap_or(0);
        self.reminders = answer.parse_header("x-plimsoll-reminders").unwrap_or(0);
        let health = answer.read_header("x-plimsoll-health").unwrap_or("unknown");
        let actions = answer.read_header("x-plimsoll-actions").unwrap_or("none");
        let narrow = self.columns.filter(|columns| *columns < WIDE);
        let mut line = narrow.map_or_else(
            || self.format_wide(turn, prompt_tokens, window, health),
            |columns| self.format_narrow(columns, prompt_tokens, window, health),
        );
        let mut rest = actions.to_owned();
        match answer.parse_header("x-plimsoll-course").unwrap_or(1) {
            1 if self.reminders == 0 => {}
            course => rest += &format!("  (course {course}, {} reminders)", self.reminders),
        }
        if let Some(refusal) = answer.describe_refusal() {
            rest += &format!("  REFUSED {refusal}");
        }
        // What is too long for the line stands below it.
        let fits = |columns: usize| line.chars().count() + 2 + rest.chars().count() <= columns;
        let gap = if self.columns.is_none_or(fits) {
            "  "
        } else {
            "\n       "
        };
        line += gap;
        line += &rest;
        for event in self.describe_events(answer) {
            line += &format!("\n  ==> {event}");
        }
        match self.columns {
            Some(columns) => cut_lines(&line, columns),
            None => line,
        }
    }

    fn format_wide(&self, turn: usize, tokens: u64, window: u32, health: &str) -> String {
        format!(
            "step {:>4}  turn {turn:>3}  [{}] {:>9} of {} tokens  {:<8}  cached {:>4.1} %",
            self.requests,
            draw_bar(tokens, window.into(), BAR_CELLS),
            group_digits(tokens),
            group_digits(window),
            health,
            self.compute_cached_percent(),
        )
    }

    fn format_narrow(&self, columns: usize, tokens: u64, window: u32, health: &str) -> String {
        let [line, least] = SHORT_LINE;
        format!(
            "{:>4} [{}] {:>9} of {}  {health:<8}  cached {:>4.1} %",
            self.requests,
            draw_bar(
                tokens,
                window.into(),
                columns.saturating_sub(line).clamp(least, BAR_CELLS)
            ),
            group_digits(tokens),
            group_digits(window),
            self.compute_cached_percent(),
        )
    }

    /// What recovery did with a request.
    fn describe_events(&self, answer: &DemoAnswer) -> impl Iterator<Item = String> {
        let left = answer.parse_header("x-plimsoll-countdown");
        let left = left.map(|left| format!("; answers until then: {left}"));
        let left = left.unwrap_or_default();
        let prompt = answer.find_action("injected").map(|level| match level {
            "caution" => "the model was asked to write down what must not be lost".to_owned(),
            _ => format!("the model was told that a new course is near{left}"),
        });
        let reminders = self.reminders;
        let kept = format!("the task, {reminders} reminders and the newest steps go on");
        let course = answer.find_action("course");
        let course = course.map(|number| format!("course {number} begins: {kept}"));
        prompt.into_iter().chain(course)
    }

    /// USD.
    fn compute_cost(&self) -> f64 {
        let fresh = self.prompt_tokens - self.cached_tokens;
        let tokens = [fresh, self.cached_tokens, self.answer_tokens];
        let sums = tokens
            .iter()
            .zip(PRICES)
            .map(|(tokens, price)| *tokens as f64 * price);
        sums.sum::<f64>() / 1e6
    }

    fn compute_cached_percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// The text with no line of more columns.
fn cut_lines(text: &str, columns: usize) -> String {
    let cut = |line: &str| line.chars().take(columns).collect::<String>();
    text.lines().map(cut).collect::<Vec<_>>().join("\n")
}

/// The sums of three reports beside each other, under their titles.
pub(super) fn format_comparison(titles: [&str; 3], reports: &[DemoReport]) -> Vec<[String; 4]> {
    let [one, two, three] = titles;
    let row = |name: &str, cell: &dyn Fn(&DemoReport) -> String| {
        let mut row = [name, "", "", ""].map(str::to_owned);
        for (slot, report) in row[1..].iter_mut().zip(reports) {
            *slot = cell(report);
        }
        row
    };
    let [prompt, cached, answer] = PRICES;
    vec![
        ["", one, two, three].map(str::to_owned),
        row("steps done", &|report| {
            (report.requests - report.refused).to_string()
        }),
        row("refused", &|report| report.refused.to_string()),
        row("prompt tokens read", &|report| {
            group_digits(report.prompt_tokens)
        }),
        row("from the provider's cache", &|report| {
            format!("{:.1} %", report.compute_cached_percent())
        }),
        row(
            &format!("cost, {prompt} / {cached} / {answer} USD per million"),
            &|report| format!("{:.2} USD", report.compute_cost()),
        ),
        row("known of its files and tickets", &|report| {
            let (known, all) = report.known;
            format!("{known} of {all}")
        }),
    ]
}

#[cfg(test)]
mod tests {
    use http::HeaderName;
    use serde_json::json;

    use super::*;

    fn read(status: u16, headers: &[(&'static str, &'static str)], body: Value) -> DemoAnswer {
        let headers = headers.iter().map(|(name, value)| {
            let value = value.parse().unwrap();
            (HeaderName::from_static(name), value)
        });
        DemoAnswer {
            status,
            headers: headers.collect(),
            body,
        }
    }

    /// The line of an answer, and the lines of events after it.
    fn step(answer: &DemoAnswer) -> (String, String) {
        let text = DemoReport::default().add_step(4, 1_000, answer);
        let (step, events) = text.split_once('\n').unwrap();
        (step.to_owned(), events.to_owned())
    }

    #[test]
    fn a_new_course_has_its_own_line() {
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
            "  ==> course 2 begins: the task, 3 reminders and the newest steps go on"
        );
    }

    #[test]
    fn lines_fit_the_columns_of_the_terminal() {
        let headers = [
            (
                "x-plimsoll-actions",
                "truncated=12, cleared=53, dropped=114, injected=critical, course=2",
            ),
            ("x-plimsoll-course", "12"),
            ("x-plimsoll-reminders", "13"),
            ("x-plimsoll-countdown", "5"),
        ];
        let usage = json!({"prompt_tokens": 1_000_000});
        let answer = read(200, &headers, json!({"usage": usage}));
        for columns in [80, 100, 120, 159, 160, 200] {
            let mut report = DemoReport::for_columns(Some(columns));
            let text = report.add_step(4, 1_000_000, &answer);
            let mut widths = text.lines().map(|line| line.chars().count());
            assert!(widths.all(|width| width <= columns), "{columns}: {text}");
            assert!(text.contains("cached  0.0 %"), "{columns}: {text}");
        }
    }

    #[test]
    fn malformed_headers_count_as_missing() {
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
        assert_eq!(event, "  ==> the model was told that a new course is near");
    }
}
