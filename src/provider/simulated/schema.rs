//! A value that fits a JSON schema: arguments of calls, and structured answers.
//!
//! Covers what tools and response formats use: types, `enum`, `const`, `default`, `required`,
//! `$ref` into the same document, alternatives, bounds of numbers, texts and lists. Never
//! deeper than a bound, whatever the schema says.

use serde_json::{Map, Number, Value};

use super::{dice::Dice, prose};

/// Levels of a made-up value; a recursive schema ends there.
const DEPTH: usize = 8;
/// Values in it, all levels together; what is over is null.
const VALUES: usize = 2_000;
/// The most items or characters that a schema's minimum can ask for.
const MOST: u64 = 64;

/// A value fitting `schema`; `topic` is what texts in it are about.
pub(super) fn value(schema: &Value, topic: &str, dice: &mut Dice) -> Value {
    let mut maker = Maker {
        root: schema,
        topic,
        dice,
        left: VALUES,
    };
    maker.value(schema, "", DEPTH)
}

struct Maker<'a, 'd> {
    root: &'a Value,
    topic: &'a str,
    dice: &'d mut Dice,
    /// Values that may still be made.
    left: usize,
}

impl<'a> Maker<'a, '_> {
    fn value(&mut self, schema: &'a Value, name: &str, depth: usize) -> Value {
        let (Some(depth), Some(left)) = (depth.checked_sub(1), self.left.checked_sub(1)) else {
            return Value::Null;
        };
        self.left = left;
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let found = target
                .strip_prefix('#')
                .and_then(|at| self.root.pointer(at));
            return found.map_or(Value::Null, |schema| self.value(schema, name, depth));
        }
        for exact in ["const", "default"] {
            if let Some(value) = schema.get(exact).filter(|value| !value.is_null()) {
                return value.clone();
            }
        }
        if let Some(values) = schema.get("enum").and_then(Value::as_array) {
            return self.dice.pick(values).cloned().unwrap_or(Value::Null);
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            if let Some(options) = schema.get(several).and_then(Value::as_array) {
                let real = options.iter().find(|option| option["type"] != "null");
                return real.map_or(Value::Null, |option| self.value(option, name, depth));
            }
        }
        match type_of(schema) {
            "object" => self.object(schema, depth),
            "array" => self.list(schema, name, depth),
            "integer" => Value::Number(self.integer(schema, name).into()),
            "number" => self.number(schema, name),
            "boolean" => Value::Bool(self.dice.chance(70)),
            "null" => Value::Null,
            _ => Value::String(self.text(schema, name)),
        }
    }

    /// All required members, and now and then one more.
    fn object(&mut self, schema: &'a Value, depth: usize) -> Value {
        let mut made = Map::new();
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let required: Vec<&str> = required
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for (name, inner) in properties.into_iter().flatten() {
            if required.contains(&name.as_str()) || (depth > DEPTH / 2 && self.dice.chance(15)) {
                made.insert(name.clone(), self.value(inner, name, depth));
            }
        }
        // A schema may require what it does not describe.
        for name in required {
            if !made.contains_key(name) {
                let text = self.text(&Value::Null, name);
                made.insert(name.to_owned(), Value::String(text));
            }
        }
        Value::Object(made)
    }

    fn list(&mut self, schema: &'a Value, name: &str, depth: usize) -> Value {
        let least = bound(schema, "minItems").unwrap_or(0);
        let most = bound(schema, "maxItems").unwrap_or(u64::MAX);
        let wanted = (1 + self.dice.below(3)) as u64;
        let count = wanted.max(least).min(most).min(MOST);
        let item = schema.get("items").unwrap_or(&Value::Null);
        (0..count).map(|_| self.value(item, name, depth)).collect()
    }

    fn integer(&mut self, schema: &Value, name: &str) -> i64 {
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        let below = |key: &str| limit(key).map(|value| (value.ceil() as i64).saturating_sub(1));
        let above = |key: &str| limit(key).map(|value| (value.floor() as i64).saturating_add(1));
        let least = limit("minimum").map(|value| value.ceil() as i64);
        let most = limit("maximum").map(|value| value.floor() as i64);
        let least = least.or_else(|| above("exclusiveMinimum"));
        let most = most.or_else(|| below("exclusiveMaximum"));
        let usual = prose::number_for(name, self.dice);
        let value = usual
            .max(least.unwrap_or(i64::MIN))
            .min(most.unwrap_or(i64::MAX));
        match schema.get("multipleOf").and_then(Value::as_i64) {
            Some(step) if step > 0 => {
                let down = value - value.rem_euclid(step);
                let fits = least.is_none_or(|least| down >= least);
                if fits {
                    down
                } else {
                    down.saturating_add(step)
                }
            }
            _ => value,
        }
    }

    fn number(&mut self, schema: &Value, name: &str) -> Value {
        let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
        let usual = prose::number_for(name, self.dice) as f64 + 0.5;
        let least = limit("minimum").or_else(|| limit("exclusiveMinimum").map(|low| low + 0.25));
        let most = limit("maximum").or_else(|| limit("exclusiveMaximum").map(|high| high - 0.25));
        let value = usual
            .max(least.unwrap_or(f64::MIN))
            .min(most.unwrap_or(f64::MAX));
        Number::from_f64(value).map_or(Value::Null, Value::Number)
    }

    fn text(&mut self, schema: &Value, name: &str) -> String {
        let format = schema.get("format").and_then(Value::as_str);
        let mut text = prose::text_for(name, format, self.topic, self.dice);
        let least = bound(schema, "minLength").unwrap_or(0).min(MOST) as usize;
        while text.chars().count() < least {
            text.push('x');
        }
        if let Some(most) = bound(schema, "maxLength") {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            text = text.chars().take(most).collect();
        }
        text
    }
}

fn bound(schema: &Value, key: &str) -> Option<u64> {
    schema.get(key).and_then(Value::as_u64)
}

/// The first type that is not null; of a schema without one, what its other members tell.
fn type_of(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(name)) => name,
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|name| *name != "null")
            .unwrap_or("null"),
        _ if schema.get("properties").is_some() => "object",
        _ if schema.get("items").is_some() => "array",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(schema: &Value) -> Value {
        value(schema, "the tide tables", &mut Dice::new(3))
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
            let value = value(&schema, "x", &mut Dice::new(seed));
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
