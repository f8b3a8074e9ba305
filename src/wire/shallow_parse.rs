//! The least that must be known of a body that cannot be indexed: who is to answer it, and how.

use std::collections::HashMap;

use serde_json::value::RawValue;

use crate::{
    json::{scan::JsonScanner, text},
    wire::model::may_name_model,
};

/// What a body says of itself at its top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShallowFields {
    /// Empty if there is none.
    pub model: String,
    pub streams: bool,
}

/// Reads a body that is JSON but no conversation that can be followed. Of a key that stands twice
/// the last counts, as for most parsers; nesting may be of any depth.
pub fn shallow_parse(body: &[u8]) -> ShallowFields {
    let json = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let Ok(members) = serde_json::from_slice::<HashMap<String, &RawValue>>(json) else {
        return ShallowFields::default();
    };
    let value = |name: &str| members.get(name).map_or("", |value| value.get());
    ShallowFields {
        model: serde_json::from_str(value("model")).unwrap_or_default(),
        streams: value("stream") == "true",
    }
}

/// How many members at a body's top may be its model to some parser: JSON leaves open which of two
/// equal keys counts, and some parsers pass over case. Where nesting cannot be followed, many.
pub fn count_model_names(body: &[u8]) -> usize {
    let start = if body.starts_with(b"\xEF\xBB\xBF") {
        3
    } else {
        0
    };
    let mut named = 0;
    let walked = JsonScanner::new(body, start).walk_object(|scan, key| {
        let raw = &body[key.span.range()];
        let spelled = text::decode_text(raw).unwrap_or_default();
        named += usize::from(may_name_model(&spelled));
        scan.take_value().map(|_| ())
    });
    if walked.is_ok() { named } else { usize::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_may_be_the_model_are_counted() {
        for (body, named) in [
            (r#"{"model":"a","messages":[{"model":"b"}]}"#, 1),
            (r#"{"model":"a","Model":"b"}"#, 2),
            (r#"{"model":"a","m\u006fdel":"b"}"#, 2),
            (r#"{"model":"a","models":["b"]}"#, 2),
            (r#"{"input":["b"]}"#, 0),
            ("[]", usize::MAX),
        ] {
            assert_eq!(count_model_names(body.as_bytes()), named, "{body}");
        }
    }

    #[test]
    fn the_model_is_found_where_no_index_is() {
        let of = |model: &str, streams| ShallowFields {
            model: model.into(),
            streams,
        };
        let deep = format!(
            r#"{{"model":"m","x":{}{},"stream":true}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        assert_eq!(shallow_parse(deep.as_bytes()), of("m", true));
        assert_eq!(
            shallow_parse(br#"{"model":"a","model":"b","messages":{}}"#),
            of("b", false)
        );
        assert_eq!(
            shallow_parse(b"\xEF\xBB\xBF{\"model\":\"m\"}"),
            of("m", false)
        );
        for body in ["[]", "null", r#"{"model":3}"#, "", "{"] {
            assert_eq!(
                shallow_parse(body.as_bytes()),
                ShallowFields::default(),
                "{body}"
            );
        }
    }
}
