//! What is counted of all requests, for Prometheus.

/// All counters. Labels are names from the configuration, never from a request.
#[derive(Debug, Default)]
pub struct Metrics {}

impl Metrics {
    /// A request went to a provider; `outcome` is `answer`, `busy`, `failed`, `denied` or `unsent`.
    pub fn attempt(&self, provider: &str, outcome: &'static str) {
        let _ = (self, provider, outcome);
    }

    /// A request was sent again to the same place after a failure.
    pub fn retry(&self, provider: &str) {
        let _ = (self, provider);
    }

    /// A request went on to another place; `provider` is the one that is left.
    pub fn fallback(&self, provider: &str) {
        let _ = (self, provider);
    }

    /// An overflow was healed, or could not be.
    pub fn overflow(&self, provider: &str, healed: bool) {
        let _ = (self, provider, healed);
    }

    /// A provider cut a prompt in silence.
    pub fn truncated(&self, provider: &str) {
        let _ = (self, provider);
    }
}
