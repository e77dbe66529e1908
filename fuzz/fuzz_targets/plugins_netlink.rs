//! `plugins::fuzz::netlink`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    plugins::fuzz::netlink(input);
});
