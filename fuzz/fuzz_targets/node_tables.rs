//! `node::fuzz::tables`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    node::fuzz::tables(input);
});
