//! Settings of traces: the collector, and what is recorded.

use http::{HeaderMap, HeaderName, HeaderValue};
use reqwest::Url;

use super::{
    loading::section::{Section, settings},
    outgoing::{Outgoing, ProxySetting, Route},
};

const MAX_NAME_BYTES: usize = 128;

settings! {
    pub struct TracesConfig read from s {
        /// Headers for the collector; all are marked as sensitive.
        pub headers: HeaderMap = read_headers(s);
        pub service_name: String = read_service_name(s);
        /// The URL of a collector for OTLP over HTTP, `/v1/traces` included; `None`: no traces.
        pub endpoint: Option<String> = read_endpoint(s);
        /// The share of recorded traces among those that begin here. A client's `traceparent` decides for its traces.
        pub sample: f64 = s.read_number("sample", 1.0, 0.0..=1.0,
            "it is the share of traces that are recorded");
    }
}

impl TracesConfig {
    /// The way to the collector; `None`: there is none. A path other than the usual one may be a key.
    pub fn find_route(&self, outgoing: &Outgoing) -> Option<Route> {
        let address = Url::parse(self.endpoint.as_deref()?).ok()?;
        let has_credentials =
            !self.headers.is_empty() || address.query().is_some() || address.path() != "/v1/traces";
        Some(outgoing.find_route(&address, has_credentials, &ProxySetting::Environment))
    }
}

fn read_headers(s: &mut Section) -> HeaderMap {
    let Some(written) = s.read_named_secret("headers_env") else {
        return HeaderMap::new();
    };
    let headers: Option<_> = written.reveal().split(',').map(parse_header).collect();
    headers.unwrap_or_else(|| {
        let message = "must name a variable of headers: name=value, with a comma between two (the value \
                       is not shown, it may hold a key)";
        s.refuse_value("headers_env", None, message);
        HeaderMap::new()
    })
}

fn parse_header(pair: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = pair.split_once('=')?;
    let name = HeaderName::try_from(name.trim()).ok()?;
    let mut value = HeaderValue::try_from(value.trim()).ok()?;
    value.set_sensitive(true);
    Some((name, value))
}

fn read_service_name(s: &mut Section) -> String {
    let name = s.read_plain("service_name", "plimsoll".to_owned());
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        let message = format!("must be a name of at most {MAX_NAME_BYTES} bytes");
        s.refuse_text("service_name", &name, message);
    }
    name
}

fn read_endpoint(s: &mut Section) -> Option<String> {
    let written = s.read_secret_address("endpoint");
    if written.is_empty() {
        return None;
    }
    let is_valid = Url::parse(&written).is_ok_and(|url| {
        let has_user = !url.username().is_empty() || url.password().is_some();
        matches!(url.scheme(), "http" | "https") && url.has_host() && !has_user
    });
    if !is_valid {
        let message = "must be the address of an OTLP collector (the value is not shown, it may hold a \
                       key), such as http://127.0.0.1:4318/v1/traces; keys belong in traces.headers_env";
        s.refuse_value("endpoint", None, message);
    } else if !cfg!(feature = "otlp") {
        let message = "names a collector (the value is not shown, it may hold a key), but this build \
                       exports no traces: build it with the feature `otlp`";
        s.refuse_value("endpoint", None, message);
    }
    Some(written)
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;

    use super::parse_header;

    #[test]
    fn headers_of_the_collector_are_read_and_not_shown() {
        let written = "authorization=Basic YTpi==, x-team = a=b";
        let read: HeaderMap = written.split(',').filter_map(parse_header).collect();
        assert_eq!(read["authorization"], "Basic YTpi==");
        assert_eq!(read["x-team"], "a=b");
        assert!(!format!("{read:?}").contains("YTpi"));
    }
}
