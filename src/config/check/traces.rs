//! Where spans go.

use reqwest::Url;

use super::Checker;
use crate::config::{TracesConfig, file};

const MAX_NAME: usize = 128;

impl Checker<'_> {
    pub(super) fn traces(&mut self, written: &file::Traces) -> TracesConfig {
        let headers = self.named_secret(["traces", "headers_env"], written.headers_env.as_deref());
        if let Some(headers) = &headers
            && !headers.reveal().split(',').all(is_header)
        {
            self.refuse(
                &["traces", "headers_env"],
                None,
                "must name a variable of headers: name=value, with a comma between two (the value is \
                 not shown, it may hold a key)",
            );
        }
        let name = &written.service_name;
        if name.is_empty() || name.len() > MAX_NAME {
            let shown = Some(format!("{name:?}"));
            let message = format!("must be a name of at most {MAX_NAME} bytes");
            self.refuse(&["traces", "service_name"], shown, message);
        }
        TracesConfig {
            endpoint: self.endpoint(&written.endpoint),
            headers,
            service_name: name.clone(),
            sample: self.within(
                &["traces", "sample"],
                written.sample,
                0.0..=1.0,
                "it is the share of traces that are recorded",
            ),
        }
    }

    fn endpoint(&mut self, written: &str) -> Option<String> {
        if written.is_empty() {
            return None;
        }
        let url = Url::parse(written).ok();
        let fits = url.is_some_and(|url| {
            let plain = url.username().is_empty() && url.password().is_none();
            matches!(url.scheme(), "http" | "https") && url.has_host() && plain
        });
        if !fits {
            self.refuse(
                &["traces", "endpoint"],
                None,
                "must be the address of an OTLP collector (the value is not shown, it may hold a key), \
                 such as http://127.0.0.1:4318/v1/traces; keys belong in traces.headers_env",
            );
        }
        Some(written.to_owned())
    }
}

fn is_header(pair: &str) -> bool {
    let Some((name, value)) = pair.split_once('=') else {
        return false;
    };
    http::HeaderName::try_from(name.trim()).is_ok()
        && http::HeaderValue::try_from(value.trim()).is_ok()
}
