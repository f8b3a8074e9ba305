//! What refusals of a request teach the plans that take the place of the refused one.

/// What refusals of this very request taught; the default before the first refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RefusalLessons {
    /// It was refused as too long.
    pub was_too_long: bool,
    /// The provider counted it: the count is the calibration's anchor.
    pub was_counted: bool,
    /// Raw tokens that each byte of reasoning has beyond its estimate.
    pub reasoning_density: f64,
    /// The highest answer cap, whatever the request has room for: a higher one was refused. It stays above a thinking budget.
    pub most_cap: Option<u32>,
    /// Only what must stay is sent, and nothing of it is shortened to fit: nobody knows how much fits.
    pub sends_only_required: bool,
    /// No image and no other medium is cut that was not cut before.
    pub keeps_media: bool,
}
