//! See `tests/it/corpus/overflow.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| plimsoll_fuzz::check("overflow", data));
