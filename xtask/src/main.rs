//! The release pipeline: `cargo xtask <command>`, one file per command in `cmd/`.
//!
//! It links no program of the workspace: cargo builds the programs, and this one reads the built files.

mod arch;
mod charts;
mod cmd;
mod difference;
mod elf;
mod fetch;
mod lock;
mod login;
mod pages;
mod plugin_archives;
mod programs;
mod project;
mod release;
mod sbom;
mod sets;
mod toolchain;
mod tree;
mod ui;
mod verify;

use std::process::ExitCode;

/// The beginning of the line about a failure.
const PREFIX: &str = "error";

fn main() -> ExitCode {
    let cli = match cmdline::parse_or_report(PREFIX, std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match cmd::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cmdline::fail_with_hint(PREFIX, &error),
    }
}
