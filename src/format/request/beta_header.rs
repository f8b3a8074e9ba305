//! The header in which a request of Anthropic's Messages names the unreleased parts of the API that it uses.

use http::{HeaderMap, HeaderName, HeaderValue};

pub const BETA_HEADER: HeaderName = HeaderName::from_static("anthropic-beta");

/// A part of the API that a request must name in the header, since the API otherwise refuses what the proxy adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beta {
    /// `thinking.block_binding`.
    Binding,
    /// Tools that an entry among the messages brings, with their definitions.
    InlineTools,
    /// A summary of the provider's own, asked for or put back.
    Compaction,
}

impl Beta {
    pub(in crate::format) const fn value(self) -> &'static str {
        match self {
            Self::Binding => "thinking-binding-controls-2026-08-01",
            Self::InlineTools => "inline-tools-2026-09-15",
            Self::Compaction => "compact-2026-09-04",
        }
    }
}

/// Adds the value behind the values of the client, unless it is already there.
pub fn add_beta(headers: &mut HeaderMap, beta: Beta) {
    add_beta_value(headers, beta.value());
}

/// Adds a value that comes from a table, in the same way.
pub fn add_beta_value(headers: &mut HeaderMap, beta: &'static str) {
    let given = headers.get_all(BETA_HEADER).iter();
    let mut values: Vec<_> = given.filter_map(|value| value.to_str().ok()).collect();
    let mut items = values.iter().flat_map(|value| value.split(','));
    if items.any(|item| item.trim() == beta) {
        return;
    }
    values.push(beta);
    if let Ok(value) = HeaderValue::try_from(values.join(",")) {
        headers.insert(BETA_HEADER, value);
    }
}

#[cfg(test)]
mod tests {
    use crate::format::request::beta_header::*;

    #[test]
    fn the_value_stands_behind_the_clients() {
        let beta = |given: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(BETA_HEADER, HeaderValue::from_static(value));
            }
            add_beta(&mut headers, Beta::Binding);
            let values = headers.get_all(BETA_HEADER).iter();
            let values: Vec<_> = values
                .map(|value| value.to_str().unwrap().to_owned())
                .collect();
            values.join("|")
        };
        let value = Beta::Binding.value();
        assert_eq!(beta(&[]), value);
        assert_eq!(beta(&["a,b"]), format!("a,b,{value}"));
        assert_eq!(beta(&["a", "b"]), format!("a,b,{value}"));
        let own = "a, thinking-binding-controls-2026-08-01";
        assert_eq!(beta(&[own]), own);
    }
}
