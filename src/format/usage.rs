//! The tokens that a provider reports.

/// The tokens of one answer, by its provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: Option<u32>,
    /// The part of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u32>,
}

impl Usage {
    /// The valid one of two reports of one answer. Reports are cumulative, so the later one counts,
    /// unless its prompt is 0: some providers report zeros before they know the count.
    pub fn latest_report(earlier: Option<Self>, later: Self) -> Self {
        match earlier {
            Some(earlier) if later.prompt_tokens == 0 => earlier,
            _ => later,
        }
    }
}
