//! `plugins::fuzz::configurations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    plugins::fuzz::configurations(input);
});
