//! `daemon::fuzz::states`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    daemon::fuzz::states(input);
});
