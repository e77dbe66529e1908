//! `ipam::fuzz::blocks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ipam::fuzz::blocks(input);
});
