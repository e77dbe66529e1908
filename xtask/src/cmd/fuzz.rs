//! `fuzz`: runs the fuzz targets guided by coverage, one after the other, with cargo-fuzz.
//!
//! The targets are functions of the crates, each with its `[[bin]]` in `fuzz/Cargo.toml`; `docs/contributing/testing.md` says more.

mod targets;

use std::{fs, num::NonZero, path::Path, thread};

use anyhow::{Context as _, bail, ensure};
use cmdline::counted;
use xshell::{Shell, cmd};

use crate::{project::Project, ui};

/// The version that `--install` installs.
const CARGO_FUZZ: &str = "0.13.2";
/// Seconds after which an input counts as one that never ends; the machine may be busy.
const TIMEOUT: &str = "30";

/// Run the fuzz targets guided by coverage, each for a while
///
/// It goes on from the inputs in target/fuzz/corpus that former runs found, and from the corpora in the tree.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask fuzz --install\n  cargo xtask fuzz --seconds 600 plan_annotations chart_edits"
)]
pub(crate) struct Args {
    /// Targets to run; all of fuzz/Cargo.toml unless set
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
    /// Run each target for this many seconds
    #[arg(long, value_name = "N", default_value_t = 60)]
    pub(crate) seconds: u64,
    /// Install cargo-fuzz if it is missing
    #[arg(long)]
    pub(crate) install: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let targets = targets::read(&project.root, &args.targets)?;
    let shell = project.shell()?;
    ensure_tool(&project, &shell, args.install)?;
    check_lock(&shell)?;
    let dir = project.target.join("fuzz");
    let jobs = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.to_string();
    let mut failed = Vec::new();
    for target in &targets {
        ui::note(&format!("{target}: {} s", args.seconds));
        let [found, seeds] = corpora(&project.root, &dir, target)?;
        let artifacts = dir.join("artifacts").join(target).join("");
        fs::create_dir_all(&artifacts)
            .with_context(|| format!("cannot make {}", artifacts.display()))?;
        let options = [
            format!("-max_total_time={}", args.seconds),
            format!("-timeout={TIMEOUT}"),
            format!("-artifact_prefix={}", artifacts.display()),
        ];
        // The pinned toolchain does: instrumentation for coverage needs no nightly one, unlike sanitizers.
        let run = cmd!(
            shell,
            "cargo fuzz run --sanitizer none --fuzz-dir fuzz --target-dir {dir} --jobs {jobs} {target} {found} {seeds} -- {options...}"
        );
        if run.quiet().run().is_err() {
            failed.push(target.as_str());
        }
    }
    if !failed.is_empty() {
        bail!(
            "{} failed ({}): docs/contributing/testing.md says what to do with a finding",
            counted(failed.len(), "fuzz target"),
            failed.join(", ")
        );
    }
    Ok(())
}

/// Returns the directories that a target takes inputs from: of former runs, to which this one adds, and of the tree.
fn corpora(root: &Path, dir: &Path, target: &str) -> anyhow::Result<[String; 2]> {
    let found = dir.join("corpus").join(target);
    fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    let seeds = root.join("fuzz/corpus").join(target);
    Ok([found, seeds].map(|path| path.display().to_string()))
}

/// Finds cargo-fuzz, or installs it.
fn ensure_tool(project: &Project, shell: &Shell, install: bool) -> anyhow::Result<()> {
    let tools = project.cache_dir().join("tools");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.set_var("PATH", format!("{}:{path}", tools.join("bin").display()));
    let found = cmd!(shell, "cargo fuzz --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run();
    if found.is_ok() {
        return Ok(());
    }
    ensure!(
        install,
        "cargo-fuzz is not installed: run `cargo install --locked cargo-fuzz@{CARGO_FUZZ}`, or add --install"
    );
    ui::note("installing cargo-fuzz");
    cmd!(
        shell,
        "cargo install --quiet --locked --root {tools} cargo-fuzz@{CARGO_FUZZ}"
    )
    .quiet()
    .run()
    .context("cannot install cargo-fuzz")
}

/// Fails when `fuzz/Cargo.lock` is not up to date: cargo-fuzz has no `--locked`.
pub(crate) fn check_lock(shell: &Shell) -> anyhow::Result<()> {
    cmd!(
        shell,
        "cargo metadata --quiet --locked --format-version 1 --manifest-path fuzz/Cargo.toml"
    )
    .quiet()
    .ignore_stdout()
    .run()
    .context(
        "fuzz/Cargo.lock is not up to date: run `cp Cargo.lock fuzz/ && cargo update --workspace --manifest-path fuzz/Cargo.toml`",
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn nights_go_on_from_each_other() {
        let text = include_str!("../../../.github/workflows/nightly.yaml");
        let (_, job) = text.split_once("\n  fuzz:\n").unwrap();
        let (job, _) = job.split_once("\n  deny:\n").unwrap();
        let position = |step: &str| {
            let found = job.find(step);
            found.unwrap_or_else(|| panic!("there is no {step}: {job}"))
        };
        // The artifact has the directory that all of its files are in as its own.
        let restored = position(" --name fuzz --dir target/fuzz/corpus;");
        let run = position("cargo xtask fuzz --seconds ");
        let kept = position("          name: fuzz\n          path: target/fuzz/corpus\n");
        let findings = position("path: target/fuzz/artifacts\n");
        assert!(restored < run && run < kept && kept < findings, "{job}");
        assert!(job[run..kept].contains("if: always()"), "{job}");
        assert_eq!(job.matches(": write").count(), 0, "{job}");
    }
}
