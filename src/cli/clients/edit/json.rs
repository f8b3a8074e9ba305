//! JSON, with comments and trailing commas where the file has them.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstNode, CstObject, CstRootNode},
};
use serde_json::Value;

use super::{Document, Leaf};

pub(super) struct Json(CstRootNode);

impl Json {
    /// The object at a path.
    fn find_object(&self, path: &[String]) -> Option<CstObject> {
        let root = self.0.object_value();
        path.iter()
            .try_fold(root?, |object, name| object.object_value(name))
    }

    fn find_value(&self, path: &[String]) -> Option<CstNode> {
        let (name, above) = path.split_last()?;
        self.find_object(above)?.get(name)?.value()
    }
}

impl Document for Json {
    const COMMENT: &str = "//";

    fn parse(text: &str) -> Result<Self, String> {
        let options = ParseOptions {
            allow_comments: true,
            allow_trailing_commas: true,
            allow_loose_object_property_names: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            allow_bare_decimal_point_numbers: false,
            allow_non_finite_numbers: false,
            allow_extended_string_escapes: false,
        };
        let root = CstRootNode::parse(text, &options);
        root.map(Self)
            .map_err(|error| format!("it is no JSON: {error}"))
    }

    fn list_leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        if let Some(root) = self.0.object_value() {
            collect(&root, &mut Vec::new(), &mut leaves);
        }
        leaves
    }

    fn has(&self, path: &[String]) -> bool {
        self.find_value(path).is_some()
    }

    fn set(&mut self, leaf: &Leaf) -> Result<(), String> {
        let no_object = |what: &str| format!("{what} is there, and holds no members");
        let root = self.0.object_value_or_create();
        let mut object = root.ok_or_else(|| no_object("a value"))?;
        let Some((last, above)) = leaf.path.split_last() else {
            return Ok(());
        };
        for name in above {
            expect_one(&object, name)?;
            let next = object.object_value_or_create(name);
            object = next.ok_or_else(|| no_object(name))?;
        }
        expect_one(&object, last)?;
        if leaf.is_element {
            let array = object.array_value_or_create(last);
            let array = array.ok_or_else(|| format!("{last} is there, and is no list"))?;
            let mut elements = array.elements().into_iter();
            if !elements.any(|it| it.to_serde_value().as_ref() == Some(&leaf.value)) {
                array.append(to_input(&leaf.value));
            }
            return Ok(());
        }
        match object.get(last) {
            Some(there)
                if there.value().and_then(|it| it.to_serde_value()).as_ref()
                    == Some(&leaf.value) => {}
            Some(there) => there.set_value(to_input(&leaf.value)),
            None => drop(object.append(last, to_input(&leaf.value))),
        }
        Ok(())
    }

    fn put_back(&mut self, leaf: &Leaf, before: &Self) -> Result<(), String> {
        let past = before.find_value(&leaf.path);
        match past.and_then(|it| it.to_serde_value()) {
            Some(value) => self.set(&Leaf {
                value,
                ..leaf.clone()
            }),
            None => Ok(()),
        }
    }

    fn remove(&mut self, leaf: &Leaf) {
        let Some(value) = self.find_value(&leaf.path) else {
            return;
        };
        if !leaf.is_element {
            if let Some((name, above)) = leaf.path.split_last()
                && let Some(member) = self.find_object(above).and_then(|it| it.get(name))
            {
                member.remove();
            }
            return;
        }
        let elements = value.as_array().map(|array| array.elements());
        let mut elements = elements.unwrap_or_default().into_iter();
        if let Some(own) = elements.find(|it| it.to_serde_value().as_ref() == Some(&leaf.value)) {
            own.remove();
        }
    }

    fn prune(&mut self, path: &[String]) {
        let Some((name, above)) = path.split_last() else {
            return;
        };
        let is_empty = |value: &CstNode| {
            let is_container = value.as_object().is_some() || value.as_array().is_some();
            let is_content = |it: &CstNode| it.is_comment() || !it.is_trivia() && !it.is_token();
            is_container && !value.children().iter().any(is_content)
        };
        if self.find_value(path).as_ref().is_some_and(is_empty)
            && let Some(member) = self.find_object(above).and_then(|it| it.get(name))
        {
            member.remove();
        }
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// # Errors
/// A name stands twice: readers take one or the other.
fn expect_one(object: &CstObject, name: &str) -> Result<(), String> {
    let names = object.properties().into_iter();
    let same = names.filter(|member| member.decoded_name().as_deref() == Some(name));
    if same.count() > 1 {
        return Err(format!("{name} stands in it twice"));
    }
    Ok(())
}

fn collect(object: &CstObject, path: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    for member in object.properties() {
        let (Some(name), Some(value)) = (member.decoded_name(), member.value()) else {
            continue;
        };
        path.push(name);
        let mut add = |value: Option<Value>, is_element| {
            let path = path.clone();
            leaves.extend(value.map(|value| Leaf {
                path,
                value,
                is_element,
            }));
        };
        if let Some(array) = value.as_array() {
            for element in array.elements() {
                add(element.to_serde_value(), true);
            }
        } else if let Some(inner) = value.as_object() {
            collect(&inner, path, leaves);
        } else {
            add(value.to_serde_value(), false);
        }
        path.pop();
    }
}

fn to_input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(it) => CstInputValue::Bool(*it),
        Value::Number(it) => CstInputValue::Number(it.to_string()),
        Value::String(it) => CstInputValue::String(it.clone()),
        Value::Array(all) => CstInputValue::Array(all.iter().map(to_input).collect()),
        Value::Object(all) => {
            let members = all
                .iter()
                .map(|(name, value)| (name.clone(), to_input(value)));
            CstInputValue::Object(members.collect())
        }
    }
}
