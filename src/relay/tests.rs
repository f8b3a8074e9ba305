//! Recorded streams of real providers, for tests.

use std::path::PathBuf;

/// Name, bytes and reported prompt tokens of each recorded stream; empty if they are not installed.
pub(in crate::relay) fn recordings() -> Vec<(String, Vec<u8>, Option<u64>)> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/data");
    let data = std::env::var_os("PLIMSOLL_DATA").map_or(beside, PathBuf::from);
    let Ok(index) = std::fs::read(data.join("index.json")) else {
        println!("no recorded answers; only generated ones are tested");
        return Vec::new();
    };
    let index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let streams = index.as_array().unwrap().iter().filter_map(|entry| {
        let file = entry["file"].as_str()?;
        let bytes = file
            .ends_with(".sse")
            .then(|| std::fs::read(data.join(file)).unwrap())?;
        let usage = &entry["usage"];
        let prompt = usage["prompt_tokens"].as_u64();
        let prompt = prompt.or_else(|| usage["x_groq.usage"]["prompt_tokens"].as_u64());
        Some((file.to_owned(), bytes, prompt))
    });
    let streams: Vec<_> = streams.collect();
    assert!(streams.len() > 20, "the recorded streams are there");
    streams
}

pub(in crate::relay) fn random_pieces(mut stream: &[u8], mut seed: u64) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    while !stream.is_empty() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (piece, rest) = stream.split_at(stream.len().min((seed >> 33) as usize % 300));
        pieces.push(piece);
        stream = rest;
    }
    pieces
}
