//! See `tests/it/corpus/config.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("config", data));
