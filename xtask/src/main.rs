//! The release pipeline: `cargo xtask <command>`, one file per command in `cmd/`.
//!
//! It links no program of the workspace; programs are built by cargo and looked at from outside.

mod arch;
mod charts;
mod cmd;
mod elf;
mod project;
mod release;
mod talk;
mod toolchain;
mod tree;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Builds, packs and checks a release of multus-rs.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Build(cmd::build::Args),
    Images(cmd::images::Args),
    Chart(cmd::chart::Args),
    Generate(cmd::generate::Args),
    Airgap(cmd::airgap::Args),
    Dist(cmd::dist::Args),
    Verify(cmd::verify::Args),
    Test(cmd::test::Args),
    E2e(cmd::e2e::Args),
    Reproduce(cmd::reproduce::Args),
    Lint(cmd::lint::Args),
    Ci(cmd::ci::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Build(args) => cmd::build::run(&args),
        Command::Images(args) => cmd::images::run(&args),
        Command::Chart(args) => cmd::chart::run(&args),
        Command::Generate(args) => cmd::generate::run(&args),
        Command::Airgap(args) => cmd::airgap::run(&args),
        Command::Dist(args) => cmd::dist::run(&args),
        Command::Verify(args) => cmd::verify::run(&args),
        Command::Test(args) => cmd::test::run(&args),
        Command::E2e(args) => cmd::e2e::run(&args),
        Command::Reproduce(args) => cmd::reproduce::run(&args),
        Command::Lint(args) => cmd::lint::run(&args),
        Command::Ci(args) => cmd::ci::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            talk::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
