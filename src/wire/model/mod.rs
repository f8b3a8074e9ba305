//! Finds the span of a request's model name: in a JSON body, a multipart form or the query.
//!
//! Only that span of a body is replaced. Some bodies have two readings (a repeated key, a part with an odd name).
//! Then one of them is found, and the lookup is not certain.

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

/// The model that a body or a query names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelLookup {
    pub model: Option<NamedModel>,
    /// Every reader finds the same: exactly this model, or none.
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
    Query,
    Plain,
}

/// Whether some reader takes a member at the top of JSON for a model. Some parsers ignore case, and gateways accept
/// lists of further models (OpenRouter's `models`, LiteLLM's `fallbacks`).
pub fn may_name_model(key: &str) -> bool {
    ["model", "models", "fallbacks"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name))
}

impl NamedModel {
    /// Another model's name in the spelling of this span.
    pub fn spell_model(&self, model: &str) -> Bytes {
        match self.spelling {
            ModelSpelling::Json => Value::from(model).to_string().into(),
            ModelSpelling::Query => {
                String::from_iter(form_urlencoded::byte_serialize(model.as_bytes())).into()
            }
            ModelSpelling::Plain => model.to_owned().into(),
        }
    }
}
