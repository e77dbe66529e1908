//! `vpn::fuzz::wireguard`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    vpn::fuzz::wireguard(input);
});
