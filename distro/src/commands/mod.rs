//! Subcommands, one file each. Data goes to stdout, talk to stderr.

pub(crate) mod chart;
pub(crate) mod doctor;
pub(crate) mod images;
pub(crate) mod install;
pub(crate) mod server;
pub(crate) mod stage;
pub(crate) mod verify;
pub(crate) mod version;

use std::io::Write;

use anyhow::Context;

/// Writes data.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to stdout")
}
