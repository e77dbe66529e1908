//! `download`: files of others that lock files name, by digest. The only command that speaks to the network by itself, with curl.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::digest::sha256;
use xshell::{Shell, cmd};

use crate::{
    lock::{self, Item},
    project::Project,
    talk,
    tree::Tree,
};

/// Fetch what lock files name into target/download; what is there already is left alone
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask download\n  MULTUS_MIRROR=/media/charts cargo xtask download"
)]
pub(crate) struct Args {
    /// Lock file; those of the project unless given
    #[arg(long = "lock", value_name = "FILE")]
    locks: Vec<PathBuf>,
}

/// The project's lock files.
const LOCKS: &[&str] = &["e2e/published.lock"];
/// A folder that is looked into before any address is asked.
const MIRROR: &str = "MULTUS_MIRROR";
/// curl's words for a server that will not go on: an HTTP error, no ranges, a bad offset.
const RESUME_REFUSED: [i32; 3] = [22, 33, 36];

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    if args.locks.is_empty() {
        all(&project)
    } else {
        fetch(&project, &args.locks)
    }
}

/// Fetches what the project's lock files name.
pub(crate) fn all(project: &Project) -> anyhow::Result<()> {
    let locks: Vec<_> = LOCKS.iter().map(|lock| project.root.join(lock)).collect();
    fetch(project, &locks)
}

fn fetch(project: &Project, locks: &[PathBuf]) -> anyhow::Result<()> {
    let dir = project.target.join("download");
    let mirror = std::env::var_os(MIRROR).map(PathBuf::from);
    if let Some(mirror) = &mirror {
        ensure!(
            mirror.is_dir(),
            "{MIRROR} is {}, which is no folder: unset it, or name the folder with the files",
            mirror.display()
        );
    }
    let mut items = Vec::new();
    for path in locks {
        items.extend(lock::read(path)?);
    }
    for item in &items {
        let from = one(item, &dir, mirror.as_deref())?;
        talk::say(&format!("{} {}: {from}", item.name, item.version));
    }
    Ok(())
}

/// Gets one file; the words say where it came from.
fn one(item: &Item, dir: &Path, mirror: Option<&Path>) -> anyhow::Result<&'static str> {
    if is_right(item, &dir.join(&item.name))? {
        return Ok("is there");
    }
    if let Some(path) = mirror
        .map(|mirror| mirror.join(&item.name))
        .filter(|path| path.exists())
    {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let found = sha256(&bytes);
        ensure!(
            found == item.sha256,
            "{} has the sha256 {}, its lock says {}: replace it, or unset {MIRROR}",
            path.display(),
            found.hex(),
            item.sha256.hex()
        );
        put(item, dir, bytes)?;
        return Ok("from the mirror");
    }
    let part = dir.join(format!("{}.part", item.name));
    if !is_right(item, &part)? {
        let begun = part.exists();
        let outcome = transfer(item, &part, mirror)?;
        if begun && (outcome == Outcome::NoBeginning || !is_right(item, &part)?) {
            fs::remove_file(&part)?;
            transfer(item, &part, mirror)?;
        }
    }
    let bytes = fs::read(&part).with_context(|| format!("cannot read {}", part.display()))?;
    let found = sha256(&bytes);
    fs::remove_file(&part)?;
    ensure!(
        found == item.sha256,
        "{} answers with a file of sha256 {}, its lock says {}: ask its publisher, or correct the lock",
        item.address,
        found.hex(),
        item.sha256.hex()
    );
    put(item, dir, bytes)?;
    Ok("fetched")
}

/// Whether a file is there and is the one.
fn is_right(item: &Item, path: &Path) -> anyhow::Result<bool> {
    match fs::read(path) {
        Ok(bytes) => Ok(sha256(&bytes) == item.sha256),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn put(item: &Item, dir: &Path, bytes: Vec<u8>) -> anyhow::Result<()> {
    let mut tree = Tree::default();
    tree.add(&item.name, bytes);
    tree.update(dir, &[])
}

/// What came of a transfer that was not refused.
#[derive(PartialEq, Eq)]
enum Outcome {
    Complete,
    /// The server has no rest to what lies there.
    NoBeginning,
}

/// Goes on where the last attempt ended; what has come stays for the next one.
fn transfer(item: &Item, part: &Path, mirror: Option<&Path>) -> anyhow::Result<Outcome> {
    if let Some(dir) = part.parent() {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let begun = part.exists();
    let shell = Shell::new()?;
    let address = &item.address;
    let output = cmd!(
        shell,
        "curl --fail --location --silent --show-error --retry 3 --connect-timeout 20 --continue-at - --output {part} {address}"
    )
    .quiet()
    .ignore_status()
    .output()
    .context("cannot start curl: install it")?;
    match output.status.code() {
        Some(0) => return Ok(Outcome::Complete),
        Some(code) if begun && RESUME_REFUSED.contains(&code) => return Ok(Outcome::NoBeginning),
        _ => {}
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let place = mirror.map_or_else(
        || format!("a folder and name that in {MIRROR}"),
        |mirror| mirror.display().to_string(),
    );
    bail!(
        "cannot fetch {address}: {}; try again, or put {} into {place}",
        words.lines().last().unwrap_or("curl said nothing").trim(),
        item.name
    )
}
