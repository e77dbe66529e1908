//! `vpn …`: nodes that meet over a VPN. One file per command.

pub(crate) mod down;
mod hook;
mod plan;
mod run;
mod status;

use super::{note, print};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print every address that the distro would get, and change nothing
    Plan(plan::Args),
    /// Keep the VPN of this node up, and the routes to its pods
    Run(run::Args),
    /// Report the VPN of this node, what is wrong with it, and how to fix it
    Status(status::Args),
    /// End the use of the VPN, and take it down if `vpn run` brought it up
    Down(down::Args),
    /// Note the subnet of this node's pods, for flannel
    #[command(hide = true)]
    Hook(hook::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Plan(args) => plan::run(args),
        Command::Run(args) => run::run(args),
        Command::Status(args) => status::run(args),
        Command::Down(args) => down::run(args),
        Command::Hook(args) => {
            hook::run(args);
            Ok(())
        }
    }
}
