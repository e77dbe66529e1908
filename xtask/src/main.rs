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

use std::{
    env,
    ffi::OsStr,
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
};

// These modules of the libraries are used everywhere here.
use airgap::ui;
use release::{charts, description, elf, tree};

/// The beginning of the line about a failure.
const PREFIX: &str = "error";

fn main() -> ExitCode {
    if let Some(mut command) = without_package() {
        let error = anyhow::Error::from(command.exec()).context("cannot start xtask again");
        return cmdline::fail_with_hint(PREFIX, &error);
    }
    let cli = match cmdline::parse_or_report(PREFIX, std::env::args_os()) {
        Ok(cli) => cli,
        Err(status) => return status,
    };
    match cmd::run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cmdline::fail_with_hint(PREFIX, &error),
    }
}

/// Returns this program without the variables in which `cargo run` names its package. Build scripts such as that of `ring` read variables of
/// these names, so what depends on them would be compiled anew after each change between `cargo xtask` and other commands of cargo.
fn without_package() -> Option<Command> {
    let manifest = env::var_os(project::RUN_BY)?;
    let mut command = Command::new(env::current_exe().ok()?);
    command.args(env::args_os().skip(1));
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        command.env_remove(name);
    }
    command.env(project::MANIFEST, manifest);
    Some(command)
}

/// Returns whether `cargo run` says with this variable what package it runs.
fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name == "OUT_DIR" || name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_build_scripts_read_are_those_of_the_package() {
        let is_removed = |name: &str| is_of_package(OsStr::new(name));
        for name in [
            "CARGO_MANIFEST_DIR",
            "CARGO_PKG_NAME",
            "CARGO_PKG_VERSION_MAJOR",
            "OUT_DIR",
        ] {
            assert!(is_removed(name), "{name}");
        }
        for name in [
            "CARGO_TARGET_DIR",
            "CARGO_HOME",
            "CARGO_INCREMENTAL",
            "PATH",
        ] {
            assert!(!is_removed(name), "{name}");
        }
    }
}
