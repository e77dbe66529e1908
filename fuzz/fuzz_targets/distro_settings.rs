//! `settings::files::fuzz::settings` of the program `distro`, whose reader is a file that needs no other one of the program.
#![no_main]

#[expect(dead_code, reason = "a fuzz target calls the reader alone")]
#[path = "../../distro/src/settings/files.rs"]
mod files;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    files::fuzz::settings(input);
});
