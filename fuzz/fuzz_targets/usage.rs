//! See `tests/it/corpus/usage.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("usage", data));
