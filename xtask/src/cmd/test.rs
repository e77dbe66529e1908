//! `test`: runs the tests that need nothing but cargo.

use std::{env, thread};

use xshell::cmd;

use crate::{changes, project::Project, ui};

/// Run unit, golden and socket tests; no network, no root
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --since origin/main")]
pub(crate) struct Args {
    /// Only what differs from where the branch left this revision can make these tests fail; the suites that it touches are named
    #[arg(long, value_name = "REVISION")]
    pub(crate) since: Option<String>,
}

/// The environment variable with the number of tests that run at once.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if let Some(revision) = &args.since {
        let suites = changes::since(&project, revision)?.suites;
        let suites = suites.iter().map(String::as_str).collect::<Vec<_>>();
        if !suites.is_empty() {
            let suites = suites.join(" ");
            ui::note(&format!("suites that this change touches: {suites}"));
        }
    }
    let packages = packages(&project, args)?;
    if packages.is_empty() {
        ui::note("no test of a package reads what changed");
        return Ok(());
    }
    let shell = project.shell()?;
    let test = cmd!(shell, "cargo test --locked {packages...}");
    // Most tests wait for programs and for time limits, not for a processor.
    let test = match (env::var_os(TEST_THREADS), thread::available_parallelism()) {
        (None, Ok(processors)) => test.env(TEST_THREADS, (3 * processors.get()).to_string()),
        _ => test,
    };
    test.quiet().run()?;
    Ok(())
}

/// Builds the tests, and e2e beside them: the last minute of its build is one thread.
pub(crate) fn build_with_e2e(project: &Project, args: &Args) -> anyhow::Result<()> {
    let packages = packages(project, args)?;
    let shell = project.shell()?;
    cmd!(
        shell,
        "cargo build --locked --bins --tests {packages...} --package e2e"
    )
    .quiet()
    .run()?;
    Ok(())
}

/// Returns the options of cargo that choose the packages to test: all of them, or those that a change touches.
fn packages(project: &Project, args: &Args) -> anyhow::Result<Vec<String>> {
    let Some(revision) = &args.since else {
        return Ok(vec!["--workspace".to_owned()]);
    };
    let touched = changes::since(project, revision)?;
    let packages = touched.packages.into_iter();
    Ok(packages
        .map(|package| format!("--package={package}"))
        .collect())
}
