//! What the session came to: sums over all its answers.

use super::agent::Reading;

/// Counted as the answers come.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    pub(super) requests: u64,
    pub(super) refused: u64,
    /// New cuts: the number of messages left out grew.
    pub(super) folds: u64,
    /// Tool results truncated for the first time.
    pub(super) truncations: u64,
    pub(super) prompt_tokens: u64,
    pub(super) cached_tokens: u64,
    /// The fullest the window has been, as a ratio.
    pub(super) fullest: f64,
    dropped: u64,
    truncated: u64,
}

impl Tally {
    pub(super) fn add(&mut self, reading: &Reading) {
        self.requests += 1;
        self.refused += u64::from(reading.refused.is_some());
        let (dropped, truncated) = (
            count(&reading.actions, "dropped"),
            count(&reading.actions, "truncated"),
        );
        self.folds += u64::from(dropped > self.dropped);
        self.truncations += truncated.saturating_sub(self.truncated);
        (self.dropped, self.truncated) = (dropped, truncated);
        self.prompt_tokens += u64::from(reading.prompt_tokens.unwrap_or(0));
        self.cached_tokens += u64::from(reading.cached_tokens);
        self.fullest = self.fullest.max(reading.hard_util.unwrap_or(0.0));
    }

    /// The share of all prompt tokens that the provider read from its cache, in percent.
    pub(super) fn cached_percent(&self) -> f64 {
        100.0 * self.cached_tokens as f64 / self.prompt_tokens.max(1) as f64
    }
}

/// The number of one action in `x-plimsoll-actions`; 0 where it was not taken.
fn count(actions: &str, name: &str) -> u64 {
    let mut pairs = actions
        .split(',')
        .filter_map(|one| one.trim().split_once('='));
    let found = pairs.find(|(key, _)| *key == name);
    found
        .and_then(|(_, number)| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_counted_once() {
        let mut tally = Tally::default();
        for actions in [
            "none",
            "truncated=1",
            "truncated=1",
            "truncated=2, dropped=14",
            "truncated=1, dropped=14",
            "dropped=30, refitted=1",
        ] {
            tally.add(&Reading {
                actions: actions.to_owned(),
                prompt_tokens: Some(100),
                cached_tokens: 50,
                hard_util: Some(0.5),
                ..Reading::default()
            });
        }
        assert_eq!((tally.requests, tally.folds, tally.truncations), (6, 2, 2));
        assert!((tally.cached_percent() - 50.0).abs() < 1e-9);
    }
}
