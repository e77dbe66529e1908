//! `archive::fuzz::tars`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    archive::fuzz::tars(&testkit::fuzz::tar::with_checksums(input));
});
