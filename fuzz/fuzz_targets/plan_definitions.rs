//! `plan::fuzz::definitions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    plan::fuzz::definitions(input);
});
