//! Privileged tests on real programs: they drive a built release from outside, one suite at a time.

mod options;
mod suites;

mod rules;

mod checkout;
mod cluster;
mod control_plane;
mod daemon;
mod distro_table;
mod drivers;
mod node;
mod programs;
mod registry;
mod sandbox;
mod single_node;

mod file_server;
mod guest;
mod http;
mod kubectl_plugin;
mod page_table;
mod pages;
mod plumbing;
mod pool;
mod report;
mod sh;
mod signing_key;
mod test_env;
mod vpn;

use std::{ffi::OsString, io::Write as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use clap::Parser;

use crate::{
    node::init,
    options::{Options, Suite},
    programs::{emulation::Emulation, old_kernel},
    report::{Report, say},
    suites::{bench, plugins},
    test_env::TestEnv,
};

/// Test a release on real programs; needs root
#[derive(Debug, Parser)]
#[command(
    name = "e2e",
    after_help = "Example:\n  e2e cluster --dist dist --install"
)]
struct Arguments {
    /// Suite to run
    #[arg(value_enum)]
    suite: Suite,
    #[command(flatten)]
    options: Options,
}

/// The suites start this program again in other roles, chosen by its first argument: a device plugin, a node's first process…
fn main() -> ExitCode {
    if let Some(outcome) = drivers::run_by_name(std::env::args_os().skip(1)) {
        return exit_code(outcome.map(|()| ExitCode::SUCCESS));
    }
    if let Some(args) = args_after(old_kernel::NAME) {
        return exit_code(old_kernel::run(args).map(|never| match never {}));
    }
    if let Some(suites) = args_after(programs::BUILD) {
        return exit_code(programs::build_for(suites).map(|()| ExitCode::SUCCESS));
    }
    if args_after(bench::driver::NAME).is_some() {
        return exit_code(bench::driver::run().map(|()| ExitCode::SUCCESS));
    }
    if args_after(bench::cni_plugins::NAME).is_some() {
        return exit_code(bench::cni_plugins::run().map(|()| ExitCode::SUCCESS));
    }
    if args_after(plugins::cell::NAME).is_some() {
        return exit_code(plugins::cell::run().map(|()| ExitCode::SUCCESS));
    }
    let directories = args_after(init::NAME).and_then(|mut args| args.next());
    let outcome = match (rules::recorder::program(), directories) {
        (Some(program), _) => rules::recorder::run(&program),
        (None, Some(directories)) => init::run(Path::new(&directories)).map(|()| ExitCode::SUCCESS),
        (None, None) => run(&Arguments::parse()),
    };
    exit_code(outcome)
}

fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // With stderr closed there is no place left for the error.
            let _ = writeln!(std::io::stderr(), "e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The arguments that follow a first argument of this name, as in `e2e node-init DIRECTORIES`.
fn args_after(name: &str) -> Option<impl Iterator<Item = OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == name).then_some(arguments)
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let dist = match &arguments.options.dist {
        Some(dist) => dist,
        None if arguments.options.table => return rules::print().map(|()| ExitCode::SUCCESS),
        // The suite uses nothing of a release then.
        None => programs_of(arguments).context("name the directory of the release with --dist")?,
    };
    let passed = test(arguments, dist)?;
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the directory of the programs under test where they are not a release's.
fn programs_of(arguments: &Arguments) -> Option<&Path> {
    match arguments.suite {
        Suite::Rules => arguments.options.peer_alone(),
        Suite::Plugins => arguments.options.plugins.as_deref(),
        _ => None,
    }
}

/// Runs a suite; returns whether all its checks passed.
fn test(arguments: &Arguments, dist: &Path) -> anyhow::Result<bool> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "these tests make namespaces and start container runtimes: run them as root"
    );
    let (suite, options) = (arguments.suite, &arguments.options);
    programs::ensure(suite.needs(&options.bench), options.install)?;
    let arch = options.arch.as_deref().unwrap_or(test_env::arch());
    let is_foreign = arch != test_env::arch();
    anyhow::ensure!(
        !is_foreign || suite.runs_bare_programs(),
        "suite {} runs images, which are for this machine's architecture; with --arch run service, netns, plugins, rules or faults",
        suite.name()
    );
    let env = TestEnv::new(&suite.name(), dist, arch, options.install)?;
    let _emulation = is_foreign
        .then(|| Emulation::start(arch, options.install))
        .transpose()?;
    let mut report = Report::new();
    // A failed check is already reported, and counts in `close`.
    let _ = suite.run(&env, options, &mut report);
    let passed = report.close();
    if !passed {
        say(&format!("logs: {}", env.dir.join("log").display()));
    }
    Ok(passed)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Arguments;

    /// The options of all suites are one command, so two of them may not share a name.
    #[test]
    fn options_of_the_suites_fit_together() {
        Arguments::command().debug_assert();
    }
}
