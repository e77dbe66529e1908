//! `release::fuzz::sboms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    release::fuzz::sboms(input);
});
