//! `plan::fuzz::annotations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    plan::fuzz::annotations(input);
});
