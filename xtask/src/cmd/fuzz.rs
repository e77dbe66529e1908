//! `fuzz`: runs the fuzz targets guided by coverage, with cargo-fuzz, and counts their executions.
//!
//! The targets are functions of the crates, each with its `[[bin]]` in `fuzz/Cargo.toml`; `docs/fuzzing.md` says more.

mod dictionary;
mod engine;
mod record;
mod targets;

use std::{
    collections::VecDeque,
    fs,
    io::IsTerminal as _,
    num::NonZero,
    path::{Path, PathBuf},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use cmdline::counted;
use indicatif::{ProgressBar, ProgressStyle};
use xshell::{Shell, cmd};

use self::{
    engine::{Engine, Limit, Outcome},
    record::{Record, Run},
    targets::{Target, Targets},
};
use crate::{project::Project, ui};

/// The version that `--install` installs.
const CARGO_FUZZ: &str = "0.13.2";
/// One process of a target runs for at most this time, and its executions are recorded when it ends.
const SLICE: Duration = Duration::from_mins(5);
/// The most bytes of a target's corpus in the tree.
const CORPUS_BUDGET: u64 = 6 << 10;

/// Run the fuzz targets guided by coverage, and count their executions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask fuzz --install\n  cargo xtask fuzz --seconds 600 plan_annotations chart_edits\n  cargo xtask fuzz --executions 100000000\n  cargo xtask fuzz plan_annotations --input target/fuzz/artifacts/plan_annotations/crash-1234\n  cargo xtask fuzz --check 100000000"
)]
pub(crate) struct Args {
    /// Targets to run; all of fuzz/Cargo.toml unless set
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Run each target for this many seconds
    #[arg(
        long,
        value_name = "N",
        default_value_t = 60,
        conflicts_with = "executions"
    )]
    seconds: u64,
    /// Run each target until it had this many executions on its present sources, those of former runs included
    #[arg(long, value_name = "N")]
    executions: Option<u64>,
    /// Run so many targets at a time; as many as there are cores unless set
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Install cargo-fuzz if it is missing
    #[arg(long)]
    install: bool,
    /// Run one target on this input alone
    #[arg(long, value_name = "FILE", conflicts_with_all = ["executions", "update_corpus"])]
    input: Option<PathBuf>,
    /// Then add to the corpora in the tree what reaches code that they do not reach
    #[arg(long)]
    update_corpus: bool,
    /// Run nothing; fail and name the targets that had fewer executions on their present sources
    #[arg(long, value_name = "N", conflicts_with_all = ["executions", "input", "update_corpus", "install"])]
    check: Option<u64>,
}

impl Args {
    /// Returns the arguments of a run of all targets, each for so long.
    pub(crate) fn all(seconds: u64, install: bool) -> Self {
        Self {
            targets: Vec::new(),
            seconds,
            executions: None,
            jobs: None,
            install,
            input: None,
            update_corpus: false,
            check: None,
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if let Some(minimum) = args.check {
        return check(&project, minimum);
    }
    let targets = Targets::read(&project.root)?.only(&args.targets)?;
    let shell = project.shell()?;
    let dirs = Dirs(project.target.join("fuzz"));
    build(&project, &shell, &targets, &dirs, args)?;
    if let Some(input) = &args.input {
        let [target] = &targets.0[..] else {
            bail!("--input needs the name of one target");
        };
        let program = dirs.program(&target.name)?;
        let input = std::env::current_dir()?.join(input);
        return cmd!(shell, "{program} {input}")
            .quiet()
            .run()
            .with_context(|| format!("{} fails on {}", target.name, input.display()));
    }
    let reports = run_all(&project, &targets, &dirs, args)?;
    let record = Record::read(&record_path(&project))?;
    ui::data(&table(&reports, &targets, &record))?;
    let failures: Vec<_> = reports.iter().filter_map(Report::failure).collect();
    for failure in &failures {
        ui::note(failure);
    }
    ensure!(
        failures.is_empty(),
        "{} failed: docs/fuzzing.md says what to do with a finding",
        counted(failures.len(), "fuzz target")
    );
    if args.update_corpus {
        for target in &targets.0 {
            update_corpus(&project, &dirs, target)?;
        }
    }
    Ok(())
}

/// Fails unless each target had at least so many executions on its present sources; names those that had fewer.
pub(crate) fn check(project: &Project, minimum: u64) -> anyhow::Result<()> {
    let targets = Targets::read(&project.root)?;
    let record = Record::read(&record_path(project))?;
    let lacking: Vec<_> = targets
        .0
        .iter()
        .map(|target| (target, record.executions(&target.name, &target.sources)))
        .filter(|(_, executions)| *executions < minimum)
        .map(|(target, executions)| format!("{:24} {executions:>12}", target.name))
        .collect();
    for line in &lacking {
        ui::note(line);
    }
    ensure!(
        lacking.is_empty(),
        "{} of {} had fewer than {minimum} executions on the present sources: run `cargo xtask fuzz --executions {minimum}`",
        lacking.len(),
        counted(targets.0.len(), "fuzz target")
    );
    ui::note(&format!(
        "each of {} had {minimum} executions or more",
        counted(targets.0.len(), "fuzz target")
    ));
    Ok(())
}

fn record_path(project: &Project) -> PathBuf {
    project.cache_dir().join("fuzz.json")
}

/// The directory into which the targets are built, and what they write there.
struct Dirs(PathBuf);

impl Dirs {
    /// Returns the program of a target, which is built for the machine's own triple.
    fn program(&self, target: &str) -> anyhow::Result<PathBuf> {
        let entries = fs::read_dir(&self.0)
            .with_context(|| format!("cannot list {}", self.0.display()))?
            .flatten();
        let mut programs = entries.map(|entry| entry.path().join("release").join(target));
        programs
            .find(|program| program.is_file())
            .with_context(|| format!("cargo fuzz built no program of {target}"))
    }

    fn of(&self, kind: &str, target: &str) -> PathBuf {
        self.0.join(kind).join(target)
    }
}

/// Builds the targets with the pinned toolchain: instrumentation for coverage needs no nightly one, unlike sanitizers.
fn build(
    project: &Project,
    shell: &Shell,
    targets: &Targets,
    dirs: &Dirs,
    args: &Args,
) -> anyhow::Result<()> {
    let tools = project.cache_dir().join("tools");
    let path = std::env::var("PATH").unwrap_or_default();
    shell.set_var("PATH", format!("{}:{path}", tools.join("bin").display()));
    let found = cmd!(shell, "cargo fuzz --version")
        .quiet()
        .ignore_stdout()
        .ignore_stderr()
        .run();
    if found.is_err() {
        let install = format!("cargo install --locked cargo-fuzz@{CARGO_FUZZ}");
        ensure!(
            args.install,
            "cargo-fuzz is not installed: run `{install}`, or add --install"
        );
        ui::note("installing cargo-fuzz");
        cmd!(
            shell,
            "cargo install --quiet --locked --root {tools} cargo-fuzz@{CARGO_FUZZ}"
        )
        .quiet()
        .run()
        .context("cannot install cargo-fuzz")?;
    }
    check_lock(shell)?;
    let selected: Vec<_> = if args.targets.is_empty() {
        vec![None]
    } else {
        targets.0.iter().map(|target| Some(&target.name)).collect()
    };
    let dir = &dirs.0;
    for target in selected {
        cmd!(
            shell,
            "cargo fuzz build --sanitizer none --fuzz-dir fuzz --target-dir {dir} {target...}"
        )
        .quiet()
        .run()
        .context("cannot build the fuzz targets; libFuzzer needs a C++ compiler such as g++")?;
    }
    Ok(())
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

/// The runs of one target.
struct Report {
    name: String,
    executions: u64,
    time: Duration,
    coverage: u64,
    /// The input that the target fails on, and the reason.
    finding: Option<(PathBuf, String)>,
}

impl Report {
    fn failure(&self) -> Option<String> {
        let (input, reason) = self.finding.as_ref()?;
        let (name, input) = (&self.name, input.display());
        Some(format!(
            "{name} fails: {reason}\n  input: {input}\n  again: cargo xtask fuzz {name} --input {input}"
        ))
    }
}

/// Runs the targets, several at a time.
fn run_all(
    project: &Project,
    targets: &Targets,
    dirs: &Dirs,
    args: &Args,
) -> anyhow::Result<Vec<Report>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = args.jobs.map_or(cores, NonZero::get);
    let waiting: Mutex<VecDeque<_>> = Mutex::new(targets.0.iter().collect());
    let progress = Progress::new(targets.0.len());
    let next = || waiting.lock().expect("no holder panics").pop_front();
    let worker = || {
        let mut reports = Vec::new();
        while let Some(target) = next() {
            let report = run_one(project, target, dirs, args, &progress)?;
            progress.end_of(&report);
            reports.push(report);
        }
        anyhow::Ok(reports)
    };
    let mut reports = thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker reports errors"));
        let reports: anyhow::Result<Vec<_>> = ended.collect();
        anyhow::Ok(reports?.into_iter().flatten().collect::<Vec<_>>())
    })?;
    progress.finish();
    let _ = fs::remove_dir_all(dirs.0.join("tmp"));
    reports.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(reports)
}

/// Runs a target slice by slice.
fn run_one(
    project: &Project,
    target: &Target,
    dirs: &Dirs,
    args: &Args,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let engine = Engine {
        program: dirs.program(&target.name)?,
        corpus: dirs.of("corpus", &target.name),
        seeds: seeds_dir(&project.root, &target.name),
        artifacts: dirs.of("artifacts", &target.name),
        temporary: dirs.of("tmp", &target.name),
    };
    engine.prepare()?;
    let path = record_path(project);
    let start = Instant::now();
    let mut report = Report {
        name: target.name.clone(),
        executions: 0,
        time: Duration::ZERO,
        coverage: 0,
        finding: None,
    };
    loop {
        let former = Record::read(&path)?.executions(&target.name, &target.sources);
        let limit = match args.executions {
            Some(wanted) => Limit {
                executions: wanted.checked_sub(former).filter(|left| *left > 0),
                time: SLICE,
            },
            None => Limit {
                executions: None,
                time: Duration::from_secs(args.seconds)
                    .saturating_sub(start.elapsed())
                    .min(SLICE),
            },
        };
        let is_done = match args.executions {
            Some(_) => limit.executions.is_none(),
            None => limit.time < Duration::from_secs(1),
        };
        if is_done || report.finding.is_some() {
            return Ok(report);
        }
        let Outcome {
            executions,
            coverage,
            finding,
        } = engine.run(limit, |so_far| progress.show(&target.name, so_far))?;
        report.executions += executions;
        report.time = start.elapsed();
        report.coverage = report.coverage.max(coverage);
        report.finding = finding;
        // The sources of a target that fails will change.
        if report.finding.is_none() {
            Record::add(
                &path,
                Run {
                    target: target.name.clone(),
                    commit: project.commit.clone(),
                    sources: target.sources.clone(),
                    executions,
                },
            )?;
        }
    }
}

fn seeds_dir(root: &Path, target: &str) -> PathBuf {
    root.join("fuzz/corpus").join(target)
}

fn table(reports: &[Report], targets: &Targets, record: &Record) -> String {
    let line = |columns: [&str; 5], end: &str| {
        let [target, executions, per_second, coverage, total] = columns;
        format!("{target:24} {executions:>12} {per_second:>10} {coverage:>9} {total:>14}{end}\n")
    };
    let head = [
        "target",
        "executions",
        "per second",
        "coverage",
        "on the sources",
    ];
    let rows = reports.iter().map(|report| {
        let milliseconds = report.time.as_millis().max(1);
        let per_second = u128::from(report.executions) * 1000 / milliseconds;
        let target = targets.0.iter().find(|target| target.name == report.name);
        let total = target.map_or(0, |one| record.executions(&one.name, &one.sources));
        let end = if report.finding.is_some() {
            "  FAILS"
        } else {
            ""
        };
        let numbers = [
            report.executions.to_string(),
            per_second.to_string(),
            report.coverage.to_string(),
            total.to_string(),
        ];
        let [executions, per_second, coverage, total] = numbers.each_ref().map(String::as_str);
        line([&report.name, executions, per_second, coverage, total], end)
    });
    std::iter::once(line(head, "")).chain(rows).collect()
}

/// Adds to the corpus in the tree the inputs that reach what it does not reach, the shortest first, within its budget.
fn update_corpus(project: &Project, dirs: &Dirs, target: &Target) -> anyhow::Result<()> {
    let seeds = seeds_dir(&project.root, &target.name);
    let minimised = dirs.of("minimised", &target.name);
    let engine = Engine {
        program: dirs.program(&target.name)?,
        corpus: dirs.of("corpus", &target.name),
        seeds: seeds.clone(),
        artifacts: dirs.of("artifacts", &target.name),
        temporary: dirs.of("tmp", &target.name),
    };
    engine.minimise(&minimised)?;
    let mut used = 0;
    for file in engine::files(&seeds)? {
        used += file.1.len() as u64;
    }
    let mut new = engine::files(&minimised)?;
    new.sort_by_key(|(_, bytes)| bytes.len());
    let mut added = 0;
    for (path, bytes) in new {
        used += bytes.len() as u64;
        if used > CORPUS_BUDGET {
            break;
        }
        let name = path.file_name().context("a file has a name")?;
        let seed = seeds.join(name);
        fs::write(&seed, bytes).with_context(|| format!("cannot write {}", seed.display()))?;
        added += 1;
    }
    ui::note(&format!(
        "{}: {} added",
        target.name,
        counted(added, "input")
    ));
    Ok(())
}

/// A bar on a terminal, and a line at the end of each target elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(targets: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos} of {len} targets, {msg}");
            ProgressBar::new(targets as u64).with_style(style.expect("the template is constant"))
        });
        Self { bar }
    }

    fn show(&self, target: &str, executions: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{target}: {executions} executions"));
        }
    }

    fn end_of(&self, report: &Report) {
        let end = if report.finding.is_some() {
            ", FAILS"
        } else {
            ""
        };
        let line = format!(
            "{}: {} executions in {:.0} s{end}",
            report.name,
            report.executions,
            report.time.as_secs_f64()
        );
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.println(line);
            }
            None => ui::note(&line),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_reported_with_the_command_that_repeats_it() {
        let report = Report {
            name: "a_b".to_owned(),
            executions: 10,
            time: Duration::from_secs(2),
            coverage: 3,
            finding: Some(("target/crash-1".into(), "it panics".to_owned())),
        };
        let text = report.failure().unwrap();
        assert!(text.contains("cargo xtask fuzz a_b --input target/crash-1"));
        let targets = Targets(vec![Target {
            name: "a_b".to_owned(),
            sources: "s".to_owned(),
        }]);
        let record = Record {
            runs: vec![Run {
                target: "a_b".to_owned(),
                commit: "c".to_owned(),
                sources: "s".to_owned(),
                executions: 90,
            }],
            ..Record::default()
        };
        let table = table(&[report], &targets, &record);
        let fields: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(fields, ["a_b", "10", "5", "3", "90", "FAILS"]);
    }
}
