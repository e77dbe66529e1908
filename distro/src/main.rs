//! `multus-distro`: carries the charts and stages them for an unmodified K3s or RKE2.

mod assets;
mod boot_program;
mod commands;
mod detect;
mod doctor;
mod images;
mod manifest;
mod node_vpn;
mod plan;
mod service;
mod settings;
mod specifiers;
mod stage;
mod trusted_key;
mod unit;

use std::process::ExitCode;

use api::version;
use clap::{Parser, Subcommand};
use cmdline::VersionFlag;

use crate::commands::PREFIX;

/// Multus for an unmodified K3s or RKE2
#[derive(Debug, Parser)]
#[command(
    name = "multus-distro",
    version = version::text(),
    disable_version_flag = true,
    disable_help_subcommand = true,
    after_help = "Examples:\n  multus-distro install                              on each node, with systemd\n  multus-distro run --multus -- k3s server           without systemd\n  multus-distro doctor\n  multus-distro chart get rke2-multus --out rke2-multus.tgz"
)]
struct Arguments {
    #[command(flatten)]
    _version: VersionFlag,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put charts and manifest where the distro looks for them
    #[command(hide = true)]
    Stage(commands::stage::StageArgs),
    /// Have the distro remove what was staged
    #[command(hide = true)]
    Unstage(commands::stage::UnstageArgs),
    /// Stage on a server, then become the distro
    #[command(
        after_help = "Examples:\n  multus-distro run --multus -- k3s server --data-dir /data/k3s\n  multus-distro run --multus -- k3s agent --server https://10.0.0.1:6443"
    )]
    Run(commands::run::Args),
    /// The embedded charts
    #[command(subcommand)]
    Chart(commands::chart::Command),
    /// The images that the charts name
    #[command(subcommand)]
    Images(commands::images::Command),
    /// Check what is staged and installed on this node, byte by byte
    Verify(commands::verify::Args),
    /// Start the distro through this program, with systemd
    Install(commands::install::Args),
    /// Undo install: delete the drop-in, unstage, and end the use of the VPN
    Uninstall(commands::uninstall::Args),
    /// Nodes that meet over a VPN
    #[command(subcommand)]
    Vpn(commands::vpn::Command),
    /// Report what is wrong on this node, and how to fix it
    Doctor(commands::doctor::Args),
    /// Print the version, with the commit and date of the release
    Version(commands::version::Args),
}

fn main() -> ExitCode {
    let arguments: Arguments = match cmdline::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(line) => {
            cmdline::report(PREFIX, &node_vpn::auth::masked(&line));
            return ExitCode::from(cmdline::BAD_USAGE);
        }
    };
    let outcome = match arguments.command {
        Command::Stage(args) => commands::stage::run(&args),
        Command::Unstage(args) => commands::stage::run_unstage(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Chart(command) => commands::chart::run(&command),
        Command::Images(command) => commands::images::run(&command),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Install(args) => commands::install::run(&args),
        Command::Uninstall(args) => commands::uninstall::run(&args),
        Command::Vpn(command) => commands::vpn::run(&command),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Version(args) => commands::version::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cmdline::fail_with_hint(PREFIX, &error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// `UPDATE_EXPECT=1 cargo test` writes the pages that a release ships.
    #[test]
    fn pages_match_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example() {
        cmdline::pages::check_examples(&Arguments::command(), "multus-distro");
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("multus-distro", |args| {
            let args = std::iter::once("multus-distro".to_owned()).chain(args);
            let parsed = Arguments::try_parse_from(args);
            parsed.map(drop).map_err(|error| error.to_string())
        });
    }
}
