//! See `tests/it/corpus/splitter.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("splitter", data));
