//! The JSON Schema of the settings file (draft 2020-12), for editors.
//!
//! It is made by reading all sections once as they are declared: each key tells its type, default and bounds. What a key
//! means is said once, in the comments of the shipped `config.toml`. Names that users choose have a place-holder, whose
//! schema holds for all of them.

use std::collections::BTreeMap;

use figment::{
    error::Kind,
    value::{Dict, Value as Written},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::config::{
    Config,
    loading::{environment::Environment, layer::Layers, section::Section},
};

/// Stands for a name of the user's choice.
pub(super) const ANY_NAME: &str = "NAME";

/// Sections whose keys are names of the user's choice.
const NAMED_SECTIONS: [&str; 3] = ["clients", "models", "providers"];

const SHIPPED: &str = include_str!("../../../config.toml");

/// The schema so far. A section is an object; what holds for any name is in its `additionalProperties`.
#[derive(Debug)]
pub(crate) struct SettingsSchema(Value);

/// The schema of a settings file, as JSON.
pub fn make_settings_schema() -> Value {
    let (layers, environment) = (Layers::default(), Environment::default());
    let mut section = Section::new(&layers, &environment);
    section.schema = Some(SettingsSchema(json!({"properties": {}})));
    // Without values, what is missing is a problem; only the keys count.
    let _ = Config::read(&mut section);
    let mut schema = section.schema.unwrap_or(SettingsSchema(Value::Null));
    schema.add_comments();
    schema.0["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema.0["title"] = "Settings of Plimsoll".into();
    schema.0
}

impl SettingsSchema {
    /// The schema at a path, which is made where it is absent.
    fn node<S: AsRef<str>>(&mut self, path: &[S]) -> &mut Value {
        path.iter().fold(&mut self.0, |node, part| {
            node["type"] = "object".into();
            if part.as_ref() == ANY_NAME {
                return &mut node["additionalProperties"];
            }
            if node["additionalProperties"].is_null() {
                node["additionalProperties"] = false.into();
            }
            &mut node["properties"][part.as_ref()]
        })
    }

    /// Adds to what is known of a key.
    fn extend(&mut self, path: &[String], more: Value) {
        let node = self.node(path);
        if let Value::Object(more) = more {
            more.into_iter().for_each(|(key, value)| node[key] = value);
        }
    }

    pub(super) fn note_value<T: DeserializeOwned>(
        &mut self,
        path: &[String],
        default: Option<Value>,
    ) {
        self.extend(path, find_value_type::<T>());
        if let Some(default) = default.filter(|it| !it.is_null()) {
            self.extend(path, json!({"default": default}));
        }
    }

    pub(super) fn note_range(&mut self, path: &[String], least: Value, most: Value) {
        self.extend(path, json!({"minimum": least, "maximum": most}));
    }

    /// The texts that a key may have, or the entries of its list.
    pub(super) fn note_choices(&mut self, path: &[String], choices: &[&str]) {
        let node = self.node(path);
        let place = if node["type"] == "array" {
            &mut node["items"]["enum"]
        } else {
            &mut node["enum"]
        };
        *place = json!(choices);
    }

    /// Takes the descriptions from the shipped file.
    fn add_comments(&mut self) {
        for (key, comment) in read_comments(SHIPPED) {
            let place = key
                .split('.')
                .fold(String::new(), |place, part| match part {
                    ANY_NAME => place + "/additionalProperties",
                    part => format!("{place}/properties/{part}"),
                });
            // Others are examples of names.
            if let Some(node) = self.0.pointer_mut(&place) {
                node["description"] = comment.into();
            }
        }
    }
}

/// What a type reads, by its words about a text in the place of its values.
fn find_value_type<T: DeserializeOwned>() -> Value {
    match refuse::<T>("".into()) {
        None => json!({"type": "string"}),
        Some(Kind::UnknownVariant(_, choices)) => json!({"type": "string", "enum": choices}),
        Some(Kind::InvalidType(_, expected)) => match &*expected {
            "a boolean" => json!({"type": "boolean"}),
            "f64" => json!({"type": "number"}),
            "a sequence" => json!({"type": "array", "items": find_item_type::<T>()}),
            _ => json!({"type": "integer", "minimum": 0}),
        },
        Some(_) => json!({}),
    }
}

/// The same of the items of a list: a text, or a section with known keys.
fn find_item_type<T: DeserializeOwned>() -> Value {
    let unknown_key: Written = Dict::from([(String::new(), 0.into())]).into();
    match refuse::<T>(vec![unknown_key].into()) {
        Some(Kind::UnknownField(_, keys)) => {
            let keys = keys.iter().map(|key| (*key, json!({})));
            let keys: BTreeMap<_, _> = keys.collect();
            json!({"type": "object", "additionalProperties": false, "properties": keys})
        }
        _ => json!({"type": "string"}),
    }
}

fn refuse<T: DeserializeOwned>(written: Written) -> Option<Kind> {
    written.deserialize::<T>().err().map(|error| error.kind)
}

/// The comment above each section and key of a settings file, also above those that are examples. A comment is for all keys
/// that follow it without a blank line or another comment between.
fn read_comments(text: &str) -> BTreeMap<String, String> {
    let (mut found, mut section) = (BTreeMap::new(), String::new());
    let (mut comment, mut is_open) = (Vec::new(), false);
    for line in text.lines() {
        if let Some(words) = line.strip_prefix("# ") {
            if !is_open {
                comment.clear();
            }
            is_open = true;
            comment.push(words);
            continue;
        }
        is_open = false;
        let line = line.strip_prefix('#').unwrap_or(line);
        let key = if let Some(name) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            section = match name.split_once('.') {
                Some((first, _)) if NAMED_SECTIONS.contains(&first) => {
                    format!("{first}.{ANY_NAME}")
                }
                _ => name.to_owned(),
            };
            section.clone()
        } else if let Some((key, _)) = line.split_once(" = ") {
            format!("{section}.{key}")
                .trim_start_matches('.')
                .to_owned()
        } else {
            comment.clear();
            continue;
        };
        if !comment.is_empty() {
            found.entry(key).or_insert_with(|| comment.join(" "));
        }
        if line.starts_with('[') {
            comment.clear();
        }
    }
    found
}
