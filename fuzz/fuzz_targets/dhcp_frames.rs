//! `dhcp::fuzz::frames`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    dhcp::fuzz::frames(input);
});
