//! `node::fuzz::imports`.
#![no_main]

use std::sync::LazyLock;

/// The process ends without a drop of it: `cargo xtask fuzz` removes the directory of temporary files.
static DIR: LazyLock<tempfile::TempDir> =
    LazyLock::new(|| tempfile::tempdir().expect("a directory for temporary files"));

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    node::fuzz::imports(DIR.path(), input);
});
