//! The release pipeline: `cargo xtask <command>`, one file per command in `cmd/`.
//!
//! It links no program of the workspace but shares a library with one: cargo builds the programs, and this one reads the built files.

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

// The library has what `multus-airgap` shares; these modules are used everywhere here.
use airgap::{charts, elf, plugin_archives, release, tree, ui};

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
