//! Sections of a ledger, as far as there is room for them.

use crate::guard::{estimate::Weights, fence};

/// What sums of fractions may be off by.
const SLACK: f64 = 0.01;

/// Room that is left: raw tokens, or characters.
pub(super) struct Purse {
    left: f64,
    /// None: every character costs the same.
    weights: Option<Weights>,
}

impl Purse {
    pub(super) fn of_tokens(tokens: u32, weights: Weights) -> Self {
        Self {
            left: f64::from(tokens) - SLACK,
            weights: Some(weights),
        }
    }

    pub(super) const fn of_chars(most: usize) -> Self {
        Self {
            left: most as f64 + SLACK,
            weights: None,
        }
    }

    pub(super) fn left(&self) -> f64 {
        self.left.max(0.0)
    }

    pub(super) fn pay(&mut self, cost: f64) {
        self.left -= cost;
    }

    pub(super) fn character(&self, c: char) -> f64 {
        match &self.weights {
            Some(weights) => weights.character(c.into()),
            None => 1.0,
        }
    }

    pub(super) fn cost(&self, text: &str) -> f64 {
        text.chars().map(|c| self.character(c)).sum()
    }

    /// What stands around a line: a dash, a blank and a line end.
    pub(super) fn frame(&self) -> f64 {
        3.0 * self.character('-')
    }

    /// As many of these lines, the newest first, as fit into `most` and into what is left, in
    /// their order, between fences.
    pub(super) fn section(
        &mut self,
        of: &str,
        newest: impl IntoIterator<Item = String>,
        most: f64,
    ) -> String {
        let mut left = most.min(self.left()) - self.fences(of);
        let mut lines = Vec::new();
        for line in newest {
            let cost = self.cost(&line) + self.frame();
            if cost > left {
                break;
            }
            left -= cost;
            lines.push(line);
        }
        lines.reverse();
        self.write(of, &lines)
    }

    /// These lines between fences, paid for; nothing without lines.
    pub(super) fn write(&mut self, of: &str, lines: &[String]) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let (open, close) = around(of);
        let mut text = open;
        for line in lines {
            text.push_str("- ");
            text.push_str(&fence::neutral(line));
            text.push('\n');
        }
        text.push_str(&close);
        self.pay(self.cost(&text));
        text
    }

    pub(super) fn fences(&self, of: &str) -> f64 {
        let (open, close) = around(of);
        self.cost(&open) + self.cost(&close)
    }
}

fn around(of: &str) -> (String, String) {
    let tag = fence::FACTS;
    (format!("<{tag} of=\"{of}\">\n"), format!("</{tag}>\n"))
}
