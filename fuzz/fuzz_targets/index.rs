//! See `tests/it/corpus/index.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("index", data));
