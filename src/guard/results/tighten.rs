//! Results cut harder, where the newest step is too large as the first line leaves it.

use std::ops::Range;

use super::ToolResults;
use crate::guard::{
    result_limits::{LEAST_CHARS, RememberedLimit},
    truncate::TruncationMarker,
};

/// Rounds in which a step's results are brought down to what is left for them.
const TIGHTEN_ROUNDS: usize = 4;

impl ToolResults<'_> {
    /// Makes one step smaller by `excess` raw tokens: its results, the largest first, and where that is
    /// not enough, what its calls say. Returns what it took, which is less where nothing more can go.
    pub(in crate::guard) fn tighten_step(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let call = messages.start;
        let taken = self.tighten_results(messages, excess);
        match excess.saturating_sub(taken) {
            0 => taken,
            left => taken.saturating_add(self.tighten_calls(call, left)),
        }
    }

    fn tighten_results(&mut self, messages: Range<usize>, excess: u32) -> u32 {
        let answers = self.list_results(messages);
        let weight = |this: &Self| {
            let tokens = answers.iter().map(|&at| this.tokens[at]);
            tokens.fold(0, u32::saturating_add)
        };
        let before = weight(self);
        let target = before.saturating_sub(excess);
        // Tokens are not spread evenly over a text: what is left may be denser than the whole.
        let mut aim = target;
        for _ in 0..TIGHTEN_ROUNDS {
            let now = weight(self);
            if now <= target {
                break;
            }
            let level = find_common_level(answers.iter().map(|&at| self.tokens[at]).collect(), aim);
            for &at in &answers {
                self.lower_result(at, level);
            }
            let over = weight(self).saturating_sub(target);
            aim = aim.saturating_sub(over.saturating_add(1));
        }
        before.saturating_sub(weight(self))
    }

    /// Brings one result down to so many raw tokens, in the proportion of its characters.
    fn lower_result(&mut self, at: usize, level: u32) {
        let now = self.tokens[at];
        if now <= level {
            return;
        }
        let chars = self
            .cuts
            .get(&at)
            .map_or(self.view.item(at).sizes.total_chars(), |cut| cut.after);
        let chars = chars as u64 * u64::from(level) / u64::from(now.max(1));
        let marker = self
            .tight
            .get(&at)
            .map_or(TruncationMarker::Plain, |it| it.marker());
        self.apply_limit(
            at,
            RememberedLimit::new((chars as usize).max(LEAST_CHARS), marker),
        );
    }
}

/// The level to which the largest must come down so that all together weigh `target`.
pub(in crate::guard) fn find_common_level(mut weights: Vec<u32>, target: u32) -> u32 {
    weights.sort_unstable();
    let mut left = target;
    for (place, &weight) in weights.iter().enumerate() {
        let share = left / (weights.len() - place) as u32;
        if weight > share {
            return share;
        }
        left -= weight;
    }
    weights.last().copied().unwrap_or(0)
}
