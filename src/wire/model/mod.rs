//! Where a request names its model, in whatever its body is: JSON, a form in parts, or the query.
//!
//! A body is forwarded as it came but for that one span. Formats leave room for two readings (a key
//! that stands twice, a part with an odd name): then one is found, and it is said that it is not
//! the only one that could be.

mod content_type;
mod json;
mod multipart;
mod query;

pub use content_type::{ContentType, parse_content_type};
pub use json::find_model_in_json;
pub use multipart::find_model_in_multipart;
pub use query::find_model_in_query;

use bytes::Bytes;
use serde_json::Value;

use crate::json::scan::Span;

/// What a body or a query says of its model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLookup {
    /// `None` where none is named.
    pub model: Option<NamedModel>,
    /// Whether every reader finds the same: exactly this one, or none.
    pub is_certain: bool,
}

/// A model's name, and the span of the text that spells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedModel {
    /// Never empty.
    pub model: String,
    pub span: Span,
    spelling: ModelSpelling,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelSpelling {
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

impl NamedModel {
    /// Another name as it has to be written in this span.
    pub fn spell_model(&self, model: &str) -> Bytes {
        match self.spelling {
            ModelSpelling::Json => Value::from(model).to_string().into(),
            ModelSpelling::Query => form_urlencoded::byte_serialize(model.as_bytes())
                .collect::<String>()
                .into(),
            ModelSpelling::Plain => model.to_owned().into(),
        }
    }
}
