//! `bench pack`: compares packing with tar and zstd, both measured in the same run.

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

use crate::{tree::Tree, ui};

/// Compare packing, with the archive's digest, to `tar | zstd -T2` of the same bytes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench pack\n  cargo xtask bench pack --dist /tmp/dist --rounds 21 --json\n\nBoth sides are programs that are started, one after the other, and change places each round; start the whole under taskset to pin both alike."
)]
pub(crate) struct Args {
    /// Release whose files are packed, over and over until there are enough bytes
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// Number of times that each side packs
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Fail above this ratio of the elapsed times
    #[arg(long, default_value_t = 1.05)]
    limit: f64,
    /// Print the measurements as JSON
    #[arg(long)]
    json: bool,
    /// Pack once and end; this program starts itself so for its own side
    #[arg(long, hide = true, num_args = 2, value_names = ["DIR", "FILE"])]
    pack: Option<Vec<PathBuf>>,
}

/// Workers of zstd, on both sides.
const WORKERS: u32 = zstd::WORKERS;
/// Bytes to pack: enough that the start of a program does not matter.
const BYTES: u64 = 256 << 20;

/// The time of one side in one round.
#[derive(Clone, Copy)]
struct Cost {
    /// Seconds on the clock.
    wall: f64,
    /// Seconds of CPU, in the program and in the kernel.
    cpu: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some([corpus, to]) = args.pack.as_deref() {
        return pack(corpus, to);
    }
    ensure!(args.rounds > 0, "--rounds is 0: pack at least once");
    let dir = tempfile::tempdir().context("cannot make a temporary directory")?;
    let corpus = dir.path().join("corpus");
    let bytes = fill(&args.dist, &corpus)?;
    let (own, floor) = (dir.path().join("own"), dir.path().join("floor"));
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let ours = || measure(&own, || ours(&corpus, &own));
        let theirs = || measure(&floor, || theirs(&corpus, &floor));
        // The order alternates, so that neither side always profits from caches that the other filled.
        rounds.push(if round % 2 == 0 {
            let one = ours()?;
            (one, theirs()?)
        } else {
            let other = theirs()?;
            (ours()?, other)
        });
    }
    let sizes = (fs::metadata(own)?.len(), fs::metadata(floor)?.len());
    let of = |value: fn(&(Cost, Cost)) -> f64| median(rounds.iter().map(value));
    let (ours, theirs) = (of(|(one, _)| one.wall), of(|(_, other)| other.wall));
    let (cpu, their_cpu) = (of(|(one, _)| one.cpu), of(|(_, other)| other.cpu));
    let ratio = of(|(one, other)| one.wall / other.wall);
    let cpu_ratio = cpu / their_cpu;
    if args.json {
        let all = json!({"what": "pack", "bytes": bytes, "rounds": args.rounds,
            "seconds": ours, "floorSeconds": theirs, "ratio": ratio, "limit": args.limit,
            "cpuSeconds": cpu, "floorCpuSeconds": their_cpu, "cpuRatio": cpu_ratio,
            "size": sizes.0, "floorSize": sizes.1});
        ui::json(&all)?;
    } else {
        ui::data(&format!(
            "{} rounds of {bytes} bytes\n\
             pack:             {ours:.3} s, {cpu:.2} s of CPU, {} bytes\n\
             tar | zstd -T{WORKERS}:    {theirs:.3} s, {their_cpu:.2} s of CPU, {} bytes\n\
             ratio:            {ratio:.3}, {cpu_ratio:.3} of CPU\n",
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

/// Copies a release's files until there are enough bytes; returns their number.
fn fill(dist: &Path, corpus: &Path) -> anyhow::Result<u64> {
    let tree = Tree::read(dist).with_context(|| {
        format!(
            "{} is not a release, make one with `cargo xtask dist`",
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

/// Measures work that writes a file. The file is removed before, since replacing one costs more than making one.
fn measure(to: &Path, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<Cost> {
    if to.exists() {
        fs::remove_file(to)?;
    }
    let (start, before) = (Instant::now(), cpu_of_children()?);
    work()?;
    let wall = start.elapsed().as_secs_f64();
    Ok(Cost {
        wall,
        cpu: cpu_of_children()? - before,
    })
}

/// Returns the CPU seconds of ended child processes: `cutime` and `cstime` of proc(5).
fn cpu_of_children() -> anyhow::Result<f64> {
    /// Ticks per second, which is the same on every machine.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    let numbers = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<f64> = numbers
        .split_whitespace()
        .skip(13)
        .take(2)
        .filter_map(|number| number.parse().ok())
        .collect();
    ensure!(ticks.len() == 2, "/proc/self/stat has no times");
    Ok((ticks[0] + ticks[1]) / TICKS)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Starts this program again, which packs as for a release.
fn ours(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let (shell, own) = (Shell::new()?, std::env::current_exe()?);
    cmd!(shell, "{own} bench pack --pack {corpus} {to}")
        .quiet()
        .run()
        .context("cannot run this program again")
}

/// Packs in one pass, as for a release: tar, zstd and the archive's digest. The digests of the files are known when a release is packed.
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
    ui::note(&packed.digest.to_string());
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

/// Runs the floor: tar and zstd, at the same level and with as many workers.
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
