//! The model that a request names: at the top of a JSON body, or in the query.
//!
//! Where readers may differ about it (a repeated key, a list of further models), one of the names is found, and all
//! of them are counted.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::scan::Span;

/// The model that a body or a query names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedModel {
    /// Empty if there is none.
    pub model: String,
    /// Where it is spelt, in JSON with its quotes.
    pub span: Option<Span>,
    /// How many names some reader may find; `usize::MAX` where readers split a query differently.
    pub names: usize,
}

impl NamedModel {
    /// Where the model is named, if the provider is sent another name.
    pub fn find_renamed(&self, sent: &str) -> Option<Span> {
        self.span.filter(|_| self.model != sent)
    }
}

/// Fields at the top of a body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShallowFields {
    pub named: NamedModel,
    pub streams: bool,
}

/// Reads JSON of any nesting depth. The last of two equal keys counts, as in most parsers. What is no JSON object has
/// no fields.
pub fn shallow_parse(body: &[u8]) -> ShallowFields {
    let json = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
    let Ok(found) = serde_json::from_slice::<RawFields<'_>>(json) else {
        return ShallowFields::default();
    };
    let mut named = NamedModel {
        names: found.names,
        ..NamedModel::default()
    };
    if let Some(value) = found.model.map(RawValue::get)
        && let Ok(model) = serde_json::from_str::<String>(value)
        && !model.is_empty()
    {
        let start = value.as_ptr().addr() - body.as_ptr().addr();
        named.span = Some(Span::new(start, start + value.len()));
        named.model = model;
    }
    ShallowFields {
        named,
        streams: found.streams,
    }
}

/// What [`shallow_parse`] reads, in the bytes of the body.
#[derive(Default)]
struct RawFields<'b> {
    model: Option<&'b RawValue>,
    streams: bool,
    names: usize,
}

impl<'b> Deserialize<'b> for RawFields<'b> {
    fn deserialize<D: Deserializer<'b>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldReader)
    }
}

struct FieldReader;

impl<'b> Visitor<'b> for FieldReader {
    type Value = RawFields<'b>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(self, mut members: A) -> Result<RawFields<'b>, A::Error> {
        let mut found = RawFields::default();
        while let Some((key, value)) = members.next_entry::<String, &RawValue>()? {
            // Gateways accept lists of further models: OpenRouter's `models`, LiteLLM's `fallbacks`.
            found.names += usize::from(is_one_of(&key, &["model", "models", "fallbacks"]));
            match &*key {
                "model" => found.model = Some(value),
                "stream" => found.streams = value.get() == "true",
                _ => {}
            }
        }
        Ok(found)
    }
}

/// Reads the text behind the `?`, as in the URLs of websockets: `?model=NAME`. The last of several names counts.
pub fn find_model_in_query(query: &str) -> NamedModel {
    let mut named = NamedModel::default();
    let mut at = 0;
    for pair in query.split('&') {
        let end = at + pair.len();
        if let Some((key, value)) = form_urlencoded::parse(pair.as_bytes()).next() {
            let plain = key.trim().split('[').next().unwrap_or_default();
            // Azure's websockets name a `deployment`.
            named.names += usize::from(is_one_of(plain, &["model", "models", "deployment"]));
            if key == "model" && !value.is_empty() {
                let start = pair.find('=').map_or(end, |equals| at + equals + 1);
                named.span = Some(Span::new(start, end));
                named.model = value.into_owned();
            }
        }
        at = end + 1;
    }
    // Some servers split pairs at `;` too.
    if query.contains(';') {
        named.names = usize::MAX;
    }
    named
}

/// In any case: some parsers ignore it.
fn is_one_of(key: &str, names: &[&str]) -> bool {
    names.iter().any(|name| key.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_its_model_at_the_top() {
        let check = |body: &str, model: &str, names: usize| {
            let found = shallow_parse(body.as_bytes()).named;
            assert_eq!((&*found.model, found.names), (model, names), "{body}");
            let spelt = found.span.map(|span| &body[span.range()]);
            let read = spelt.map(|text| serde_json::from_str::<String>(text).unwrap());
            assert_eq!(read.unwrap_or_default(), model, "{body}");
        };
        check(r#"{"model":"a","messages":[{"model":"b"}]}"#, "a", 1);
        check(r#"{"input":[{"model":"x"}],"model":"a\u002fb"}"#, "a/b", 1);
        check("\u{feff} { \"m\\u006fdel\" : \"a\" } ", "a", 1);
        check(r#"{"model":"a","model":"b","messages":{}}"#, "b", 2);
        check(r#"{"model":"a","Model":"b"}"#, "a", 2);
        check(r#"{"model":"a","m\u006fdel":"b"}"#, "b", 2);
        check(r#"{"model":"a","models":["b"]}"#, "a", 2);
        check(r#"{"model":"a","fallbacks":["b"]}"#, "a", 2);
        check(r#"{"input":["b"]}"#, "", 0);
        check(r#"{"model":7}"#, "", 1);
        check(r#"{"model":""}"#, "", 1);
        check(r#"{"model":"a","x":tru}"#, "", 0);
        check(r#"{"model":"a"}{"model":"b"}"#, "", 0);
        for none in [r#"{"model":"a""#, "{", "[1]", "null", ""] {
            check(none, "", 0);
        }
    }

    #[test]
    fn a_body_is_read_however_deep_it_nests() {
        let deep = format!(
            r#"{{"model":"m","x":{}{},"stream":true}}"#,
            "[".repeat(5_000),
            "]".repeat(5_000)
        );
        let found = shallow_parse(deep.as_bytes());
        assert_eq!((&*found.named.model, found.streams), ("m", true));
        assert!(!shallow_parse(br#"{"model":"m","x":{"stream":true}}"#).streams);
    }

    #[test]
    fn a_query_names_its_model() {
        let check = |query: &str, model: &str, names: usize, spelt: &str| {
            let found = find_model_in_query(query);
            assert_eq!((&*found.model, found.names), (model, names), "{query}");
            let text = found.span.map_or("", |span| &query[span.range()]);
            assert_eq!(text, spelt, "{query}");
        };
        check("", "", 0, "");
        check("x=1&model=up%2Fa&y=%41", "up/a", 1, "up%2Fa");
        check("m%6fdel=a", "a", 1, "a");
        check("model=a&model=bc", "bc", 2, "bc");
        check("model=a&MODEL=b", "a", 2, "a");
        check("model=a;model=b", "a;model=b", usize::MAX, "a;model=b");
        check("x=1;model=b", "", usize::MAX, "");
        for odd in [
            "model=",
            "model",
            "model[]=b",
            "model%5B0%5D=b",
            "deployment=b",
            "models=b",
            "+model=b",
        ] {
            check(odd, "", 1, "");
        }
        check("&&model_id=x&", "", 0, "");
    }
}
