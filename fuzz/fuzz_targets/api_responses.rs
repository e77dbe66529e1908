//! `api::fuzz::responses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    api::fuzz::responses(input);
});
