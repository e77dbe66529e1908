//! The release pipeline: `cargo xtask <command>`, one file per command in `cmd/`.
//!
//! It links no program of the workspace: cargo builds them, and this one reads the built files. It has the commands of one, `airgap`, as its
//! own.

mod arch;
mod assets;
mod budgets;
mod build_environment;
mod c_compiler;
mod changelog;
mod changes;
mod cmd;
mod difference;
mod fetch;
mod lock;
mod macos_sdk;
mod pages;
mod programs;
mod project;
mod release_line;
mod sbom;
mod sysroot;
mod toolchain;
mod workstations;

use std::process::ExitCode;

// These modules of the libraries are used everywhere here.
use airgap::ui;
use release::{charts, description, elf, tree};

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
