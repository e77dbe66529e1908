//! `multus-distro`: carries the charts and puts them in front of an unmodified K3s or RKE2.

mod assets;
mod commands;
mod config;
mod cure;
mod doctor;
mod images;
mod manifest;
mod place;
mod plan;
mod program;
mod service;
mod stage;
mod unit;
mod usage;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};
use cmdline::BAD_USAGE;

use crate::usage::BadUsage;

/// Multus for an unmodified K3s or RKE2
#[derive(Debug, Parser)]
#[command(
    name = "multus-distro",
    version,
    disable_help_subcommand = true,
    after_help = "Examples:\n  multus-distro server --multus -- k3s server\n  multus-distro stage --multus --distro k3s --data-dir /var/lib/rancher/k3s\n  multus-distro chart get rke2-multus --out rke2-multus.tgz"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put charts and manifest where the distro looks for them
    Stage(commands::stage::Args),
    /// Have the distro take away what was staged
    Unstage(commands::stage::Undo),
    /// Stage, then become the distro's server
    #[command(
        after_help = "Example:\n  multus-distro server --multus -- k3s server --data-dir /data/k3s"
    )]
    Server(commands::server::Args),
    /// Become the distro's agent
    #[command(
        after_help = "Example:\n  multus-distro agent --multus -- k3s agent --server https://10.0.0.1:6443"
    )]
    Agent(commands::server::Args),
    /// The embedded charts
    #[command(subcommand)]
    Chart(commands::chart::Command),
    /// The images that the charts name
    #[command(subcommand)]
    Images(commands::images::Command),
    /// Check archives, or what is on this node, byte by byte
    Verify(commands::verify::Args),
    /// Start the distro through this program, with systemd
    Install(commands::install::Args),
    /// Say what is wrong on this node, and how to fix it
    Doctor(commands::doctor::Args),
    /// Print the version
    Version(commands::version::Args),
}

fn main() -> ExitCode {
    let arguments: Arguments = match cmdline::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(wrong) => {
            say(&wrong);
            return ExitCode::from(BAD_USAGE);
        }
    };
    let outcome = match arguments.command {
        Command::Stage(args) => commands::stage::run(&args),
        Command::Unstage(args) => commands::stage::undo(&args),
        Command::Server(args) => commands::server::run(&args, true),
        Command::Agent(args) => commands::server::run(&args, false),
        Command::Chart(command) => commands::chart::run(&command),
        Command::Images(command) => commands::images::run(&command),
        Command::Verify(args) => commands::verify::run(&args),
        Command::Install(args) => commands::install::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Version(args) => commands::version::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let cure = cure::of(&error).map_or_else(String::new, |cure| format!("; {cure}"));
            say(&format!("{error:#}{cure}"));
            let is_usage = error.is::<BadUsage>();
            ExitCode::from(if is_usage { BAD_USAGE } else { 1 })
        }
    }
}

/// A line for people. Nobody is left to be told when stderr is closed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "multus-distro: {text}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Shipped beside the program; `UPDATE_EXPECT=1 cargo test` writes them.
    #[test]
    fn pages_are_those_of_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example() {
        fn check(command: &clap::Command) {
            let is_leaf = command.get_subcommands().next().is_none();
            let help = command.get_after_help().map(ToString::to_string);
            let shows = help.is_some_and(|help| help.contains("  multus-distro "));
            assert!(shows || !is_leaf, "{}", command.get_name());
            command.get_subcommands().for_each(check);
        }
        let command = Arguments::command();
        command.clone().debug_assert();
        check(&command);
    }
}
