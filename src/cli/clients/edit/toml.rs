//! TOML. A list is one value here, since no client's row adds to one.

use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::{Document, Leaf};

pub(super) struct Toml(DocumentMut);

impl Toml {
    fn find(&self, path: &[String]) -> Option<&Item> {
        path.iter().try_fold(self.0.as_item(), |item, name| {
            item.as_table_like()?.get(name)
        })
    }

    fn find_table(&mut self, path: &[String]) -> Option<&mut dyn TableLike> {
        let root = self.0.as_item_mut();
        let item = path
            .iter()
            .try_fold(root, |item, name| item.as_table_like_mut()?.get_mut(name));
        item?.as_table_like_mut()
    }
}

impl Document for Toml {
    const COMMENT: &str = "#";

    fn parse(text: &str) -> Result<Self, String> {
        let document = text.parse().map(Self);
        document
            .map_err(|error: toml_edit::TomlError| format!("it is no TOML: {}", error.message()))
    }

    fn list_leaves(&self) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        collect(self.0.as_table(), &mut Vec::new(), &mut leaves);
        leaves
    }

    fn has(&self, path: &[String]) -> bool {
        self.find(path).is_some()
    }

    fn set(&mut self, leaf: &Leaf) -> Result<(), String> {
        let Some((last, above)) = leaf.path.split_last() else {
            return Ok(());
        };
        let mut item = self.0.as_item_mut();
        for name in above {
            let table = item.as_table_like_mut();
            let table = table
                .ok_or_else(|| format!("{name} has no place: what is above it is no table"))?;
            // A table that only holds tables needs no heading.
            let mut fresh = Table::new();
            fresh.set_implicit(true);
            item = table.entry(name).or_insert(Item::Table(fresh));
        }
        let table = item.as_table_like_mut();
        let table =
            table.ok_or_else(|| format!("{last} has no place: what is above it is no table"))?;
        let mut fresh = to_item(&leaf.value).ok_or_else(|| format!("{last} cannot be written"))?;
        if let Some(there) = table.get_mut(last) {
            let there = there.as_value_mut();
            let there = there.ok_or_else(|| format!("{last} is there, and is no value"))?;
            *fresh.decor_mut() = there.decor().clone();
            *there = fresh;
        } else {
            table.insert(last, Item::Value(fresh));
        }
        Ok(())
    }

    fn put_back(&mut self, leaf: &Leaf, before: &Self) -> Result<(), String> {
        let past = before.find(&leaf.path).and_then(Item::as_value);
        let there = leaf.path.split_last().and_then(|(name, above)| {
            let there = self.find_table(above)?.get_mut(name)?;
            there.as_value_mut()
        });
        if let (Some(past), Some(there)) = (past, there) {
            // The comment behind it may be newer.
            let decor = there.decor().clone();
            *there = past.clone();
            *there.decor_mut() = decor;
        }
        Ok(())
    }

    fn remove(&mut self, leaf: &Leaf) {
        if let Some((name, above)) = leaf.path.split_last()
            && let Some(table) = self.find_table(above)
        {
            table.remove(name);
        }
    }

    fn prune(&mut self, path: &[String]) {
        let Some((name, above)) = path.split_last() else {
            return;
        };
        if let Some(table) = self.find_table(above)
            && table
                .get(name)
                .and_then(Item::as_table_like)
                .is_some_and(|it| it.is_empty())
        {
            table.remove(name);
        }
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

fn collect(table: &dyn TableLike, path: &mut Vec<String>, leaves: &mut Vec<Leaf>) {
    for (name, item) in table.iter() {
        path.push(name.to_owned());
        if let Some(inner) = item.as_table_like() {
            collect(inner, path, leaves);
        } else if let Some(value) = to_value(item) {
            leaves.push(Leaf {
                path: path.clone(),
                value,
                is_element: false,
            });
        }
        path.pop();
    }
}

/// Texts, whole numbers and truth values: a row has no others.
fn to_value(item: &Item) -> Option<Value> {
    match item.as_value()? {
        toml_edit::Value::String(it) => Some(it.value().as_str().into()),
        toml_edit::Value::Integer(it) => Some((*it.value()).into()),
        toml_edit::Value::Boolean(it) => Some((*it.value()).into()),
        _ => None,
    }
}

fn to_item(value: &Value) -> Option<toml_edit::Value> {
    match value {
        Value::String(it) => Some(it.as_str().into()),
        Value::Number(it) => Some(it.as_i64()?.into()),
        Value::Bool(it) => Some((*it).into()),
        _ => None,
    }
}
