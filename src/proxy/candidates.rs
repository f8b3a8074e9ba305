//! The providers that may still be asked for one request, in their order.
//!
//! Where no breaker lets a request through, the first candidate is asked all the same: what might work is not
//! refused.

use std::time::Instant;

use crate::{config::Auth, provider::Target};

/// Candidates that were not asked yet.
pub(super) struct Candidates {
    rest: Vec<Target>,
    /// The base URL that the client's own credentials are for; `None`: nobody gets them yet.
    lent: Option<Option<String>>,
}

impl Candidates {
    /// SECURITY: the client's own credentials are for one provider. Settings that would send them to
    /// another are warned of; this holds whatever they say.
    pub(super) fn new(mut rest: Vec<Target>) -> Self {
        let home = rest.first().map(base_url);
        rest.retain(|place| !needs_client_credentials(place) || Some(base_url(place)) == home);
        let lent = rest
            .iter()
            .find(|place| needs_client_credentials(place))
            .map(base_url);
        Self { rest, lent }
    }

    /// The first that its breaker lets through; where none does, the first: what might work is not
    /// refused.
    pub(super) fn next(&mut self) -> Option<Target> {
        let at = self.rest.iter().position(breaker_admits).unwrap_or(0);
        (!self.rest.is_empty()).then(|| self.rest.remove(at))
    }

    /// Whether the breaker of any of them lets a request through.
    pub(super) fn any_admits(&self) -> bool {
        self.rest.iter().any(breaker_admits)
    }

    /// Leaves out those that hold no more than so many tokens.
    pub(super) fn keep_larger(&mut self, tokens: u32) {
        self.rest.retain(|place| place.window.tokens > tokens);
    }

    pub(super) fn put_first(&mut self, place: Target) {
        self.rest.insert(0, place);
    }

    /// Whether a place that the settings name beside these may be asked: not where it would get
    /// credentials of the client that are for another.
    pub(super) fn may_lend_to(&mut self, place: &Target) -> bool {
        !needs_client_credentials(place)
            || *self.lent.get_or_insert_with(|| base_url(place)) == base_url(place)
    }
}

/// Whether it gets the client's own credentials.
fn needs_client_credentials(place: &Target) -> bool {
    matches!(place.provider.config.auth, Auth::Client)
}

fn base_url(place: &Target) -> Option<String> {
    place.provider.config.base_url.clone()
}

fn breaker_admits(place: &Target) -> bool {
    place.provider.breaker.try_admit(Instant::now()).is_some()
}
