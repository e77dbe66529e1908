//! The release pipeline: `cargo xtask <command>`, one file per command in `cmd/`.
//!
//! It links no program of the workspace; programs are built by cargo and looked at from outside.

mod arch;
mod charts;
mod cmd;
mod cure;
mod elf;
mod fetch;
mod lock;
mod login;
mod project;
mod release;
mod sets;
mod shipped;
mod talk;
mod toolchain;
mod tree;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use cmdline::BAD_USAGE;

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
    Download(cmd::download::Args),
    Build(cmd::build::Args),
    Images(cmd::images::Args),
    Chart(cmd::chart::Args),
    Generate(cmd::generate::Args),
    Airgap(cmd::airgap::Args),
    Bench(cmd::bench::Args),
    Dist(cmd::dist::Args),
    Verify(cmd::verify::Args),
    Test(cmd::test::Args),
    E2e(cmd::e2e::Args),
    Reproduce(cmd::reproduce::Args),
    Lint(cmd::lint::Args),
    Ci(cmd::ci::Args),
}

fn main() -> ExitCode {
    let cli: Cli = match cmdline::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(wrong) => {
            talk::say(&format!("error: {wrong}"));
            return ExitCode::from(BAD_USAGE);
        }
    };
    let result = match cli.command {
        Command::Download(args) => cmd::download::run(&args),
        Command::Build(args) => cmd::build::run(&args),
        Command::Images(args) => cmd::images::run(&args),
        Command::Chart(args) => cmd::chart::run(&args),
        Command::Generate(args) => cmd::generate::run(&args),
        Command::Airgap(args) => cmd::airgap::run(&args),
        Command::Bench(args) => cmd::bench::run(&args),
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
            let cure = cure::of(&error).map_or_else(String::new, |cure| format!("; {cure}"));
            talk::say(&format!("error: {error:#}{cure}"));
            ExitCode::FAILURE
        }
    }
}

/// The whole command line, for its manual.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            let is_leaf = command.get_subcommands().next().is_none();
            let help = command.get_after_help().map(ToString::to_string);
            let shows = help.is_some_and(|help| help.contains("  cargo xtask "));
            assert!(shows || !is_leaf, "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }
}
