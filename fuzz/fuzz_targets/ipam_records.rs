//! `ipam::fuzz::records`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ipam::fuzz::records(input);
});
