//! The candidates that may still be asked for one request, in their order.
//!
//! Where every circuit is open, the first candidate is asked all the same: the proxy refuses nothing that might work.

use std::time::Instant;

use crate::{config::Auth, provider::Target};

/// Candidates that were not asked yet.
pub(super) struct Candidates {
    rest: Vec<Target>,
    /// The base URL that the client's credentials are for; `None`: no provider gets them yet.
    lent: Option<Option<String>>,
}

impl Candidates {
    /// SECURITY: the client's credentials are for one base URL: candidates elsewhere that would get them are removed.
    pub(super) fn new(mut rest: Vec<Target>) -> Self {
        let home = rest.first().map(base_url);
        rest.retain(|target| !needs_client_credentials(target) || Some(base_url(target)) == home);
        let mut targets = rest.iter();
        let lent = targets
            .find(|target| needs_client_credentials(target))
            .map(base_url);
        Self { rest, lent }
    }

    /// Takes the first whose breaker admits a request; where none does, the first.
    pub(super) fn next(&mut self) -> Option<Target> {
        let at = self.rest.iter().position(breaker_admits).unwrap_or(0);
        (!self.rest.is_empty()).then(|| self.rest.remove(at))
    }

    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.rest.iter()
    }

    /// Whether the breaker of any of them admits a request.
    pub(super) fn any_admits(&self) -> bool {
        self.rest.iter().any(breaker_admits)
    }

    /// Removes those whose window is not larger than `tokens`.
    pub(super) fn keep_larger(&mut self, tokens: u32) {
        self.rest.retain(|target| target.window.tokens > tokens);
    }

    pub(super) fn put_first(&mut self, target: Target) {
        self.rest.insert(0, target);
    }

    /// Whether another target may be asked: not where it would get credentials that are for another provider.
    pub(super) fn may_lend_to(&mut self, target: &Target) -> bool {
        !needs_client_credentials(target)
            || *self.lent.get_or_insert_with(|| base_url(target)) == base_url(target)
    }
}

/// Whether the provider gets the client's credentials.
fn needs_client_credentials(target: &Target) -> bool {
    matches!(target.provider.config.auth, Auth::Client)
}

fn base_url(target: &Target) -> Option<String> {
    target.provider.config.base_url.clone()
}

fn breaker_admits(target: &Target) -> bool {
    target.provider.breaker.try_admit(Instant::now()).is_some()
}
