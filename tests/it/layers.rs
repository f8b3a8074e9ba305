//! Imports between the folders of `src/` point one way.

use std::{collections::BTreeSet, fs, path::Path};

/// The folders (and files) of `src/`, outermost first. Each may import those below it only.
const LAYERS: [&str; 23] = [
    "cli",
    "server",
    "admin",
    "passthrough",
    "proxy",
    "http",
    "session",
    "compaction",
    "recovery",
    "guard",
    "telemetry",
    "provider",
    "relay",
    "error",
    "health",
    "format",
    "wire",
    "conversation",
    "json",
    "store",
    "breaker",
    "config",
    "unix_time",
];

#[test]
fn imports_between_folders_point_one_way() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut upwards = BTreeSet::new();
    let mut seen = 0;
    for (at, layer) in LAYERS.iter().enumerate() {
        for file in files(&source, layer) {
            seen += 1;
            let text = fs::read_to_string(&file).unwrap();
            for imported in imported(&code(&text)) {
                let place = LAYERS.iter().position(|layer| *layer == imported);
                if place.is_some_and(|place| place < at) {
                    let file = file.strip_prefix(&source).unwrap().display();
                    upwards.insert(format!("{file} imports {imported}"));
                }
            }
        }
    }
    assert!(seen > 300, "{seen} files were read");
    assert!(upwards.is_empty(), "{upwards:#?}");
}

/// The rooms of the guard, outermost first. Each may import those below it only.
const GUARD_ROOMS: [&str; 9] = [
    "plan", "fold", "shrink", "inject", "grammar", "text", "request", "rules", "order",
];

#[test]
fn imports_between_rooms_of_the_guard_point_one_way() {
    let guard = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guard");
    let mut astray = BTreeSet::new();
    for (at, room) in GUARD_ROOMS.iter().enumerate() {
        for file in files(&guard, room) {
            let text = fs::read_to_string(&file).unwrap();
            for imported in imported_below(&code(&text), "guard::") {
                let place = GUARD_ROOMS.iter().position(|room| *room == imported);
                // A name that the guard exports could stand for any room.
                if place.is_none_or(|place| place < at) {
                    let file = file.strip_prefix(&guard).unwrap().display();
                    astray.insert(format!("{file} imports {imported}"));
                }
            }
        }
    }
    assert!(astray.is_empty(), "{astray:#?}");
    let names = fs::read_dir(guard).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".rs").to_owned()
    });
    let names: BTreeSet<String> = names.filter(|it| it != "mod" && it != "tests").collect();
    assert_eq!(names, GUARD_ROOMS.iter().map(|&it| it.to_owned()).collect());
}

/// The folders of the proxy, outermost first. Each may import those below it only.
const PROXY_FOLDERS: [&str; 7] = [
    "answer",
    "settle",
    "summary",
    "dispatch",
    "plan",
    "recovery_step",
    "replica_sync",
];

#[test]
fn imports_between_folders_of_the_proxy_point_one_way() {
    let proxy = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proxy");
    let mut upwards = BTreeSet::new();
    for (at, folder) in PROXY_FOLDERS.iter().enumerate() {
        for file in files(&proxy, folder) {
            let text = fs::read_to_string(&file).unwrap();
            for imported in imported_below(&code(&text), "proxy::") {
                let place = PROXY_FOLDERS.iter().position(|it| *it == imported);
                if place.is_some_and(|place| place < at) {
                    let file = file.strip_prefix(&proxy).unwrap().display();
                    upwards.insert(format!("{file} imports {imported}"));
                }
            }
        }
    }
    assert!(upwards.is_empty(), "{upwards:#?}");
    let folders = fs::read_dir(proxy)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir());
    assert_eq!(folders.count(), PROXY_FOLDERS.len());
}

#[test]
fn every_folder_has_its_layer() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = fs::read_dir(source).unwrap().map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".rs").to_owned()
    });
    let names: BTreeSet<String> = names.filter(|it| it != "lib" && it != "main").collect();
    assert_eq!(names, LAYERS.iter().map(|&it| it.to_owned()).collect());
}

#[test]
fn the_table_of_layers_in_the_architecture_is_in_this_order() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("## Layers").unwrap();
    let (layers, _) = rest.split_once("\n## ").unwrap();
    let rows = layers.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<&str> = rows.filter_map(|row| row.split('`').next()).collect();
    assert_eq!(rows, LAYERS);
}

/// A new format would fail in silence where a format is compared with a single one; a `match` names it.
#[test]
fn no_format_is_compared_with_a_single_one() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut compared = BTreeSet::new();
    for layer in LAYERS {
        for file in files(&source, layer) {
            let code = code(&fs::read_to_string(&file).unwrap());
            for line in code.lines() {
                let is_compared = ["== Format::", "!= Format::"]
                    .iter()
                    .any(|it| line.contains(it));
                if is_compared || line.contains("matches!(") && line.contains("Format::") {
                    let file = file.strip_prefix(&source).unwrap().display();
                    compared.insert(format!("{file}: {}", line.trim()));
                }
            }
        }
    }
    assert!(compared.is_empty(), "{compared:#?}");
}

/// JSON keys that only the formats have.
const KEYS: [&str; 17] = [
    "role",
    "tool_calls",
    "tool_call_id",
    "function_call",
    "choices",
    "delta",
    "finish_reason",
    "stop_reason",
    "content_block",
    "tool_use",
    "tool_result",
    "image_url",
    "reasoning_content",
    "tool_choice",
    "response_format",
    "max_tokens",
    "max_completion_tokens",
];

#[test]
fn keys_of_wire_formats_are_in_the_folder_format_only() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut astray, mut simulated) = (BTreeSet::new(), 0);
    // The dashboard and its API describe a format; the simulated provider implements it.
    for layer in LAYERS.iter().filter(|it| !["format", "admin"].contains(it)) {
        for file in files(&source, layer) {
            let name = file.strip_prefix(&source).unwrap().display().to_string();
            if !has_key(&code(&fs::read_to_string(&file).unwrap())) {
                continue;
            }
            if name.starts_with("provider/simulated/") {
                simulated += 1;
            } else {
                astray.insert(name);
            }
        }
    }
    assert!(astray.is_empty(), "{astray:#?}");
    assert!(simulated > 2, "keys are not found where they stand");
}

/// Whether one of the keys is in quotes, escaped quotes included.
fn has_key(code: &str) -> bool {
    let is_key = |(at, _): (usize, _)| {
        let rest = &code[at + 1..];
        let ends = |key: &str| {
            rest.strip_prefix(key)
                .is_some_and(|it| it.starts_with(['"', '\\']))
        };
        KEYS.iter().any(|key| ends(key))
    };
    code.match_indices('"').any(is_key)
}

/// The source files of a layer without its tests.
fn files(source: &Path, layer: &str) -> Vec<std::path::PathBuf> {
    let alone = source.join(format!("{layer}.rs"));
    if alone.exists() {
        return vec![alone];
    }
    let mut files = Vec::new();
    let mut folders = vec![source.join(layer)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy();
            if name == "tests" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// A source without comments and inline tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| match line.find("//") {
        Some(at) => &line[..at],
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The names after `crate::`, also those in braces.
fn imported(code: &str) -> BTreeSet<String> {
    imported_below(code, "crate::")
}

fn imported_below(code: &str, path: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(path) {
        let rest = &code[at + path.len()..];
        match rest.strip_prefix('{') {
            None => drop(names.insert(name(rest))),
            Some(tree) => {
                let mut depth = 0;
                let mut begins = true;
                for (at, character) in tree.char_indices() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => begins = true,
                        _ if begins && !character.is_whitespace() => {
                            names.insert(name(&tree[at..]));
                            begins = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

fn name(path: &str) -> String {
    let ends = |c: char| !(c.is_alphanumeric() || c == '_');
    path.split(ends).next().unwrap_or_default().to_owned()
}

#[test]
fn imports_are_found_with_and_without_braces() {
    let code = "use crate::{a::{b, c}, d,\n e::f};\nfn x() { crate::g::h(); }";
    let found: Vec<_> = imported(code).into_iter().collect();
    assert_eq!(found, ["a", "d", "e", "g"]);
}
