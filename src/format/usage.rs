//! The tokens that a provider reports.

/// The tokens of one answer, by its provider's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u32,
    pub completion_tokens: Option<u32>,
    /// The part of the prompt that came from the provider's cache.
    pub cached_tokens: Option<u32>,
    /// The part of the prompt that the provider wrote to its cache.
    pub cache_written_tokens: Option<u32>,
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

/// A count of tokens: a whole number of 32 bits, in any spelling (`12`, `12.0`).
pub(super) fn parse_count(spelt: &[u8]) -> Option<u32> {
    let spelt = std::str::from_utf8(spelt).ok()?;
    if let Ok(whole) = spelt.parse::<u64>() {
        return u32::try_from(whole).ok();
    }
    let number = spelt.parse::<f64>().ok()?;
    let is_count = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
    is_count.then_some(number as u32)
}

/// Whether a number is written in digits only, so that an edit can replace it by another one.
pub(super) fn is_plain(spelt: &[u8]) -> bool {
    spelt.iter().all(u8::is_ascii_digit) && (spelt.len() == 1 || !spelt.starts_with(b"0"))
}
