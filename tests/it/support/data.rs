//! Recorded requests, answers, errors and token counts. They are not part of the repository: they
//! are beside it, or where `PLIMSOLL_DATA` points. Without them everything here is empty, and
//! callers use generated conversations.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// A recorded file.
#[derive(Clone, Debug)]
pub(crate) struct RecordedFile {
    /// The file's name without its directory.
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
}

/// A recorded answer of a provider with its metadata.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    /// From the index of the recordings: `provider`, `status`, `stream`, `usage`.
    pub(crate) about: Value,
}

/// A small request with the prompt tokens that the provider reported.
#[derive(Clone, Debug)]
pub(crate) struct TokenPair {
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) request: Vec<u8>,
}

/// A request of a long session, with the provider's token count.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct MeasuredStep {
    /// The request has `messages[..assistant_message]`, a system prompt and tools.
    pub(crate) assistant_message: usize,
    pub(crate) prompt_tokens: u64,
    pub(crate) completion_tokens: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct TokenTruth {
    pub(crate) pairs: Vec<TokenPair>,
    /// Name of the request in [`requests`] to which the steps belong.
    pub(crate) session: String,
    pub(crate) steps: Vec<MeasuredStep>,
}

/// Whole request bodies of recorded sessions.
pub(crate) fn requests() -> Vec<RecordedFile> {
    folder("requests", "json")
}

/// Request bodies with rare fields, roles or parts.
pub(crate) fn unusual() -> Vec<RecordedFile> {
    folder("requests/unusual", "json")
}

/// The request of that name, given without its file ending.
pub(crate) fn request(name: &str) -> Option<Vec<u8>> {
    let path = root()?.join("requests").join(name).with_extension("json");
    fs::read(path).ok()
}

pub(crate) fn responses() -> Vec<Response> {
    let Some(root) = root() else {
        return Vec::new();
    };
    let about = read_json(&root.join("index.json"));
    let files = folder("responses", "json")
        .into_iter()
        .chain(folder("responses", "sse"));
    files
        .map(|RecordedFile { name, body }| Response {
            about: about_file(&about, &format!("responses/{name}")),
            name,
            body,
        })
        .collect()
}

/// Bodies of overflow errors and near misses: `http_status`, `context_overflow`, `body`.
pub(crate) fn errors() -> Vec<(String, Value)> {
    folder("errors", "json")
        .into_iter()
        .map(|file| {
            let value = serde_json::from_slice(&file.body).expect("a recorded error is JSON");
            (file.name, value)
        })
        .collect()
}

pub(crate) fn token_truth() -> Option<TokenTruth> {
    #[derive(Deserialize)]
    struct TokenTruthLine {
        provider: String,
        model: String,
        prompt_tokens: u64,
        request: Box<RawValue>,
    }
    #[derive(Deserialize)]
    struct Steps {
        request: String,
        steps: Vec<MeasuredStep>,
    }
    let folder = root()?.join("token-truth");
    let pairs = fs::read_to_string(folder.join("pairs.jsonl")).ok()?;
    let steps = fs::read(folder.join("coding-pi-899-messages.steps.json")).ok()?;
    let steps: Steps = serde_json::from_slice(&steps).expect("recorded steps are as described");
    let pairs = pairs.lines().map(|line| {
        let line: TokenTruthLine =
            serde_json::from_str(line).expect("a recorded pair is as described");
        TokenPair {
            provider: line.provider,
            model: line.model,
            prompt_tokens: line.prompt_tokens,
            request: line.request.get().as_bytes().to_vec(),
        }
    });
    let session = Path::new(&steps.request).file_stem()?.to_str()?.to_owned();
    Some(TokenTruth {
        pairs: pairs.collect(),
        session,
        steps: steps.steps,
    })
}

/// The folder of the recordings; prints once where it was not found.
fn root() -> Option<&'static Path> {
    static ROOT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = ROOT.get_or_init(|| {
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
        let place = std::env::var_os("PLIMSOLL_DATA").map_or_else(beside, PathBuf::from);
        if place.join("requests").is_dir() {
            return Some(place);
        }
        eprintln!(
            "recorded data not found at {}; going on with generated conversations",
            place.display()
        );
        None
    });
    found.as_deref()
}

/// The files of a folder with that ending, sorted by name. A folder of the recordings must not be
/// empty.
fn folder(name: &str, ending: &str) -> Vec<RecordedFile> {
    let Some(root) = root() else {
        return Vec::new();
    };
    let entries = fs::read_dir(root.join(name)).expect("a folder of the recordings can be read");
    let mut files: Vec<RecordedFile> = entries
        .map(|entry| {
            entry
                .expect("a folder of the recordings can be read")
                .path()
        })
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .filter(|path| path.file_stem().is_some_and(|stem| stem != "index"))
        .map(|path| RecordedFile {
            name: path
                .file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
            body: fs::read(&path).expect("a recorded file can be read"),
        })
        .collect();
    assert!(!files.is_empty(), "no {ending} files in {name}");
    files.sort_by(|a, b| a.name.cmp(&b.name));
    files
}

fn read_json(path: &Path) -> Value {
    fs::read(path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or(Value::Null)
}

fn about_file(index: &Value, file: &str) -> Value {
    let mut all = index.as_array().into_iter().flatten();
    all.find(|entry| entry["file"] == file)
        .cloned()
        .unwrap_or(Value::Null)
}
