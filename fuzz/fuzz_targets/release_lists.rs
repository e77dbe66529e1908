//! `release::fuzz::lists`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    release::fuzz::lists(input);
});
