//! What makes a gateway of it: aliases, deployments, retries, how a provider is spoken to, what a
//! client may reach.
//!
//! Values that may hold a key are refused without being shown.

use std::{collections::BTreeMap, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header::AUTHORIZATION};

use super::Checker;
use crate::{
    config::{CatalogueConfig, Deployment, RetryConfig, file},
    provider::headers::OURS,
};

/// A year: what is older is not worth keeping.
const MAX_AGE_S: u64 = 31_536_000;

impl Checker<'_> {
    pub(super) fn aliases(
        &mut self,
        written: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        for (name, stands_for) in written {
            let path = ["aliases", name];
            self.patterns(&path, std::slice::from_ref(name));
            self.patterns(&path, std::slice::from_ref(stands_for));
            if stands_for.ends_with('*') && !name.ends_with('*') {
                let message = "must be one model, since the alias has no * of its own";
                self.refuse(&path, Some(format!("{stands_for:?}")), message);
            }
        }
        written.clone()
    }

    pub(super) fn deployments(
        &mut self,
        model: &str,
        written: &[file::Deployment],
    ) -> Vec<Deployment> {
        let path = ["models", model, "deployments"];
        for deployment in written {
            if deployment.model.is_empty() || deployment.model.contains('*') {
                let shown = Some(format!("{:?}", deployment.model));
                self.refuse(
                    &path,
                    shown,
                    "must be the name of one model, provider/model",
                );
            }
            let why = "it is the weight of a deployment beside the others";
            self.within(&path, deployment.weight, 1..=1_000_000, why);
        }
        let made = |deployment: &file::Deployment| Deployment {
            model: deployment.model.clone(),
            weight: deployment.weight,
        };
        written.iter().map(made).collect()
    }

    pub(super) fn retry(&mut self, written: &file::Retry) -> RetryConfig {
        RetryConfig {
            max_retries: self.within(
                &["retry", "max_retries"],
                written.max_retries,
                0..=20,
                "it is how often a request is sent again to the same place",
            ),
            max_attempts: self.within(
                &["retry", "max_attempts"],
                written.max_attempts,
                1..=100,
                "it is how often a request may be sent in all",
            ),
            max_time: self.wait(&["retry", "max_time_ms"], written.max_time_ms, 0),
            base_delay: self.wait(&["retry", "base_delay_ms"], written.base_delay_ms, 1),
            max_delay: self.wait(&["retry", "max_delay_ms"], written.max_delay_ms, 1),
        }
    }

    pub(super) fn catalogue(&mut self, written: &file::Catalogue) -> CatalogueConfig {
        let url = written.url.as_deref().filter(|url| {
            let sound = url.parse::<Uri>().is_ok_and(|uri| {
                uri.host().is_some() && matches!(uri.scheme_str(), Some("http" | "https"))
            });
            if !sound {
                let message = "must be an absolute URL, such as https://models.dev/api.json";
                self.refuse(&["catalogue", "url"], None, message);
            }
            sound
        });
        let mut age = |key: &str, seconds: u64, why: &str| {
            Duration::from_secs(self.within(&["catalogue", key], seconds, 60..=MAX_AGE_S, why))
        };
        CatalogueConfig {
            url: url.map(str::to_owned),
            max_age: age(
                "max_age_s",
                written.max_age_s,
                "it is how old the fetched list may be, in seconds",
            ),
            learnt_max_age: age(
                "learnt_max_age_s",
                written.learnt_max_age_s,
                "it is how long a window that an error named is believed, in seconds",
            ),
        }
    }

    pub(super) fn key_header(
        &mut self,
        provider: &str,
        written: &file::Provider,
    ) -> Option<HeaderName> {
        let path = ["providers", provider, "key_header"];
        let name = written.key_header.as_deref()?;
        let found = self.header_name(&path, name, Some(format!("{name:?}")))?;
        if written.api_key_env.is_none() {
            self.refuse(&path, None, "has no key to carry; name one in api_key_env");
        }
        (found != AUTHORIZATION).then_some(found)
    }

    pub(super) fn headers(
        &mut self,
        provider: &str,
        written: &BTreeMap<String, String>,
    ) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in written {
            let path = ["providers", provider, "headers", name];
            let Some(header) = self.header_name(&path, name, None) else {
                continue;
            };
            match HeaderValue::from_str(value) {
                // SECURITY: a key stands in the environment, never in the file.
                _ if header == AUTHORIZATION => {
                    self.refuse(
                        &path,
                        None,
                        "carries a key; name its variable in api_key_env",
                    );
                }
                Ok(mut value) => {
                    // It may be a key all the same, under a name that nobody knows.
                    value.set_sensitive(true);
                    headers.insert(header, value);
                }
                Err(_) => self.refuse(&path, None, "holds characters that no header can have"),
            }
        }
        headers
    }

    fn header_name(
        &mut self,
        path: &[&str],
        name: &str,
        shown: Option<String>,
    ) -> Option<HeaderName> {
        let own = |name: &HeaderName| {
            name.as_str().starts_with(OURS)
                || [
                    "host",
                    "connection",
                    "content-length",
                    "transfer-encoding",
                    "upgrade",
                    "te",
                ]
                .contains(&name.as_str())
        };
        match HeaderName::from_bytes(name.as_bytes()) {
            Ok(header) if !own(&header) => Some(header),
            _ => {
                let message = "is not the name of a header that can be set; write one that the \
                               provider knows, such as api-key";
                self.refuse(path, shown, message);
                None
            }
        }
    }

    pub(super) fn query(&mut self, provider: &str, written: Option<&str>) -> Option<String> {
        let query = written?;
        let sound = format!("http://localhost/?{query}").parse::<Uri>().is_ok();
        if !sound || query.is_empty() || query.contains(['#', '?']) {
            let message = "must be as it stands behind the ? of a URL, such as \
                           api-version=2024-10-21 (not shown, it may hold a key)";
            self.refuse(&["providers", provider, "query"], None, message);
        }
        Some(query.to_owned())
    }

    pub(super) fn paths(&mut self, client: &str, written: &[String]) -> Vec<String> {
        for pattern in written {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            if pattern.is_empty() || name.contains('*') || name.starts_with('/') {
                self.refuse(
                    &["clients", client, "paths"],
                    Some(format!("{pattern:?}")),
                    "must be what follows /v1/, or its beginning with one * at the end",
                );
            }
        }
        written.to_vec()
    }

    pub(super) fn in_flight(&mut self, client: &str, written: Option<u32>) -> Option<u32> {
        let path = ["clients", client, "max_in_flight"];
        let why = "it is the number of requests that may run at one time";
        written.map(|most| self.within(&path, most, 1..=1_000_000, why))
    }
}
