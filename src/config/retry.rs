//! When a request is sent again, and where windows of models are read from.

use std::time::Duration;

use http::Uri;

use super::{
    section::{Section, settings},
    setting::Visibility,
};

/// A year: what is older is not worth keeping.
const MAX_AGE_S: u64 = 31_536_000;

settings! {
    /// Who sends a request again that failed, and how often.
    #[derive(Copy, Eq)]
    pub struct RetryConfig read from s {
        /// To the same deployment, after a failure that is not the client's; 0: never.
        pub max_retries: u32 = s.read_number("max_retries", 0, 0..=20,
            "it is how often a request is sent again to the same place");
        /// Calls to providers for one request, fallbacks included.
        pub max_attempts: u32 = s.read_number("max_attempts", 6, 1..=100,
            "it is how often a request may be sent in all");
        /// After this no further attempt is begun.
        pub max_time: Duration = s.read_millis("max_time_ms", 60_000, 0);
        /// Before the first retry; doubled for each further one, with jitter.
        pub base_delay: Duration = s.read_millis("base_delay_ms", 500, 1);
        /// No single wait is longer; a `Retry-After` beyond it ends the retries.
        pub max_delay: Duration = s.read_millis("max_delay_ms", 8_000, 1);
    }
}

settings! {
    /// Where windows of models are read from, beside the catalogue in the binary.
    pub struct CatalogueConfig read from s {
        /// A list in the form of models.dev; unset: none is fetched.
        pub url: Option<String> = read_url(s);
        /// How old the copy on disk may be before it is fetched again.
        pub max_age: Duration = Duration::from_secs(s.read_number("max_age_s", 604_800, 60..=MAX_AGE_S,
            "it is how old the fetched list may be, in seconds"));
        /// How long what an error taught of a window is believed.
        pub learnt_max_age: Duration = Duration::from_secs(s.read_number("learnt_max_age_s", 86_400, 60..=MAX_AGE_S,
            "it is how long a window that an error named is believed, in seconds"));
    }
}

fn read_url(s: &mut Section) -> Option<String> {
    let url: String = s.read_option("url", Visibility::Address)?;
    let sound = url.parse::<Uri>().is_ok_and(|uri| {
        uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
    });
    if !sound {
        let message = "must be an absolute URL, such as https://models.dev/api.json";
        s.refuse_value("url", None, message);
    }
    Some(url)
}
