//! Tools as chat applications and agents list them: schemas with titles, examples and nested parts, long descriptions.

use bytes::Bytes;
use plimsoll::conversation::{Format, edit::Edits};
use serde_json::{Map, Value, json};

use super::generate::Random;

const WORDS: [&str; 12] = [
    "file", "path", "e.g.", "Search", "the", "query", "of", "title", "a", "读取", "lines", "2.5",
];

fn sentence(random: &mut Random) -> String {
    let words: Vec<&str> = (0..random.between(1, 14))
        .map(|_| random.pick(&WORDS))
        .collect();
    let end = random.pick(&[". ", ".\n", "? ", "。", "\n\n", ", "]);
    words.join(" ") + end
}

fn description(random: &mut Random, sentences: usize) -> String {
    let count = random.below(sentences + 1);
    let text: Vec<String> = (0..count).map(|_| sentence(random)).collect();
    text.concat()
}

/// A schema with annotations in any place, and values that look like such.
pub(crate) fn any_schema(random: &mut Random, depth: usize) -> Value {
    let mut schema = Map::new();
    if random.chance(40) {
        schema.insert("title".into(), "Title. Of it".into());
    }
    if random.chance(70) {
        schema.insert("description".into(), description(random, 5).into());
    }
    match random.below(if depth == 0 { 4 } else { 8 }) {
        0 => {
            schema.insert("type".into(), "string".into());
            schema.insert("maxLength".into(), random.between(1, 9).into());
        }
        1 => {
            let values = json!(["title", "a", {"title": "x", "description": "A b. C d."}]);
            schema.insert("enum".into(), values);
        }
        2 => {
            schema.insert("type".into(), json!(["integer", "null"]));
            schema.insert("default".into(), json!({"title": "d", "examples": [1]}));
        }
        3 => {
            schema.insert("const".into(), json!({"$comment": "c", "title": 7}));
        }
        4 => {
            schema.insert("type".into(), "array".into());
            schema.insert("items".into(), any_schema(random, depth - 1));
        }
        5 => {
            let list = [0; 2].map(|_| any_schema(random, depth - 1));
            schema.insert(random.pick(&["anyOf", "oneOf"]).into(), json!(list));
        }
        _ => add_properties(random, depth, &mut schema),
    }
    if random.chance(20) {
        schema.insert("examples".into(), json!([{"title": "e"}, "a", 3]));
    }
    if random.chance(15) {
        schema.insert("$comment".into(), "Of its maker".into());
    }
    schema.into()
}

fn add_properties(random: &mut Random, depth: usize, schema: &mut Map<String, Value>) {
    let names = ["title", "description", "path", "examples", "$comment"];
    let names = &names[..random.between(1, names.len())];
    let properties: Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), any_schema(random, depth - 1)))
        .collect();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), properties.into());
    schema.insert("required".into(), json!(names[..1]));
    schema.insert("additionalProperties".into(), random.chance(50).into());
}

/// The schema of arguments.
fn arguments(random: &mut Random) -> Value {
    let mut schema = Map::new();
    if random.chance(50) {
        let draft = "https://json-schema.org/draft/2020-12/schema";
        schema.insert("$schema".into(), draft.into());
    }
    add_properties(random, 3, &mut schema);
    schema.into()
}

/// So many tools in a format.
pub(crate) fn wide_tools(format: Format, seed: u64, count: usize) -> Value {
    let mut random = Random::for_part(seed, 91);
    let tools = (0..count).map(|nth| {
        let (name, schema) = (format!("wide_{nth}"), arguments(&mut random));
        let text = description(&mut random, 12);
        define_tool(format, &name, &text, &schema)
    });
    tools.collect()
}

/// The definition of a tool in a format.
pub(crate) fn define_tool(format: Format, name: &str, text: &str, schema: &Value) -> Value {
    match format {
        Format::Chat => json!({"type": "function", "function":
            {"name": name, "description": text, "parameters": schema}}),
        Format::Messages => json!({"name": name, "description": text, "input_schema": schema}),
        _ => json!({"type": "function", "name": name, "description": text,
            "parameters": schema, "strict": false}),
    }
}

/// The same request with so many tools more; nothing else of it changes.
pub(crate) fn with_wide_tools(format: Format, body: &[u8], seed: u64, count: usize) -> Vec<u8> {
    let body = Bytes::copy_from_slice(body);
    let conversation = format.index_body(body.clone()).expect("a conversation");
    let wide = wide_tools(format, seed, count).to_string();
    let wide = &wide[1..wide.len() - 1];
    let mut edits = Edits::default();
    match conversation.find_field("tools").map(|field| field.value) {
        Some(list) => {
            let inside = &body[list.range()][1..list.len() - 1];
            let comma = if inside.trim_ascii().is_empty() {
                ""
            } else {
                ","
            };
            edits.insert(list.end - 1, format!("{comma}{wide}"));
        }
        None => edits.insert(conversation.span.start + 1, format!(r#""tools":[{wide}],"#)),
    }
    edits.apply(&body).to_bytes().to_vec()
}
