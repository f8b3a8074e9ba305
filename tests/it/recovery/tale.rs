//! Writes the upstream requests of a session in a readable form.
//!
//! Client messages are ranges of their numbers; an injection is in full at its first occurrence,
//! and by its number later.

use std::fmt::Write as _;

use serde_json::Value;

use crate::support::{AgentGeneration, model::notice::message_text};

#[derive(Default)]
pub(crate) struct Tale {
    pub(crate) text: String,
    ours: Vec<String>,
    tools: Vec<String>,
}

impl Tale {
    /// A generation: the client's headers, and its upstream requests.
    pub(crate) fn generation(
        &mut self,
        nth: usize,
        client: &[Value],
        upstream: &[Value],
        generation: &AgentGeneration,
    ) {
        let header = |name: &str| generation.header(name).unwrap_or("-").to_owned();
        let _ = writeln!(
            self.text,
            "{nth}: {} ({}), {} | course {}, reminders {}, countdown {}",
            header("health"),
            header("health-from"),
            header("actions"),
            header("course"),
            header("reminders"),
            header("countdown"),
        );
        for body in upstream {
            self.request(client, body);
        }
    }

    fn request(&mut self, client: &[Value], body: &Value) {
        let tools = body["tools"].as_array().into_iter().flatten();
        let tools = tools.filter_map(|tool| tool["function"]["name"].as_str());
        let tools: Vec<String> = tools.map(str::to_owned).collect();
        if tools != self.tools {
            let _ = writeln!(self.text, "  tools: {}", tools.join(", "));
            self.tools = tools;
        }
        let (mut line, mut new) = (Line::default(), Vec::new());
        let mut next = 0;
        for message in body["messages"].as_array().into_iter().flatten() {
            let same = (next..client.len()).find(|&at| client[at] == *message);
            if let Some(at) = same {
                line.client_message(at);
                next = at + 1;
                continue;
            }
            let edited =
                (next..client.len()).find_map(|at| Some((at, added_to(&client[at], message)?)));
            let (place, text) = match edited {
                Some((at, text)) => {
                    next = at + 1;
                    (format!("[{at}]+"), text)
                }
                None => (String::new(), told_headers(message)),
            };
            let number = self.number(text, &mut new);
            line.injected_message(&format!("{place}#{number}"));
        }
        let _ = writeln!(self.text, "  {}", line.finish());
        for number in new {
            let _ = writeln!(
                self.text,
                "    #{number} {}",
                self.ours[number - 1].replace('\n', "\n      ")
            );
        }
    }

    fn number(&mut self, text: String, new: &mut Vec<usize>) -> usize {
        if let Some(at) = self.ours.iter().position(|known| *known == text) {
            return at + 1;
        }
        self.ours.push(text);
        new.push(self.ours.len());
        self.ours.len()
    }
}

/// An injected message in full.
fn told_headers(message: &Value) -> String {
    let role = message["role"].as_str().unwrap_or("?");
    let calls = match &message["tool_calls"] {
        Value::Null => String::new(),
        calls => format!(" {calls}"),
    };
    let id = message["tool_call_id"].as_str().unwrap_or("");
    format!("{role} {id}{calls}\n{}", message_text(message))
}

/// The addition to a client message: text at its end, or calls. `None` where it is another message.
fn added_to(theirs: &Value, sent: &Value) -> Option<String> {
    if theirs["role"] != sent["role"] || theirs["tool_call_id"] != sent["tool_call_id"] {
        return None;
    }
    let (before, after) = (message_text(theirs), message_text(sent));
    let (calls, more) = (
        theirs["tool_calls"].as_array(),
        sent["tool_calls"].as_array(),
    );
    match (calls, more) {
        (Some(calls), Some(more)) if calls.iter().all(|call| more.contains(call)) => {
            let own = more.iter().filter(|call| !calls.contains(call));
            let own: Vec<String> = own.map(Value::to_string).collect();
            Some(format!("calls {}", own.join(" ")))
        }
        (None, None) if !before.is_empty() && after.starts_with(&before) => {
            Some(format!("at its end\n{}", after[before.len()..].trim()))
        }
        _ => None,
    }
}

/// Runs of client messages, and the injections between them.
#[derive(Default)]
struct Line {
    text: String,
    run: Option<(usize, usize)>,
}

impl Line {
    fn client_message(&mut self, at: usize) {
        match &mut self.run {
            Some((_, end)) if *end + 1 == at => *end = at,
            _ => {
                self.flush();
                self.run = Some((at, at));
            }
        }
    }

    fn injected_message(&mut self, what: &str) {
        self.flush();
        self.text.push_str(what);
        self.text.push(' ');
    }

    fn flush(&mut self) {
        match self.run.take() {
            Some((start, end)) if start == end => self.text.push_str(&format!("[{start}] ")),
            Some((start, end)) => self.text.push_str(&format!("[{start}-{end}] ")),
            None => {}
        }
    }

    fn finish(mut self) -> String {
        self.flush();
        self.text.trim_end().to_owned()
    }
}
