//! `multus-distro`: carries the charts and puts them in front of an unmodified K3s or RKE2.

mod assets;
mod commands;
mod plan;
mod program;
mod stage;

use std::{io::Write, process::ExitCode};

use clap::{Parser, Subcommand};

/// Multus for an unmodified K3s or RKE2
#[derive(Debug, Parser)]
#[command(
    name = "multus-distro",
    version,
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
    /// Remove what was staged
    Unstage(commands::stage::Undo),
    /// Stage, then become the distro's server
    Server(commands::server::Args),
    /// Become the distro's agent
    Agent(commands::server::Args),
    /// The embedded charts
    #[command(subcommand)]
    Chart(commands::chart::Command),
    /// The images that the charts name
    #[command(subcommand)]
    Images(commands::images::Command),
    /// Print the version
    Version(commands::version::Args),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Stage(args) => commands::stage::run(&args),
        Command::Unstage(args) => commands::stage::undo(&args),
        Command::Server(args) => commands::server::run(&args, true),
        Command::Agent(args) => commands::server::run(&args, false),
        Command::Chart(command) => commands::chart::run(&command),
        Command::Images(command) => commands::images::run(&command),
        Command::Version(args) => commands::version::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(std::io::stderr(), "multus-distro: {error:#}");
            ExitCode::FAILURE
        }
    }
}
