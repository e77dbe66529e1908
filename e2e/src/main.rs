//! Privileged tests on real programs: they drive a built release from outside, one level at a time.

mod api_proxy;
mod bench;
mod cgroup;
mod cluster;
mod control;
mod cri;
mod deploy;
mod desk;
mod direct;
mod drivers;
mod emulation;
mod faults;
mod files;
mod grpc;
mod hashes;
mod http;
mod image;
mod init;
mod inspect;
mod kubelet;
mod lan;
mod layout;
mod leases;
mod levels;
mod node;
mod objects;
mod old_kernel;
mod pki;
mod proxy;
mod published;
mod report;
mod rules;
mod runtime;
mod scene;
mod sh;
mod systemd;
mod tools;
mod workplace;

use std::{
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Parser;

use crate::{
    emulation::Emulation,
    levels::{Level, Scale},
    report::{Report, say},
    workplace::Workplace,
};

/// Test a release on real programs; needs root
#[derive(Debug, Parser)]
#[command(
    name = "e2e",
    after_help = "Example:\n  e2e cluster --dist dist --install"
)]
struct Arguments {
    /// What to test on
    #[arg(value_enum)]
    level: Level,
    /// The release
    #[arg(long, required_unless_present_any = ["table", "peer"])]
    dist: Option<PathBuf>,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
    /// The programs of this architecture, emulated
    #[arg(long)]
    arch: Option<String>,
    /// rules: print which case shows which rule
    #[arg(long)]
    table: bool,
    #[command(flatten)]
    rules: rules::Options,
    #[command(flatten)]
    faults: faults::Options,
    #[command(flatten)]
    scale: Scale,
    #[command(flatten)]
    bench: bench::Options,
}

fn main() -> ExitCode {
    if let Some(ended) = drivers::asked(std::env::args_os().skip(1)) {
        return said(ended.map(|()| ExitCode::SUCCESS));
    }
    if let Some(words) = behind(old_kernel::NAME) {
        return said(old_kernel::run(words).map(|never| match never {}));
    }
    if let Some(words) = behind(bench::api_server::NAME) {
        return said(bench::api_server::run(words).map(|()| ExitCode::SUCCESS));
    }
    if behind(bench::driver::NAME).is_some() {
        return said(bench::driver::run().map(|()| ExitCode::SUCCESS));
    }
    let folders = behind(init::NAME).and_then(|mut words| words.next());
    let outcome = match (rules::recorder::program(), folders) {
        (Some(place), _) => rules::recorder::run(&place),
        (None, Some(folders)) => init::run(Path::new(&folders)).map(|()| ExitCode::SUCCESS),
        (None, None) => asked(&Arguments::parse()),
    };
    said(outcome)
}

fn said(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(error) => {
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(std::io::stderr(), "e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What follows a first argument that tests start this program with, as `e2e node-init FOLDERS`.
fn behind(name: &str) -> Option<impl Iterator<Item = OsString>> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == name).then_some(arguments)
}

fn asked(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let is_rules = matches!(arguments.level, Level::Rules);
    let dist = match &arguments.dist {
        Some(dist) => dist,
        None if arguments.table => return rules::print().map(|()| ExitCode::SUCCESS),
        // The suite uses nothing of a release then.
        None => arguments
            .rules
            .peer_alone()
            .filter(|_| is_rules)
            .context("name the directory of the release with --dist")?,
    };
    let is_well = test(arguments, dist)?;
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn test(arguments: &Arguments, dist: &Path) -> anyhow::Result<bool> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "these tests make namespaces and start container runtimes: run them as root"
    );
    let level = arguments.level;
    tools::ensure(level.needs(&arguments.bench), arguments.install)?;
    let arch = arguments.arch.as_deref().unwrap_or(workplace::arch());
    let is_foreign = arch != workplace::arch();
    anyhow::ensure!(
        !is_foreign || level.is_of_programs(),
        "level {} runs images, which are this machine's: programs alone are tested in service, netns, rules and faults",
        level.name()
    );
    let work = Workplace::new(level.name(), dist, arch)?;
    let _emulation = is_foreign
        .then(|| Emulation::start(arch, arguments.install))
        .transpose()?;
    let mut report = Report::new();
    // A failed check has been reported, and closes the report below.
    let options = levels::Options {
        rules: &arguments.rules,
        faults: &arguments.faults,
        scale: &arguments.scale,
        bench: &arguments.bench,
    };
    let _ = level.run(&work, &options, &mut report);
    let is_well = report.close();
    if !is_well {
        say(&format!("logs: {}", work.dir.join("log").display()));
    }
    Ok(is_well)
}
