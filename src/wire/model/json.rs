//! The model of a JSON body.

use serde::de::IgnoredAny;

use super::{ModelLookup, ModelSpelling, NamedModel, may_name_model};
use crate::json::{
    scan::{JsonScanner, MalformedJson},
    text,
};

/// Reads the top of a body. The last of two equal keys counts, as in most parsers. A body that is cut short, or no
/// JSON object, names no model.
pub fn find_model_in_json(body: &[u8]) -> ModelLookup {
    let start = 3 * usize::from(body.starts_with(b"\xEF\xBB\xBF"));
    let mut model = None;
    // JSON leaves open which of two equal keys counts.
    let mut candidates = 0;
    let mut read = |scan: &mut JsonScanner<'_>| -> Result<(), MalformedJson> {
        scan.walk_object(|scan, key| {
            let key = text::decode_text(&body[key.span.range()]).unwrap_or_default();
            candidates += usize::from(may_name_model(&key));
            let (span, _) = scan.take_value()?;
            if key == "model" {
                let name = serde_json::from_slice::<String>(&body[span.range()]).ok();
                let name = name.filter(|name| !name.is_empty());
                model = name.map(|model| NamedModel {
                    model,
                    span,
                    spelling: ModelSpelling::Json,
                });
            }
            Ok::<(), MalformedJson>(())
        })?;
        scan.expect_end()
    };
    if read(&mut JsonScanner::new(body, start)).is_err() {
        return ModelLookup::default();
    }
    ModelLookup {
        is_certain: candidates == usize::from(model.is_some())
            && serde_json::from_slice::<IgnoredAny>(&body[start..]).is_ok(),
        model,
    }
}

#[cfg(test)]
mod tests {
    use super::find_model_in_json;
    use crate::conversation::edit::Edits;

    #[test]
    fn the_model_is_found_and_is_certain_if_no_other_reading_is_possible() {
        let check = |body: &str, model: Option<&str>, certain| {
            let found = find_model_in_json(body.as_bytes());
            let named = found.model.as_ref().map(|named| named.model.as_str());
            assert_eq!((named, found.is_certain), (model, certain), "{body}");
        };
        check(
            r#"{"input":[{"model":"x"}],"model":"a\u002fb"}"#,
            Some("a/b"),
            true,
        );
        check("\u{feff} { \"m\\u006fdel\" : \"a\" } ", Some("a"), true);
        check(r#"{"model":"a","model":"b"}"#, Some("b"), false);
        check(r#"{"model":"a","Model":"b"}"#, Some("a"), false);
        check(r#"{"model":"a","models":["b"]}"#, Some("a"), false);
        check(r#"{"model":"a","fallbacks":["b"]}"#, Some("a"), false);
        check(r#"{"input":"x"}"#, None, true);
        check(r#"{"model":7}"#, None, false);
        check(r#"{"model":""}"#, None, false);
        check(r#"{"model":"a","x":tru}"#, None, false);
        check(r#"{"model":"a"}{"model":"b"}"#, None, false);
        check(r#"{"model":"a""#, None, false);
        check("[1]", None, false);
        check("", None, false);
    }

    #[test]
    fn only_the_model_name_is_replaced() {
        let body = " {\"n\":1.0e0, \"model\" : \"up\\/a\" ,\"x\":[ ]}\n";
        let named = find_model_in_json(body.as_bytes()).model.unwrap();
        assert_eq!(named.model, "up/a");
        let mut edits = Edits::default();
        edits.replace(named.span, named.spell_model("a\"b"));
        let edited = edits.apply(&body.to_owned().into()).to_bytes();
        assert_eq!(edited, body.replace("up\\/a", "a\\\"b"));
    }
}
