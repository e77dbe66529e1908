//! The command line: one file per command, with its options and its `run`.

pub(crate) mod airgap;
pub(crate) mod bench;
pub(crate) mod build;
pub(crate) mod chart;
pub(crate) mod ci;
pub(crate) mod dist;
pub(crate) mod download;
pub(crate) mod e2e;
pub(crate) mod fuzz;
pub(crate) mod generate;
pub(crate) mod images;
pub(crate) mod lint;
pub(crate) mod release;
pub(crate) mod reproduce;
pub(crate) mod sign;
pub(crate) mod site;
pub(crate) mod size;
pub(crate) mod source;
pub(crate) mod test;
pub(crate) mod verify;

use clap::{Parser, Subcommand};

use ::release::verify::Checkout;

use crate::{budgets, pages, programs, sbom};

/// Builds, packs and checks a release of multus-rs.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_help_subcommand = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Download(download::Args),
    Build(build::Args),
    Images(images::Args),
    Chart(chart::Args),
    Generate(generate::Args),
    Airgap(airgap::Args),
    Bench(bench::Args),
    Dist(dist::Args),
    Sign(sign::Args),
    Verify(verify::Args),
    Release(release::Args),
    Test(test::Args),
    E2e(e2e::Args),
    Reproduce(reproduce::Args),
    Site(site::Args),
    Size(size::Args),
    Source(source::Args),
    Lint(lint::Args),
    Fuzz(fuzz::Args),
    Ci(ci::Args),
}

/// Runs the chosen command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<()> {
    match cli.command {
        Command::Download(args) => download::run(&args),
        Command::Build(args) => build::run(&args),
        Command::Images(args) => images::run(&args),
        Command::Chart(args) => chart::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Airgap(args) => airgap::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Sign(args) => sign::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Release(args) => release::run(&args),
        Command::Test(args) => test::run(&args),
        Command::E2e(args) => e2e::run(&args),
        Command::Reproduce(args) => reproduce::run(&args),
        Command::Site(args) => site::run(&args),
        Command::Size(args) => size::run(&args),
        Command::Source(args) => source::run(&args),
        Command::Lint(args) => lint::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Ci(args) => ci::run(&args),
    }
}

/// Returns what a release of this checkout is compared with besides its own description.
pub(crate) fn checkout() -> Checkout {
    Checkout {
        pages: pages::tree(),
        programs: programs::names().collect(),
        budgets: budgets::of,
        licence: sbom::LICENCE_TEXT,
        vex: sbom::vex,
        crates: sbom::locked,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_command_shows_an_example() {
        cmdline::pages::check_examples(&Cli::command(), "cargo xtask");
    }

    #[test]
    fn every_program_has_its_pages() {
        let tree = pages::tree();
        for path in [
            "man/multus-daemon.1",
            "man/multus-distro-run.1",
            "completions/multus-distro.bash",
            "completions/multus-daemon.fish",
            "completions/_multus-distro",
            "man/kubectl-multus-lint.1",
            "man/multus-airgap-push.1",
            "completions/multus-airgap.bash",
            "completions/kubectl-multus.bash",
        ] {
            let page = tree.get(path).unwrap_or_else(|| panic!("no {path}"));
            assert!(page.len() > 100, "{path}");
        }
        let page = String::from_utf8_lossy(tree.get("man/multus-distro.1").unwrap());
        let version = concat!("\nv", env!("CARGO_PKG_VERSION"), "\n");
        assert!(page.ends_with(version), "{page}");
    }

    #[test]
    fn commands_of_the_pages_are_parsed() {
        let pages = docs::Pages::of_checkout().unwrap();
        pages.check_commands("cargo xtask", |args| {
            // Examples have X and Y where a version has numbers.
            let args = args.into_iter().map(|arg| arg.replace("X.Y.", "5.0."));
            let args = std::iter::once("xtask".to_owned()).chain(args);
            let parsed = Cli::try_parse_from(args);
            parsed.map(drop).map_err(|error| error.to_string())
        });
    }
}
