//! Checks of every reader of outside bytes, one file each, for any bytes.
//!
//! The fuzz targets of `fuzz/` call these functions with generated inputs; the test below calls
//! them with every file of `fuzz/corpus`. A check that fails panics.

mod config;
mod edit;
mod index;
mod overflow;
mod relay;
mod scan;
mod splitter;
mod talk;
mod usage;

pub(crate) type Check = fn(&[u8]);

/// The targets by name; each has a folder of that name in `fuzz/corpus`.
pub(crate) const TARGETS: &[(&str, Check)] = &[
    ("index", index::check),
    ("scan", scan::check),
    ("edit", edit::check),
    ("splitter", splitter::check),
    ("usage", usage::check),
    ("overflow", overflow::check),
    ("config", config::check),
];

/// The first bytes of an input, which decide how the rest is used; a missing byte is 0.
fn split(data: &[u8], first: usize) -> (Vec<u8>, &[u8]) {
    let (head, rest) = data.split_at(first.min(data.len()));
    let mut head = head.to_vec();
    head.resize(first, 0);
    (head, rest)
}

/// The same bytes in pieces whose lengths follow from `seed`.
fn pieces(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut pieces = Vec::new();
    let (mut rest, mut step) = (bytes, usize::from(seed));
    while !rest.is_empty() {
        step = (step * 29 + 7) % 251;
        let (piece, more) = rest.split_at((1 + step % [1, 3, 17, 80][step % 4]).min(rest.len()));
        pieces.push(piece);
        rest = more;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::TARGETS;

    #[test]
    fn every_file_of_the_fuzz_corpus_passes() {
        for (target, check) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
            let entries = fs::read_dir(folder.join(target)).unwrap();
            let files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            assert!(!files.is_empty(), "no corpus for {target}");
            for file in files {
                eprintln!("{}", file.display());
                check(&fs::read(&file).unwrap());
            }
        }
    }
}
