//! Makes a value that fits a JSON schema: arguments of calls, and structured answers. Reads types,
//! `enum`, `const`, `default` and `required`, but no references, alternatives and bounds.

use serde_json::{Value, json};

pub(super) fn make_value(schema: &Value) -> Value {
    let fixed = [&schema["const"], &schema["default"], &schema["enum"][0]];
    if let Some(value) = fixed.into_iter().find(|value| !value.is_null()) {
        return value.clone();
    }
    match find_type(schema) {
        "object" => {
            let required = schema["required"].as_array().into_iter().flatten();
            let make = |name| make_value(&schema["properties"][name]);
            let names = required.filter_map(Value::as_str);
            names.map(|name| (name, make(name))).collect()
        }
        "array" => json!([make_value(&schema["items"])]),
        "integer" => json!(10),
        "number" => json!(2.5),
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => json!("tide tables"),
    }
}

/// The first type that is not null, else the one that the other members imply.
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
    use super::*;

    #[test]
    fn required_properties_are_there_with_their_types() {
        let schema = json!({"type": "object", "additionalProperties": false,
            "required": ["path", "unit", "tags", "deep", "undescribed", "maybe", "ratio", "on"],
            "properties": {
                "path": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "deep": {"required": ["k"], "properties": {"k": {"const": 7}}},
                "maybe": {"type": ["null", "integer"]},
                "ratio": {"type": "number"}, "on": {"type": "boolean"}}});
        let value = make_value(&schema);
        assert!(value["path"].is_string() && value["undescribed"].is_string());
        assert_eq!(
            (&value["unit"], &value["deep"]["k"]),
            (&json!("celsius"), &json!(7))
        );
        assert!(value["tags"][0].is_string() && value["maybe"].is_i64());
        assert!(value["ratio"].is_f64() && value["on"].is_boolean());
        assert_eq!(make_value(&json!({"default": {"a": 1}})), json!({"a": 1}));
    }
}
