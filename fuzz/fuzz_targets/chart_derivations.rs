//! `chart::fuzz::derivations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    chart::fuzz::derivations(input);
});
