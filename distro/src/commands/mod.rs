//! One file per command: its options and its `run`. Data goes to stdout, notes and errors go to stderr.

pub(crate) mod chart;
pub(crate) mod doctor;
pub(crate) mod images;
pub(crate) mod install;
pub(crate) mod run;
pub(crate) mod stage;
pub(crate) mod uninstall;
pub(crate) mod verify;
pub(crate) mod version;
pub(crate) mod vpn;

use std::io::{ErrorKind, Write};

use anyhow::Context;

/// The beginning of each line to stderr.
pub(crate) const PREFIX: &str = "multus-distro";

/// Writes data to stdout. A reader that ended, as `head` does, is not a failure: the command does the rest of its work all the same.
fn print(text: &str) -> anyhow::Result<()> {
    let text = cmdline::plain(text, &['\n', '\t']);
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

/// Writes one line for the user to stderr.
fn note(text: &str) {
    cmdline::report(PREFIX, text);
}
