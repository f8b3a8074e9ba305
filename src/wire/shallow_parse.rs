//! Reads the model and the stream flag of a body that cannot be indexed.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::{
    json::{
        scan::{JsonScanner, Span},
        text,
    },
    wire::model::may_name_model,
};

/// Fields at the top of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShallowFields {
    /// Empty if the body names no model.
    pub model: String,
    /// Where the body names it, with its quotes.
    pub model_span: Option<Span>,
    pub streams: bool,
}

/// Reads JSON of any nesting depth. The last of two equal keys counts, as in most parsers.
pub fn shallow_parse(body: &[u8]) -> ShallowFields {
    let json = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let Ok(members) = serde_json::from_slice::<HashMap<String, &RawValue>>(json) else {
        return ShallowFields::default();
    };
    let value = |name: &str| members.get(name).map_or("", |value| value.get());
    let (model, streams) = (value("model"), value("stream") == "true");
    let Ok(name) = serde_json::from_str(model) else {
        return ShallowFields {
            streams,
            ..ShallowFields::default()
        };
    };
    let start = model.as_ptr().addr() - body.as_ptr().addr();
    ShallowFields {
        model: name,
        model_span: Some(Span::new(start, start + model.len())),
        streams,
    }
}

/// The number of members at a body's top that some parser takes for the model: JSON leaves open which of two equal
/// keys counts, and some parsers ignore case. The number is `usize::MAX` where the scanner fails.
pub fn count_model_names(body: &[u8]) -> usize {
    let start = 3 * usize::from(body.starts_with(b"\xEF\xBB\xBF"));
    let mut count = 0;
    let walked = JsonScanner::new(body, start).walk_object(|scan, key| {
        let key = text::decode_text(&body[key.span.range()]).unwrap_or_default();
        count += usize::from(may_name_model(&key));
        scan.take_value().map(drop)
    });
    walked.map_or(usize::MAX, |_| count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_may_be_the_model_are_counted() {
        for (body, expected) in [
            (r#"{"model":"a","messages":[{"model":"b"}]}"#, 1),
            (r#"{"model":"a","Model":"b"}"#, 2),
            (r#"{"model":"a","m\u006fdel":"b"}"#, 2),
            (r#"{"model":"a","models":["b"]}"#, 2),
            (r#"{"input":["b"]}"#, 0),
            ("[]", usize::MAX),
        ] {
            assert_eq!(count_model_names(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn the_model_is_found_in_a_body_that_cannot_be_indexed() {
        let deep = format!(
            r#"{{"model":"m","x":{}{},"stream":true}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        let twice = r#"{"model":"a","model":"b","messages":{}}"#;
        for (body, expected) in [
            (&*deep, ("m", true)),
            (twice, ("b", false)),
            ("\u{feff}{\"model\":\"m\"}", ("m", false)),
            ("[]", ("", false)),
            ("null", ("", false)),
            (r#"{"model":3}"#, ("", false)),
            ("", ("", false)),
            ("{", ("", false)),
        ] {
            let found = shallow_parse(body.as_bytes());
            assert_eq!((&*found.model, found.streams), expected, "{body}");
            let spelt = found.model_span.map(|span| &body[span.range()]);
            let quoted = (!found.model.is_empty()).then(|| format!("\"{}\"", found.model));
            assert_eq!(spelt, quoted.as_deref(), "{body}");
        }
    }
}
