//! `lock::fuzz::locks` of the program `xtask`, whose reader is a file that needs no other one of the program.
#![no_main]

#[expect(dead_code, reason = "a fuzz target calls the reader alone")]
#[path = "../../xtask/src/lock.rs"]
mod lock;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    lock::fuzz::locks(input);
});
