//! `node::fuzz::statuses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    node::fuzz::statuses(input);
});
