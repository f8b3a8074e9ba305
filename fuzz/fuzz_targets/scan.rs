//! See `tests/it/corpus/scan.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("scan", data));
