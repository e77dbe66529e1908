//! `registry::fuzz::challenges`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    registry::fuzz::challenges(input);
});
