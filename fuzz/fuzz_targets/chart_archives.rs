//! `chart::fuzz::archives`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    chart::fuzz::archives(&testkit::fuzz::tar::with_checksums(input));
});
