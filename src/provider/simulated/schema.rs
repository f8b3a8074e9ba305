//! A value that fits a JSON schema: arguments of calls, and structured answers.
//!
//! Covers what tools and response formats use: types, `enum`, `const`, `default`, `required`,
//! `$ref` into the same document, alternatives, bounds of numbers, texts and lists.

use serde_json::{Map, Number, Value};

/// Levels of a value; a recursive schema ends there.
const DEPTH: usize = 8;
/// Values in it, all levels together; what is over is null.
const VALUES: usize = 2_000;
/// The most items or characters that a schema's minimum can ask for.
const MOST: u64 = 64;

/// Texts by the format of a property, or by a part of its name.
const FORMATS: &[(&str, &str)] = &[
    ("date-time", "2025-03-14T09:30:00Z"),
    ("date", "2025-03-14"),
    ("time", "09:30:00Z"),
    ("email", "mate@example.org"),
    ("uri", "https://example.org/harbour"),
    ("url", "https://example.org/harbour"),
    ("uuid", "7d444840-9dc0-41d1-b245-5ffdce74fad2"),
];
const NAMES: &[(&str, &[&str])] = &[
    ("path", &["src/main.rs", "src/station.rs", "tests/tides.rs"]),
    ("file", &["README.md", "src/forecast.rs"]),
    (
        "command",
        &["cargo test", "git status --short", "ls -la src"],
    ),
    ("city", &["Bristol", "Rotterdam", "Bergen", "Lisbon"]),
    ("location", &["Bristol", "Rotterdam", "Bergen", "Lisbon"]),
    ("old", &["let depth = 3;\n"]),
    ("new", &["let depth = 4;\n"]),
];
const TEXT: &str = "tide tables";

/// A value that fits `schema`. The same seed gives the same value.
pub(super) fn make_value(schema: &Value, seed: u64) -> Value {
    let mut maker = Maker {
        root: schema,
        seed: seed as usize,
        left: VALUES,
    };
    maker.make(schema, "", DEPTH)
}

struct Maker<'a> {
    root: &'a Value,
    seed: usize,
    /// Values that may still be made.
    left: usize,
}

impl<'a> Maker<'a> {
    fn make(&mut self, schema: &'a Value, name: &str, depth: usize) -> Value {
        let (Some(depth), Some(left)) = (depth.checked_sub(1), self.left.checked_sub(1)) else {
            return Value::Null;
        };
        self.left = left;
        if let Some(target) = schema["$ref"].as_str() {
            let found = target.strip_prefix('#');
            let found = found.and_then(|at| self.root.pointer(at));
            return found.map_or(Value::Null, |schema| self.make(schema, name, depth));
        }
        for exact in ["const", "default"] {
            if !schema[exact].is_null() {
                return schema[exact].clone();
            }
        }
        if let Some(values) = schema["enum"].as_array() {
            return pick(values, self.seed).cloned().unwrap_or(Value::Null);
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            if let Some(options) = schema[several].as_array() {
                let real = options.iter().find(|option| option["type"] != "null");
                return real.map_or(Value::Null, |option| self.make(option, name, depth));
            }
        }
        match find_type(schema) {
            "object" => self.make_object(schema, depth),
            "array" => {
                let least = schema["minItems"].as_u64().unwrap_or(1);
                let most = schema["maxItems"].as_u64().unwrap_or(u64::MAX);
                let count = least.min(most).min(MOST);
                let item = &schema["items"];
                (0..count).map(|_| self.make(item, name, depth)).collect()
            }
            "integer" => Value::Number(make_integer(schema).into()),
            "number" => {
                let (least, most) = bounds(schema, 0.25);
                let value = 2.5f64.max(least).min(most);
                Number::from_f64(value).map_or(Value::Null, Value::Number)
            }
            "boolean" => Value::Bool(true),
            "null" => Value::Null,
            _ => Value::String(self.make_text(schema, name)),
        }
    }

    /// All required members.
    fn make_object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let required = schema["required"].as_array().into_iter().flatten();
        let mut made = Map::new();
        for name in required.filter_map(Value::as_str) {
            // A schema may require what it does not describe.
            let value = self.make(&schema["properties"][name], name, depth);
            made.insert(name.to_owned(), value);
        }
        Value::Object(made)
    }

    fn make_text(&self, schema: &Value, name: &str) -> String {
        let format = schema["format"].as_str().unwrap_or_default();
        let formatted = FORMATS.iter().find(|(it, _)| *it == format);
        let named = NAMES
            .iter()
            .find(|(it, _)| name.to_ascii_lowercase().contains(it));
        let text = match (formatted, named) {
            (Some((_, text)), _) => text,
            (None, Some((_, texts))) => pick(texts, self.seed).copied().unwrap_or(TEXT),
            (None, None) => TEXT,
        };
        let least = schema["minLength"].as_u64().unwrap_or(0).min(MOST) as usize;
        let most = schema["maxLength"].as_u64().unwrap_or(u64::MAX);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let padding = least.saturating_sub(text.chars().count());
        text.chars()
            .chain(std::iter::repeat_n('x', padding))
            .take(most)
            .collect()
    }
}

fn pick<T>(values: &[T], seed: usize) -> Option<&T> {
    values.get(seed % values.len().max(1))
}

/// The least and the greatest number that a schema allows, with `step` between an exclusive bound
/// and the number.
fn bounds(schema: &Value, step: f64) -> (f64, f64) {
    let number = |name: &str| schema[name].as_f64();
    let least = number("minimum").or_else(|| number("exclusiveMinimum").map(|it| it + step));
    let most = number("maximum").or_else(|| number("exclusiveMaximum").map(|it| it - step));
    (least.unwrap_or(f64::MIN), most.unwrap_or(f64::MAX))
}

fn make_integer(schema: &Value) -> i64 {
    let (least, most) = bounds(schema, 1.0);
    let value = 10f64.max(least.ceil()).min(most.floor()) as i64;
    match schema["multipleOf"].as_i64() {
        Some(step) if step > 0 => {
            let down = value - value.rem_euclid(step);
            if down as f64 >= least {
                down
            } else {
                down.saturating_add(step)
            }
        }
        _ => value,
    }
}

/// The first type that is not null; of a schema without one, what its other members tell.
fn find_type(schema: &Value) -> &str {
    match &schema["type"] {
        Value::String(name) => name,
        Value::Array(names) => {
            let mut names = names.iter().filter_map(Value::as_str);
            names.find(|name| *name != "null").unwrap_or("null")
        }
        _ if schema["properties"].is_object() => "object",
        _ if schema["items"].is_object() => "array",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(schema: &Value) -> Value {
        make_value(schema, 3)
    }

    #[test]
    fn required_properties_are_there_with_their_types() {
        let schema = json!({"type": "object", "additionalProperties": false,
            "required": ["path", "line", "unit", "tags", "deep", "undescribed", "maybe", "ratio", "on"],
            "properties": {
                "path": {"type": "string"}, "line": {"type": "integer", "minimum": 100, "maximum": 101},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "tags": {"type": "array", "items": {"type": "string"}, "minItems": 4},
                "deep": {"$ref": "#/$defs/deep"}, "maybe": {"type": ["null", "integer"]},
                "ratio": {"type": "number", "minimum": 0, "maximum": 1}, "on": {"type": "boolean"}},
            "$defs": {"deep": {"anyOf": [{"type": "null"}, {"type": "object",
                "required": ["k"], "properties": {"k": {"const": 7}}}]}}});
        for seed in 0..50 {
            let value = make_value(&schema, seed);
            assert!(value["path"].is_string() && value["undescribed"].is_string());
            assert!([100, 101].contains(&value["line"].as_i64().unwrap()));
            assert!(["celsius", "fahrenheit"].contains(&value["unit"].as_str().unwrap()));
            assert_eq!(value["tags"].as_array().unwrap().len(), 4);
            assert_eq!(value["deep"]["k"], 7);
            assert!(value["maybe"].is_i64() && value["on"].is_boolean());
            assert!((0.0..=1.0).contains(&value["ratio"].as_f64().unwrap()));
        }
    }

    #[test]
    fn recursion_and_wild_bounds_end() {
        let endless = json!({"type": "object", "required": ["next"],
            "properties": {"next": {"$ref": "#"}}});
        assert!(made(&endless).to_string().len() < 200);
        let long = json!({"type": "array", "minItems": 1_000_000_000_000u64, "items": {}});
        assert_eq!(made(&long).as_array().unwrap().len() as u64, MOST);
        let wide = json!({"type": "array", "minItems": 64, "items": {"$ref": "#"}});
        assert!(made(&wide).to_string().len() < 20_000);
        let far = json!({"type": "integer", "exclusiveMinimum": 1e300});
        assert!(made(&far).is_i64());
        let text = json!({"type": "string", "minLength": 20, "maxLength": 20});
        assert_eq!(made(&text).as_str().unwrap().chars().count(), 20);
        let even = json!({"type": "integer", "minimum": 3, "multipleOf": 4});
        assert_eq!(made(&even).as_i64().unwrap() % 4, 0);
        assert!(made(&json!({"$ref": "#/nowhere"})).is_null());
        assert_eq!(made(&json!({"default": {"a": 1}})), json!({"a": 1}));
    }
}
