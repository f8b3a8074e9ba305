//! Settings of retries, and of the catalogue of windows.

use std::time::Duration;

use http::Uri;
use reqwest::Url;

use super::{
    loading::section::{Section, settings},
    outgoing::{Outgoing, ProxySetting, Route},
};

/// A year.
const MAX_AGE_S: u64 = 31_536_000;

settings! {
    #[derive(Copy, Eq)]
    pub struct RetryConfig read from s {
        /// Retries at the same candidate; 0: none.
        pub max_retries: u32 = s.read_number("max_retries", 0, 0..=20,
            "it is how often a request is sent again to the same candidate");
        /// Calls to providers for one request, with retries and fallbacks.
        pub max_attempts: u32 = s.read_number("max_attempts", 6, 1..=100,
            "it is how often a request may be sent in all");
        /// No attempt begins after this time.
        pub max_time: Duration = s.read_millis("max_time_ms", 60_000, 0);
        /// Before the first retry; doubled for each later one, with jitter.
        pub base_delay: Duration = s.read_millis("base_delay_ms", 500, 1);
        /// The longest single wait; a longer `Retry-After` ends the retries.
        pub max_delay: Duration = s.read_millis("max_delay_ms", 8_000, 1);
    }
}

settings! {
    /// Sources of windows besides the built-in catalogue.
    pub struct CatalogueConfig read from s {
        /// A list in the format of models.dev; `None`: nothing is fetched.
        pub url: Option<String> = read_url(s);
        /// The age of the list at which it is fetched again.
        pub max_age: Duration = Duration::from_secs(s.read_number("max_age_s", 86_400, 60..=MAX_AGE_S,
            "it is how old the fetched list may be, in seconds"));
        /// How long a window from a provider's error message is used.
        pub learnt_max_age: Duration = Duration::from_secs(s.read_number("learnt_max_age_s", 86_400, 60..=MAX_AGE_S,
            "it is how long a window that an error named is believed, in seconds"));
    }
}

impl CatalogueConfig {
    /// The way to the list; `None`: nothing is fetched.
    pub fn find_route(&self, outgoing: &Outgoing) -> Option<Route> {
        let address = Url::parse(self.url.as_deref()?).ok()?;
        let has_credentials = address.query().is_some() || !address.username().is_empty();
        Some(outgoing.find_route(&address, has_credentials, &ProxySetting::Environment))
    }
}

fn read_url(s: &mut Section) -> Option<String> {
    let url = s.read_address("url", "https://models.dev/api.json");
    if url.is_empty() {
        return None;
    }
    let is_valid = url.parse::<Uri>().is_ok_and(|uri| {
        uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
    });
    if !is_valid {
        let message = "must be an absolute URL, such as https://models.dev/api.json, or empty";
        s.refuse_value("url", None, message);
    }
    Some(url)
}
