//! The tokens a provider reported.

/// What one answer cost, as its provider counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: Option<u32>,
    /// The part of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u32>,
}

impl Usage {
    /// The later of two reports of one answer: reports are cumulative, but some providers fill
    /// in zeros where they have nothing to say.
    pub fn latest_report(earlier: Option<Self>, later: Self) -> Self {
        match earlier {
            Some(earlier) if later.prompt_tokens == 0 => earlier,
            _ => later,
        }
    }
}
