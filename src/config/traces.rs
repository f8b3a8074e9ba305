//! Where spans go.

use reqwest::Url;

use super::{
    secret::Secret,
    section::{Section, settings},
};

const MAX_NAME: usize = 128;

settings! {
    /// Where spans go.
    pub struct TracesConfig read from s {
        /// Headers for the collector, `name=value` and a comma between two.
        pub headers: Option<Secret> = read_headers(s);
        pub service_name: String = read_service_name(s);
        /// Of a collector that speaks OTLP over HTTP, `/v1/traces` included; `None`: no traces.
        pub endpoint: Option<String> = read_endpoint(s);
        /// The share of traces that begin here which are recorded. What came with a decision follows that.
        pub sample: f64 = s.number("sample", 1.0, 0.0..=1.0,
            "it is the share of traces that are recorded");
    }
}

fn read_headers(s: &mut Section) -> Option<Secret> {
    let headers = s.named_secret("headers_env")?;
    if !headers.reveal().split(',').all(is_header) {
        let message = "must name a variable of headers: name=value, with a comma between two (the value \
                       is not shown, it may hold a key)";
        s.refuse("headers_env", None, message);
    }
    Some(headers)
}

fn read_service_name(s: &mut Section) -> String {
    let name = s.plain("service_name", "plimsoll".to_owned());
    if name.is_empty() || name.len() > MAX_NAME {
        let message = format!("must be a name of at most {MAX_NAME} bytes");
        s.refuse_text("service_name", &name, message);
    }
    name
}

fn read_endpoint(s: &mut Section) -> Option<String> {
    let written = s.address("endpoint", "");
    if written.is_empty() {
        return None;
    }
    let url = Url::parse(&written).ok();
    let fits = url.is_some_and(|url| {
        let plain = url.username().is_empty() && url.password().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && plain
    });
    if !fits {
        let message = "must be the address of an OTLP collector (the value is not shown, it may hold a \
                       key), such as http://127.0.0.1:4318/v1/traces; keys belong in traces.headers_env";
        s.refuse("endpoint", None, message);
    }
    Some(written)
}

fn is_header(pair: &str) -> bool {
    let Some((name, value)) = pair.split_once('=') else {
        return false;
    };
    http::HeaderName::try_from(name.trim()).is_ok()
        && http::HeaderValue::try_from(value.trim()).is_ok()
}
