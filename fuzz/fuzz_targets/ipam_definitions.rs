//! `ipam::fuzz::definitions`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ipam::fuzz::definitions(input);
});
