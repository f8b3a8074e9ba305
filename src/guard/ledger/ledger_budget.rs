//! Sections of a ledger, as far as there is room for them.

use crate::guard::{estimate::Weights, fence};

/// What sums of fractions may be off by.
const SLACK: f64 = 0.01;

/// Room that is left: raw tokens, or characters.
pub(super) struct LedgerBudget {
    left: f64,
    /// None: every character costs the same.
    weights: Option<Weights>,
}

impl LedgerBudget {
    pub(super) fn from_tokens(tokens: u32, weights: Weights) -> Self {
        Self {
            left: f64::from(tokens) - SLACK,
            weights: Some(weights),
        }
    }

    pub(super) const fn from_chars(most: usize) -> Self {
        Self {
            left: most as f64 + SLACK,
            weights: None,
        }
    }

    pub(super) fn remaining_room(&self) -> f64 {
        self.left.max(0.0)
    }

    pub(super) fn pay(&mut self, cost: f64) {
        self.left -= cost;
    }

    pub(super) fn character_cost(&self, c: char) -> f64 {
        match &self.weights {
            Some(weights) => weights.char_weight(c.into()),
            None => 1.0,
        }
    }

    pub(super) fn text_cost(&self, text: &str) -> f64 {
        text.chars().map(|c| self.character_cost(c)).sum()
    }

    /// What stands around a line: a dash, a blank and a line end.
    pub(super) fn line_frame_cost(&self) -> f64 {
        3.0 * self.character_cost('-')
    }

    /// As many of these lines, the newest first, as fit into `most` and into what is left, in
    /// their order, between fences.
    pub(super) fn write_section(
        &mut self,
        of: &str,
        newest: impl IntoIterator<Item = String>,
        most: f64,
    ) -> String {
        let mut left = most.min(self.remaining_room()) - self.fence_cost(of);
        let mut lines = Vec::new();
        for line in newest {
            let cost = self.text_cost(&line) + self.line_frame_cost();
            if cost > left {
                break;
            }
            left -= cost;
            lines.push(line);
        }
        lines.reverse();
        self.write_lines(of, &lines)
    }

    /// These lines between fences, paid for; nothing without lines.
    pub(super) fn write_lines(&mut self, of: &str, lines: &[String]) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let (open, close) = fence_tags(of);
        let mut text = open;
        for line in lines {
            text.push_str("- ");
            text.push_str(&fence::neutralize_tags(line));
            text.push('\n');
        }
        text.push_str(&close);
        self.pay(self.text_cost(&text));
        text
    }

    pub(super) fn fence_cost(&self, of: &str) -> f64 {
        let (open, close) = fence_tags(of);
        self.text_cost(&open) + self.text_cost(&close)
    }
}

fn fence_tags(of: &str) -> (String, String) {
    let tag = fence::FACTS;
    (format!("<{tag} of=\"{of}\">\n"), format!("</{tag}>\n"))
}
