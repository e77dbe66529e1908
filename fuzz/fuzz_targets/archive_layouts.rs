//! `archive::fuzz::layouts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    archive::fuzz::layouts(input);
});
