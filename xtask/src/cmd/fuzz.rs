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
/// The time of each target in a run with no other limit.
const DEFAULT_SECONDS: u64 = 60;
/// The executions that each target has had before a release, on the sources of that release.
const MINIMUM: u64 = 100_000_000;
/// The record in the tree, which a release is checked against.
const COMMITTED_RECORD: &str = "fuzz/record.json";

/// Run the fuzz targets guided by coverage, and count their executions
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask fuzz --install\n  cargo xtask fuzz --seconds 600 plan_annotations chart_edits\n  cargo xtask fuzz --executions 100000000 --minutes 300\n  cargo xtask fuzz plan_annotations --input target/fuzz/artifacts/plan_annotations/crash-1234\n  cargo xtask fuzz --check 100000000\n  cargo xtask fuzz --save --from /tmp/night/xtask/fuzz.json"
)]
pub(crate) struct Args {
    /// Targets to run; all of fuzz/Cargo.toml unless set
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Run each target for this many seconds; 60 unless --executions is set
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Run each target until it had this many executions on its present sources, those of former runs included; with --seconds at
    /// least as long too
    #[arg(long, value_name = "N")]
    executions: Option<u64>,
    /// End after this many minutes, whatever is left; the targets take turns, so each gets its share
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
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
    #[arg(long, value_name = "N", conflicts_with_all = RUNNING)]
    check: Option<u64>,
    /// Run nothing; write the executions on the present sources to fuzz/record.json, which `release check` reads
    #[arg(long, conflicts_with_all = RUNNING, conflicts_with = "check")]
    save: bool,
    /// Save what is recorded in this file too, which is target/xtask/fuzz.json of another machine
    #[arg(long, value_name = "FILE", requires = "save")]
    from: Vec<PathBuf>,
}

/// The options of a run.
const RUNNING: [&str; 8] = [
    "targets",
    "seconds",
    "executions",
    "minutes",
    "jobs",
    "install",
    "input",
    "update_corpus",
];

impl Args {
    /// Returns the arguments of a run of all targets, each for so long.
    pub(crate) fn all(seconds: u64, install: bool) -> Self {
        Self {
            targets: Vec::new(),
            seconds: Some(seconds),
            executions: None,
            minutes: None,
            jobs: None,
            install,
            input: None,
            update_corpus: false,
            check: None,
            save: false,
            from: Vec::new(),
        }
    }

    fn goal(&self) -> Goal {
        let seconds = match (self.seconds, self.executions) {
            (None, None) => DEFAULT_SECONDS,
            (seconds, _) => seconds.unwrap_or_default(),
        };
        Goal {
            time: Duration::from_secs(seconds),
            executions: self.executions.unwrap_or_default(),
        }
    }
}

/// The end of a target's run: it took this time, and the target had so many executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Goal {
    time: Duration,
    executions: u64,
}

impl Goal {
    /// Returns the limit of the next process of a target that ran for `spent` and had `executions`; none when it is done.
    fn next(&self, spent: Duration, executions: u64) -> Option<Limit> {
        let time = self.time.saturating_sub(spent);
        let left = self.executions.saturating_sub(executions);
        if time >= Duration::from_secs(1) {
            return Some(Limit {
                executions: None,
                time: time.min(SLICE),
            });
        }
        (left > 0).then_some(Limit {
            executions: Some(left),
            time: SLICE,
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if args.save {
        return save(&project, &args.from);
    }
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
    let record = known(&project)?;
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
fn check(project: &Project, minimum: u64) -> anyhow::Result<()> {
    let targets = Targets::read(&project.root)?;
    if let Some(lacking) = lacking(&targets, &known(project)?, minimum) {
        bail!("{lacking}: run `cargo xtask fuzz --executions {minimum}`");
    }
    ui::note(&format!(
        "each of {} had {minimum} executions or more",
        counted(targets.0.len(), "fuzz target")
    ));
    Ok(())
}

/// Fails unless the record in a checkout has enough executions of each target, on the sources of that checkout, for a release.
pub(crate) fn ensure_fuzzed(root: &Path) -> anyhow::Result<()> {
    let record = Record::read(&root.join(COMMITTED_RECORD))?;
    if let Some(lacking) = lacking(&Targets::read(root)?, &record, MINIMUM) {
        bail!(
            "{lacking} by {COMMITTED_RECORD}: run `cargo xtask fuzz --executions {MINIMUM}`, then `cargo xtask fuzz --save`, and commit"
        );
    }
    Ok(())
}

/// Names the targets that had fewer executions on their present sources.
fn lacking(targets: &Targets, record: &Record, minimum: u64) -> Option<String> {
    let executions = |target: &Target| record.executions(&target.name, &target.sources);
    let lacking = targets.0.iter().filter(|one| executions(one) < minimum);
    let lacking: Vec<_> = lacking
        .map(|target| format!("{} had {}", target.name, executions(target)))
        .collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "{} of {} had fewer than {minimum} executions on the present sources ({})",
            lacking.len(),
            counted(targets.0.len(), "fuzz target"),
            lacking.join(", ")
        )
    })
}

/// Writes into the tree all that is known of the present sources.
fn save(project: &Project, others: &[PathBuf]) -> anyhow::Result<()> {
    let mut record = known(project)?;
    for path in others {
        ensure!(
            path.exists(),
            "{} does not exist: name the file target/xtask/fuzz.json of another machine",
            path.display()
        );
        record.merge(Record::read(path)?);
    }
    let targets = Targets::read(&project.root)?;
    record.retain(|run| {
        let mut present = targets.0.iter();
        present.any(|target| target.name == run.target && target.sources == run.sources)
    });
    record.write(&project.root.join(COMMITTED_RECORD))?;
    let enough = |target: &&Target| record.executions(&target.name, &target.sources) >= MINIMUM;
    ui::note(&format!(
        "{COMMITTED_RECORD}: {} of {} have the {MINIMUM} executions of a release",
        targets.0.iter().filter(enough).count(),
        counted(targets.0.len(), "fuzz target")
    ));
    Ok(())
}

/// Returns the executions that this machine recorded, and those of the record in the tree.
fn known(project: &Project) -> anyhow::Result<Record> {
    let mut record = Record::read(&record_path(project))?;
    record.merge(Record::read(&project.root.join(COMMITTED_RECORD))?);
    Ok(record)
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
#[derive(Default)]
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

/// Runs the targets, several at a time; they take turns.
fn run_all(
    project: &Project,
    targets: &Targets,
    dirs: &Dirs,
    args: &Args,
) -> anyhow::Result<Vec<Report>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = args.jobs.map_or(cores, NonZero::get);
    let end = args
        .minutes
        .map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let time_left = || {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        left.unwrap_or(Duration::MAX)
    };
    let progress = Progress::new(targets.0.len());
    let turns = targets
        .0
        .iter()
        .map(|target| Turns::new(project, target, dirs));
    let waiting: Mutex<VecDeque<_>> = Mutex::new(turns.collect::<anyhow::Result<_>>()?);
    let next = || waiting.lock().expect("no holder panics").pop_front();
    let worker = || {
        let mut reports = Vec::new();
        // Each target that is not waiting has a worker, which goes on with it.
        while let Some(mut turns) = next() {
            if turns.take(project, args.goal(), time_left(), &progress)? {
                waiting.lock().expect("no holder panics").push_back(turns);
            } else {
                progress.end_of(&turns.report);
                reports.push(turns.report);
            }
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

/// A target that runs process by process.
struct Turns<'a> {
    target: &'a Target,
    engine: Engine,
    report: Report,
}

impl<'a> Turns<'a> {
    fn new(project: &Project, target: &'a Target, dirs: &Dirs) -> anyhow::Result<Self> {
        let engine = Engine {
            program: dirs.program(&target.name)?,
            corpus: dirs.of("corpus", &target.name),
            seeds: seeds_dir(&project.root, &target.name),
            artifacts: dirs.of("artifacts", &target.name),
            temporary: dirs.of("tmp", &target.name),
        };
        engine.prepare()?;
        let report = Report {
            name: target.name.clone(),
            ..Report::default()
        };
        Ok(Self {
            target,
            engine,
            report,
        })
    }

    /// Runs one process of the target. Returns whether the target needs another one.
    fn take(
        &mut self,
        project: &Project,
        goal: Goal,
        time_left: Duration,
        progress: &Progress,
    ) -> anyhow::Result<bool> {
        let Target { name, sources } = self.target;
        let former = known(project)?.executions(name, sources);
        let limit = goal.next(self.report.time, former);
        let Some(limit) = limit.filter(|_| time_left >= Duration::from_secs(1)) else {
            return Ok(false);
        };
        let limit = Limit {
            time: limit.time.min(time_left),
            ..limit
        };
        let start = Instant::now();
        let Outcome {
            executions,
            coverage,
            finding,
        } = self
            .engine
            .run(limit, |so_far| progress.show(name, so_far))?;
        let report = &mut self.report;
        report.executions += executions;
        report.time += start.elapsed();
        report.coverage = report.coverage.max(coverage);
        report.finding = finding;
        // The sources of a target that fails will change.
        if report.finding.is_some() {
            return Ok(false);
        }
        let run = Run {
            target: name.clone(),
            commit: project.commit.clone(),
            sources: sources.clone(),
            executions,
        };
        Record::add(&record_path(project), run)?;
        Ok(true)
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

    #[test]
    fn target_runs_for_its_time_and_until_it_had_its_executions() {
        let goal = |args: &[&str]| {
            #[derive(clap::Parser)]
            struct Line {
                #[command(flatten)]
                args: Args,
            }
            let line = [&["fuzz"], args].concat();
            <Line as clap::Parser>::parse_from(line).args.goal()
        };
        let seconds = Duration::from_secs;
        let next = |args: &[&str], spent: u64, executions: u64| {
            let limit = goal(args).next(seconds(spent), executions)?;
            Some((limit.time.as_secs(), limit.executions))
        };
        assert_eq!(next(&[], 0, 0), Some((60, None)));
        assert_eq!(next(&[], 60, 0), None);
        let executions = ["--executions", "10"];
        assert_eq!(next(&executions, 0, 3), Some((300, Some(7))));
        assert_eq!(next(&executions, 9000, 3), Some((300, Some(7))));
        assert_eq!(next(&executions, 0, 10), None);
        let both = ["--executions", "10", "--seconds", "400"];
        assert_eq!(next(&both, 0, 20), Some((300, None)));
        assert_eq!(next(&both, 300, 20), Some((100, None)));
        assert_eq!(next(&both, 400, 20), None);
        assert_eq!(next(&both, 400, 2), Some((300, Some(8))));
    }

    #[test]
    fn nights_go_on_from_each_other_until_a_release_has_enough() {
        let text = include_str!("../../../.github/workflows/nightly.yml");
        let (_, job) = text.split_once("\n  fuzz:\n").unwrap();
        let (job, _) = job.split_once("\n  deny:\n").unwrap();
        let position = |step: &str| {
            let found = job.find(step);
            found.unwrap_or_else(|| panic!("there is no {step}: {job}"))
        };
        // The artifact has the directory that all of its files are in as its own.
        let restored = position(" --name fuzz --dir target;");
        let run = position(&format!(
            "cargo xtask fuzz --seconds 60 --executions {MINIMUM} --minutes "
        ));
        let kept = position(
            "          name: fuzz\n          path: |\n            target/fuzz/corpus\n            target/xtask/fuzz.json\n",
        );
        let findings = position("path: target/fuzz/artifacts\n");
        assert!(restored < run && run < kept && kept < findings, "{job}");
        assert!(job[run..kept].contains("if: always()"), "{job}");
        assert_eq!(job.matches(": write").count(), 0, "{job}");
    }

    /// A checkout with one target, and the sources of that target.
    fn checkout(text: &str) -> (tempfile::TempDir, String) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("fuzz/Cargo.toml", "[[bin]]\nname = \"own_things\"\n"),
            ("fuzz/Cargo.lock", "checksum = \"1\"\n"),
            ("fuzz/fuzz_targets/own_things.rs", ""),
            ("own/Cargo.toml", ""),
            ("own/src/lib.rs", text),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = Targets::read(dir.path()).unwrap().0.remove(0).sources;
        (dir, sources)
    }

    #[test]
    fn release_needs_a_record_of_its_own_sources() {
        let (dir, sources) = checkout("");
        let path = dir.path().join(COMMITTED_RECORD);
        let refused = |dir: &tempfile::TempDir, expected: &[&str]| {
            let error = format!("{:#}", ensure_fuzzed(dir.path()).unwrap_err());
            for text in expected {
                assert!(error.contains(text), "no {text} in {error}");
            }
        };
        let commands = "run `cargo xtask fuzz --executions 100000000`";
        refused(&dir, &["1 of 1 fuzz target", "own_things had 0", commands]);
        let run = |sources: &str, executions| Run {
            target: "own_things".to_owned(),
            commit: "c".to_owned(),
            sources: sources.to_owned(),
            executions,
        };
        Record::add(&path, run("other", MINIMUM)).unwrap();
        Record::add(&path, run(&sources, MINIMUM - 1)).unwrap();
        let save = "then `cargo xtask fuzz --save`, and commit";
        refused(&dir, &["own_things had 99999999", "fuzz/record.json", save]);
        Record::add(&path, run(&sources, 1)).unwrap();
        ensure_fuzzed(dir.path()).unwrap();
        fs::write(dir.path().join("own/src/lib.rs"), "// changed").unwrap();
        refused(&dir, &["own_things had 0"]);
    }

    #[test]
    fn saved_record_has_the_executions_of_all_machines_on_the_present_sources() {
        let (dir, sources) = checkout("");
        let root = dir.path().to_owned();
        let project = Project {
            target: root.join("target"),
            root,
            version: String::new(),
            images: chart::ImagePrefix::DEFAULT,
            commit: "c".to_owned(),
            epoch: 0,
            toolchain: String::new(),
            trusted_key: None,
        };
        let run = |commit: &str, sources: &str, executions| Run {
            target: "own_things".to_owned(),
            commit: commit.to_owned(),
            sources: sources.to_owned(),
            executions,
        };
        let (own, other) = (record_path(&project), dir.path().join("other.json"));
        Record::add(&own, run("a", &sources, 5)).unwrap();
        Record::add(&own, run("b", &sources, 7)).unwrap();
        Record::add(&own, run("b", "former", 100)).unwrap();
        // A machine that went on from the record of this one counted its executions again.
        Record::add(&other, run("b", &sources, 9)).unwrap();
        Record::add(&other, run("c", &sources, 30)).unwrap();
        save(&project, std::slice::from_ref(&other)).unwrap();
        let saved = Record::read(&dir.path().join(COMMITTED_RECORD)).unwrap();
        assert_eq!(saved.executions("own_things", &sources), 5 + 9 + 30);
        assert_eq!(saved.executions("own_things", "former"), 0);
        fs::remove_file(&own).unwrap();
        assert_eq!(known(&project).unwrap(), saved);
        let error = save(&project, &["missing.json".into()]).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("missing.json does not exist"), "{error}");
    }
}
