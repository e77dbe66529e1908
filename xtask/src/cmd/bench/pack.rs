//! `bench pack`: packing against tar and zstd, both sides measured in the same run.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use airgap::{pack, zstd};
use anyhow::{Context as _, ensure};
use archive::tar::Entry;
use serde_json::json;
use xshell::{Shell, cmd};

use crate::{talk, tree::Tree};

/// Compare packing, with the archive's digest, to `tar | zstd -T2` of the same bytes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench pack\n  cargo xtask bench pack --dist /tmp/dist --rounds 21 --json\n\nBoth sides are programs that are started, one after the other, and change places each round; start the whole under taskset to pin both alike."
)]
pub(crate) struct Args {
    /// Release whose files are packed, over and over until there are enough bytes
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// How often each side packs
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Fail above this ratio of the times that it takes
    #[arg(long, default_value_t = 1.05)]
    limit: f64,
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
    /// What this program is started with as one of the sides
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "FILE"])]
    pack: Option<Vec<PathBuf>>,
}

/// Workers of zstd, on both sides.
const WORKERS: u32 = zstd::WORKERS;
/// Bytes to pack: enough that starting a program counts for nothing.
const BYTES: u64 = 256 << 20;

/// What one side took in one round.
#[derive(Clone, Copy)]
struct Took {
    /// Seconds on the clock.
    wall: f64,
    /// Seconds of processors, in the program and in the system.
    cpu: f64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some([corpus, to]) = args.pack.as_deref() {
        return pack(corpus, to);
    }
    ensure!(args.rounds > 0, "--rounds is 0: pack at least once");
    let dir = tempfile::tempdir().context("cannot make a folder for what is packed")?;
    let corpus = dir.path().join("corpus");
    let bytes = fill(&args.dist, &corpus)?;
    let (own, floor) = (dir.path().join("own"), dir.path().join("floor"));
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let ours = || took(&own, || ours(&corpus, &own));
        let theirs = || took(&floor, || theirs(&corpus, &floor));
        // Neither side always finds what the other left in the caches.
        rounds.push(if round % 2 == 0 {
            let one = ours()?;
            (one, theirs()?)
        } else {
            let other = theirs()?;
            (ours()?, other)
        });
    }
    let sizes = (fs::metadata(own)?.len(), fs::metadata(floor)?.len());
    let of = |what: fn(&(Took, Took)) -> f64| median(rounds.iter().map(what));
    let (ours, theirs) = (of(|(one, _)| one.wall), of(|(_, other)| other.wall));
    let (cpu, their_cpu) = (of(|(one, _)| one.cpu), of(|(_, other)| other.cpu));
    let ratio = of(|(one, other)| one.wall / other.wall);
    let cpu_ratio = cpu / their_cpu;
    if args.json {
        let all = json!({"what": "pack", "bytes": bytes, "rounds": args.rounds,
            "seconds": ours, "floorSeconds": theirs, "ratio": ratio, "limit": args.limit,
            "cpuSeconds": cpu, "floorCpuSeconds": their_cpu, "cpuRatio": cpu_ratio,
            "size": sizes.0, "floorSize": sizes.1});
        talk::json(&all)?;
    } else {
        talk::data(&format!(
            "{} rounds of {bytes} bytes\n\
             pack:             {ours:.3} s, {cpu:.2} s of processors, {} bytes\n\
             tar | zstd -T{WORKERS}:    {theirs:.3} s, {their_cpu:.2} s of processors, {} bytes\n\
             ratio:            {ratio:.3}, {cpu_ratio:.3} of processors\n",
            args.rounds, sizes.0, sizes.1
        ))?;
    }
    ensure!(
        ratio <= args.limit,
        "packing takes {ratio:.3} of the floor, its limit is {}",
        args.limit
    );
    Ok(())
}

/// Copies a release's files until there are enough bytes.
fn fill(dist: &Path, corpus: &Path) -> anyhow::Result<u64> {
    let tree = Tree::read(dist).with_context(|| {
        format!(
            "{} is no release, make one with `cargo xtask dist`",
            dist.display()
        )
    })?;
    let once: u64 = tree.0.values().map(|file| file.bytes.len() as u64).sum();
    ensure!(once > 0, "{} is empty", dist.display());
    let copies = BYTES.div_ceil(once);
    for copy in 0..copies {
        tree.write_new(&corpus.join(copy.to_string()))?;
    }
    Ok(once * copies)
}

/// Measures what writes a file, which is not there before: replacing one costs more than making one.
fn took(to: &Path, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Took> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    let (start, before) = (Instant::now(), of_children()?);
    work()?;
    let wall = start.elapsed().as_secs_f64();
    Ok(Took {
        wall,
        cpu: of_children()? - before,
    })
}

/// Seconds that the programs took which this one started and saw end: `cutime` and `cstime` of proc(5).
fn of_children() -> anyhow::Result<f64> {
    /// What the kernel counts in for everybody.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let numbers = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = numbers
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|number| number.parse().ok())
        .collect();
    ensure!(ticks.len() == 2, "/proc/self/stat tells no times");
    Ok((ticks[0] + ticks[1]) / TICKS)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// This program, as it packs a release.
fn ours(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let (shell, own) = (Shell::new()?, std::env::current_exe()?);
    cmd!(shell, "{own} bench pack --pack {corpus} {to}")
        .quiet()
        .run()
        .context("cannot run this program again")
}

/// One pass, as for a release: tar, zstd and the digest of what is written; those of the files are known there.
fn pack(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    walk(corpus, "", &mut paths)?;
    paths.sort();
    let blocks = paths.iter().map(|(_, len)| 1 + len.div_ceil(512));
    let size = (blocks.sum::<u64>() + 2) * 512;
    let entries = paths.iter().map(|(path, _)| {
        let bytes = fs::read(corpus.join(path))?;
        Ok(Entry::file(path, 0o644, bytes))
    });
    let (_, packed) = pack::write(entries, size, zstd::ARCHIVE, fs::File::create(to)?)?;
    talk::say(&packed.digest.to_string());
    Ok(())
}

fn walk(dir: &Path, prefix: &str, paths: &mut Vec<(String, u64)>) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &format!("{name}/"), paths)?;
        } else {
            paths.push((name, entry.metadata()?.len()));
        }
    }
    Ok(())
}

/// The floor: the two programs that everybody has, at the same level, with as many workers.
fn theirs(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let shell = Shell::new()?;
    let level = zstd::ARCHIVE.level;
    let script = format!(
        "set -e; tar --create --directory \"$0\" . | zstd -T{WORKERS} -{level} --quiet --force -o \"$1\""
    );
    cmd!(shell, "sh -c {script} {corpus} {to}")
        .quiet()
        .run()
        .context("cannot run tar and zstd: install both")
}
