//! `node::fuzz::imports`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    node::fuzz::imports(input);
});
