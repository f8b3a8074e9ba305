//! Where a request names its model, in whatever its body is: JSON, a form in parts, or the query.
//!
//! A body is forwarded as it came but for that one span. Formats leave room for two readings (a key
//! that stands twice, a part with an odd name): then one is found, and it is said that it is not
//! the only one that could be.

mod json;
mod media;
mod multipart;
mod query;

pub use json::in_json;
pub use media::{Media, media};
pub use multipart::in_multipart;
pub use query::in_query;

use bytes::Bytes;
use serde_json::Value;

use crate::json::scan::Span;

/// What a body or a query says of its model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// `None` where none is named.
    pub model: Option<Named>,
    /// Whether every reader finds the same: exactly this one, or none.
    pub surely: bool,
}

/// A model's name, and the span of the text that spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Never empty.
    pub model: String,
    pub span: Span,
    spelling: Spelling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// A JSON string with its quotes.
    Json,
    /// A value of a query.
    Query,
    Plain,
}

/// Whether a member at the top of JSON names a model to some reader. Some parsers pass over case, and
/// gateways have lists of further models to try (OpenRouter's `models`, LiteLLM's `fallbacks`).
pub fn may_name_model(key: &str) -> bool {
    ["model", "models", "fallbacks"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name))
}

impl Named {
    /// Another name as it has to be written in this span.
    pub fn spell(&self, model: &str) -> Bytes {
        match self.spelling {
            Spelling::Json => Value::from(model).to_string().into(),
            Spelling::Query => form_urlencoded::byte_serialize(model.as_bytes())
                .collect::<String>()
                .into(),
            Spelling::Plain => model.to_owned().into(),
        }
    }
}
