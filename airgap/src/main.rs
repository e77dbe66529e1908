//! `multus-airgap`: checks, explains and moves the archives of releases, for people without a checkout.

use std::{env, path::PathBuf, process::ExitCode};

use airgap::{
    commands::{explain, push, verify},
    ui,
};
use api::version;
use clap::{Parser, Subcommand};
use cmdline::VersionFlag;
use release::source::Source;

/// The prefix of each line about a failure.
const PREFIX: &str = "multus-airgap";

/// Check, explain and move the airgap archives of multus-rs
#[derive(Debug, Parser)]
#[command(
    name = "multus-airgap",
    version = version::text(),
    disable_version_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    after_help = "Examples:\n  multus-airgap verify /media/airgap                                        before anything is done with it\n  multus-airgap push /media/airgap registry.example:5000 --user me          into the registry of the site\n\nExit status: 0 done, 1 failed, 2 wrong command line"
)]
struct Arguments {
    #[command(flatten)]
    _version: VersionFlag,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check a release, or a directory with archives, offline, down to the content of every layer
    ///
    /// A release is checked by its own release.json, whatever version made it: every checksum and mode, every digest of its images, the programs in their layers, its charts wherever they are, its archives, lists and manifests, and the lists of what is inside.
    #[command(
        after_help = "Examples:\n  multus-airgap verify /media/airgap\n  multus-airgap verify dist --json"
    )]
    Verify(verify::Args),
    /// Say what a release, a directory with archives, or a file in it holds
    #[command(
        after_help = "Examples:\n  multus-airgap explain /media/airgap\n  multus-airgap explain multus-airgap-images-arm64.tar --json"
    )]
    Explain(explain::Args),
    /// Send images, with the lists of what is inside of them, and charts to a registry; a second run sends nothing
    ///
    /// Of a directory with archives the images get an index of all architectures that are there; archives hold no charts and no lists.
    #[command(
        after_help = "Examples:\n  multus-airgap push /media/airgap registry.example:5000\n  multus-airgap push dist oci://registry.example/mirror --user me --json\n  SSL_CERT_FILE=/etc/ssl/own-ca.pem multus-airgap push dist registry.example:5000\n  multus-airgap push dist registry.example/team --charts-to helm/team        charts go to registry.example/helm/team/rke2-multus\n  multus-airgap push multus-airgap-images-amd64.tar 127.0.0.1:5000 --plain-http"
    )]
    Push(Push),
    /// Print the version, with the commit and date of the release
    #[command(after_help = "Example:\n  multus-airgap version")]
    Version,
}

#[derive(Debug, clap::Args)]
struct Push {
    /// A release, its airgap directory, or an archive
    from: PathBuf,
    #[command(flatten)]
    options: push::Options,
}

fn main() -> ExitCode {
    let arguments: Arguments = match cmdline::parse_or_report(PREFIX, env::args_os()) {
        Ok(arguments) => arguments,
        Err(status) => return status,
    };
    match run(&arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cmdline::fail_with_hint(PREFIX, &error),
    }
}

fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Verify(args) => verify::run(args),
        Command::Explain(args) => explain::run(args),
        Command::Version => ui::data(&(version::line(PREFIX) + "\n")),
        Command::Push(args) => push::run(&args.options, &Source::of(&args.from)?),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// `UPDATE_EXPECT=1 cargo test` writes the manual pages and completions that are shipped with the program.
    #[test]
    fn manual_pages_and_completions_match_the_command_line() {
        cmdline::pages::check(Arguments::command(), env!("CARGO_MANIFEST_DIR"));
    }

    #[test]
    fn every_command_shows_an_example() {
        cmdline::pages::check_examples(&Arguments::command(), "multus-airgap");
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("multus-airgap", |args| {
            let args = std::iter::once("multus-airgap".to_owned()).chain(args);
            let parsed = Arguments::try_parse_from(args);
            parsed.map(drop).map_err(|error| error.to_string())
        });
    }
}
