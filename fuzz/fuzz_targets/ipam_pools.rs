//! `ipam::fuzz::pools`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ipam::fuzz::pools(input);
});
