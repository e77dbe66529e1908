//! Privileged tests on real programs: they drive a built release from outside, one level at a time.

mod cluster;
mod control;
mod cri;
mod init;
mod inspect;
mod kubelet;
mod lan;
mod layout;
mod levels;
mod node;
mod objects;
mod pki;
mod report;
mod runtime;
mod sh;
mod tools;
mod workplace;

use std::{
    ffi::OsString,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;

use crate::{
    levels::Level,
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
    #[arg(long)]
    dist: PathBuf,
    /// Get whatever is missing
    #[arg(long)]
    install: bool,
}

fn main() -> ExitCode {
    let outcome = match as_init() {
        Some(folders) => init::run(Path::new(&folders)).map(|()| true),
        None => test(&Arguments::parse()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to be told when stderr is closed.
            let _ = writeln!(std::io::stderr(), "e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A node's first process is this program, started by a test: `e2e node-init FOLDERS`.
fn as_init() -> Option<OsString> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == init::NAME).then(|| arguments.next())?
}

fn test(arguments: &Arguments) -> anyhow::Result<bool> {
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "these tests make namespaces and start container runtimes: run them as root"
    );
    let level = arguments.level;
    tools::ensure(level.needs(), arguments.install)?;
    let work = Workplace::new(level.name(), &arguments.dist)?;
    let mut report = Report::new();
    // A failed check has been reported, and closes the report below.
    let _ = level.run(&work, &mut report);
    let is_well = report.close();
    if !is_well {
        say(&format!("logs: {}", work.dir.join("log").display()));
    }
    Ok(is_well)
}
