//! `http::fuzz::responses` of the program `shim`, whose reader is a file that needs no other one of the program.
#![no_main]

#[expect(dead_code, reason = "a fuzz target calls the reader alone")]
#[path = "../../shim/src/http.rs"]
mod http;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    http::fuzz::responses(input);
});
