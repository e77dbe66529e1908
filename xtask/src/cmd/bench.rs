//! `bench`: ratios against the floor, both sides measured in the same run.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::Instant,
};

use airgap::{pack, zstd};
use anyhow::{Context as _, bail, ensure};
use archive::{digest::sha256, tar::Entry};
use serde_json::json;
use xshell::{Shell, cmd};

use crate::{talk, tree::Tree};

/// Compare packing, with every digest, to `tar | zstd -T2` of the same bytes
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bench\n  cargo xtask bench --dist /tmp/dist --rounds 21 --json"
)]
pub(crate) struct Args {
    /// Release whose files are packed, over and over until there are enough bytes
    #[arg(long, default_value = "dist")]
    dist: PathBuf,
    /// How often each side packs
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Fail above this ratio
    #[arg(long, default_value_t = 1.05)]
    limit: f64,
    /// Print what was measured as JSON
    #[arg(long)]
    json: bool,
}

/// Bytes to pack: enough that starting a program counts for nothing.
const BYTES: u64 = 256 << 20;

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds > 0, "--rounds is 0: pack at least once");
    let dir = tempfile::tempdir().context("cannot make a folder for what is packed")?;
    let corpus = dir.path().join("corpus");
    let bytes = fill(&args.dist, &corpus)?;
    let (mut rounds, mut sizes) = (Vec::new(), (0, 0));
    for round in 0..args.rounds {
        let (own, floor) = (dir.path().join("own"), dir.path().join("floor"));
        let ours = || time(|| ours(&corpus, &own));
        let theirs = || time(|| theirs(&corpus, &floor));
        // Neither side always finds what the other left in the caches.
        let (one, other) = if round % 2 == 0 {
            let one = ours()?;
            (one, theirs()?)
        } else {
            let other = theirs()?;
            (ours()?, other)
        };
        rounds.push((one, other));
        sizes = (fs::metadata(own)?.len(), fs::metadata(floor)?.len());
    }
    let (ours, theirs) = (
        median(rounds.iter().map(|pair| pair.0)),
        median(rounds.iter().map(|pair| pair.1)),
    );
    let ratio = median(rounds.iter().map(|(one, other)| one / other));
    if args.json {
        let all = json!({"what": "pack", "bytes": bytes, "rounds": args.rounds, "seconds": ours, "floorSeconds": theirs,
            "size": sizes.0, "floorSize": sizes.1, "ratio": ratio, "limit": args.limit});
        talk::data(&format!("{all}\n"))?;
    } else {
        talk::data(&format!(
            "pack: {ours:.3} s and {} bytes, tar | zstd -T2: {theirs:.3} s and {} bytes; ratio {ratio:.3} over {} rounds of {bytes} bytes\n",
            sizes.0, sizes.1, args.rounds
        ))?;
    }
    if ratio > args.limit {
        bail!(
            "packing takes {ratio:.3} of the floor, its limit is {}",
            args.limit
        );
    }
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

fn time(work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// As a release is packed: one pass, every file and the archive hashed.
fn ours(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let mut paths = Vec::new();
    walk(corpus, "", &mut paths)?;
    paths.sort();
    let blocks = paths.iter().map(|(_, len)| 1 + len.div_ceil(512));
    let size = (blocks.sum::<u64>() + 2) * 512;
    let mut digests = Vec::with_capacity(paths.len());
    let entries = paths.iter().map(|(path, _)| {
        let bytes = fs::read(corpus.join(path))?;
        digests.push(sha256(&bytes));
        Ok(Entry::file(path, 0o644, bytes))
    });
    let out = io::BufWriter::new(fs::File::create(to)?);
    let (mut out, _) = pack::write(entries, size, zstd::ARCHIVE, out)?;
    out.flush()?;
    ensure!(digests.len() == paths.len(), "not every file was hashed");
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

/// The floor: the two programs that everybody has, at the same level.
fn theirs(corpus: &Path, to: &Path) -> anyhow::Result<()> {
    let shell = Shell::new()?;
    let level = zstd::ARCHIVE.level;
    let script = format!(
        "set -e; tar --create --directory \"$0\" . | zstd -T2 -{level} --quiet --force -o \"$1\""
    );
    cmd!(shell, "sh -c {script} {corpus} {to}")
        .quiet()
        .run()
        .context("cannot run tar and zstd: install both")
}
