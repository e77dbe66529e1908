//! `netlink::fuzz::datagrams`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    netlink::fuzz::datagrams(input);
});
