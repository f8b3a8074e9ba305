//! Writes sections of a ledger within its room.

use crate::guard::{request::estimate::Weights, text::fence};

/// The largest rounding error of sums of fractions.
const SLACK: f64 = 0.01;
/// Characters of Latin text per token, as most texts have them.
const USUAL_CHARS: f64 = 4.0;

/// The remaining room of a ledger: raw tokens, or characters.
pub(super) struct LedgerBudget {
    left: f64,
    /// `None` for room in characters.
    weights: Option<Weights>,
}

impl LedgerBudget {
    pub(super) fn from_tokens(tokens: u32, weights: Weights) -> Self {
        Self {
            left: f64::from(tokens) - SLACK,
            weights: Some(weights),
        }
    }

    pub(super) const fn from_chars(chars: usize) -> Self {
        Self {
            left: chars as f64 + SLACK,
            weights: None,
        }
    }

    pub(super) fn remaining_room(&self) -> f64 {
        self.left.max(0.0)
    }

    pub(super) fn spend(&mut self, cost: f64) {
        self.left -= cost;
    }

    /// The usual cost of a character of Latin text.
    pub(super) const fn usual_cost(&self) -> f64 {
        match self.weights {
            Some(_) => 1.0 / USUAL_CHARS,
            None => 1.0,
        }
    }

    /// The cost of a text. Texts that end with a line end cost together what they cost one by one.
    pub(super) fn text_cost(&self, text: &str) -> f64 {
        match &self.weights {
            Some(weights) => weights.plain_weight(text),
            None => text.chars().count() as f64,
        }
    }

    /// The usual cost of a dash, a blank and a line end around a line.
    pub(super) fn line_frame_cost(&self) -> f64 {
        self.line_cost("a") - self.text_cost("a")
    }

    /// The cost of a line with its dash and its end.
    pub(super) fn line_cost(&self, line: &str) -> f64 {
        self.text_cost(&format!("- {line}\n"))
    }

    /// A section with as many of the newest lines as fit into `room` and into what is left, oldest first.
    pub(super) fn write_section(
        &mut self,
        title: &str,
        newest_first: impl IntoIterator<Item = String>,
        room: f64,
    ) -> String {
        let mut left = room.min(self.remaining_room()) - self.fence_cost(title);
        let mut lines = Vec::new();
        for line in newest_first {
            left -= self.line_cost(&line);
            if left < 0.0 {
                break;
            }
            lines.push(line);
        }
        lines.reverse();
        self.write_lines(title, &lines)
    }

    /// A section with these lines between fences; empty without lines. Its cost is spent even beyond the room.
    pub(super) fn write_lines(&mut self, title: &str, lines: &[String]) -> String {
        if lines.is_empty() {
            return String::new();
        }
        let [mut text, close] = fence_tags(title);
        for line in lines {
            text.push_str(&format!("- {}\n", fence::neutralize_tags(line)));
        }
        text.push_str(&close);
        self.spend(self.text_cost(&text));
        text
    }

    pub(super) fn fence_cost(&self, title: &str) -> f64 {
        let costs = fence_tags(title).map(|tag| self.text_cost(&tag));
        costs.iter().sum()
    }
}

fn fence_tags(title: &str) -> [String; 2] {
    let tag = fence::FACTS;
    [format!("<{tag} of=\"{title}\">\n"), format!("</{tag}>\n")]
}
