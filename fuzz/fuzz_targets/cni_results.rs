//! `cni::fuzz::results`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    cni::fuzz::results(input);
});
