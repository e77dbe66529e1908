//! `release::fuzz::releases`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    release::fuzz::releases(input);
});
