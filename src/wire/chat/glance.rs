//! The least that must be known of a body that cannot be indexed: who is to answer it, and how.

use std::collections::HashMap;

use serde_json::value::RawValue;

/// What a body says of itself at its top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Glance {
    /// Empty if there is none.
    pub model: String,
    pub streams: bool,
}

/// Reads a body that is JSON but no conversation that can be followed. Of a key that stands twice
/// the last counts, as for most parsers; nesting may be of any depth.
pub fn glance(body: &[u8]) -> Glance {
    let json = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let Ok(members) = serde_json::from_slice::<HashMap<String, &RawValue>>(json) else {
        return Glance::default();
    };
    let value = |name: &str| members.get(name).map_or("", |value| value.get());
    Glance {
        model: serde_json::from_str(value("model")).unwrap_or_default(),
        streams: value("stream") == "true",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_where_no_index_is() {
        let of = |model: &str, streams| Glance {
            model: model.into(),
            streams,
        };
        let deep = format!(
            r#"{{"model":"m","x":{}{},"stream":true}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        assert_eq!(glance(deep.as_bytes()), of("m", true));
        assert_eq!(
            glance(br#"{"model":"a","model":"b","messages":{}}"#),
            of("b", false)
        );
        assert_eq!(glance(b"\xEF\xBB\xBF{\"model\":\"m\"}"), of("m", false));
        for body in ["[]", "null", r#"{"model":3}"#, "", "{"] {
            assert_eq!(glance(body.as_bytes()), Glance::default(), "{body}");
        }
    }
}
