//! The model of a query, as in the URLs of websockets: `?model=NAME`.

use super::{ModelLookup, ModelSpelling, NamedModel};
use crate::json::scan::Span;

/// Reads the text behind the `?`. The last of several names counts.
pub fn find_model_in_query(query: &str) -> ModelLookup {
    let mut model = None;
    let mut candidates = 0;
    let mut at = 0;
    for pair in query.split('&') {
        let end = at + pair.len();
        if let Some((key, value)) = form_urlencoded::parse(pair.as_bytes()).next()
            && may_name_query_model(&key)
        {
            candidates += 1;
            if key == "model" && !value.is_empty() {
                model = Some(NamedModel {
                    model: value.into_owned(),
                    span: Span::new(pair.find('=').map_or(end, |equals| at + equals + 1), end),
                    spelling: ModelSpelling::Query,
                });
            }
        }
        at = end + 1;
    }
    ModelLookup {
        // Some servers split pairs at `;` too.
        is_certain: candidates == usize::from(model.is_some()) && !query.contains(';'),
        model,
    }
}

/// Whether some server takes the key for the model's. Azure's websockets name a `deployment`.
fn may_name_query_model(key: &str) -> bool {
    let key = key.trim().split('[').next().unwrap_or_default();
    ["model", "models", "deployment"]
        .iter()
        .any(|name| key.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::find_model_in_query;

    #[test]
    fn the_model_is_found_and_can_be_replaced() {
        let check = |query: &str, model: Option<&str>, certain: bool, edited: &str| {
            let found = find_model_in_query(query);
            let named = found.model.as_ref().map(|named| named.model.as_str());
            assert_eq!((named, found.is_certain), (model, certain), "{query}");
            let mut text = query.to_owned();
            if let Some(named) = found.model {
                let new = String::from_utf8(named.spell_model("a b/c").to_vec()).unwrap();
                text.replace_range(named.span.range(), &new);
            }
            assert_eq!(text, edited);
        };
        check("", None, true, "");
        check(
            "x=1&model=up%2Fa&y=%41",
            Some("up/a"),
            true,
            "x=1&model=a+b%2Fc&y=%41",
        );
        check("m%6fdel=a", Some("a"), true, "m%6fdel=a+b%2Fc");
        check("model=a&model=b", Some("b"), false, "model=a&model=a+b%2Fc");
        check("model=a&MODEL=b", Some("a"), false, "model=a+b%2Fc&MODEL=b");
        check("model=a;model=b", Some("a;model=b"), false, "model=a+b%2Fc");
        check("model=", None, false, "model=");
        check("model", None, false, "model");
        for two in [
            "model[]=b",
            "model%5B0%5D=b",
            "deployment=b",
            "models=b",
            "+model=b",
        ] {
            check(two, None, false, two);
        }
        check("&&model_id=x&", None, true, "&&model_id=x&");
    }
}
