//! `ipam::fuzz::requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    ipam::fuzz::requests(input);
});
