//! `download`: files of others that lock files name, by digest. What is right already costs no connection.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail, ensure};
use archive::digest::{Digest, Hasher};

use crate::{
    fetch,
    lock::{self, Item},
    project::Project,
    talk,
};

/// Fetch what lock files name into target/download; what is there already is left alone
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask download\n  MULTUS_MIRROR=/media/charts cargo xtask download\n  MULTUS_MIRROR=/media/charts,https://mirror.example/charts cargo xtask download\n  HTTPS_PROXY=http://proxy.example:3128 NO_PROXY=.example cargo xtask download --lock charts.lock\n  cargo xtask download --json | jq -r '.[].path'\n\nA lock file has a file to a line: sha256, version, address, and mirrors' addresses where there are any."
)]
pub(crate) struct Args {
    /// Lock file; those of the project unless given
    #[arg(long = "lock", value_name = "FILE")]
    locks: Vec<PathBuf>,
    /// Print what is there now as JSON
    #[arg(long)]
    json: bool,
}

/// The project's lock files.
const LOCKS: &[&str] = &["e2e/published.lock"];
/// Folders and addresses that are asked before those of a lock file.
const MIRROR: &str = "MULTUS_MIRROR";

/// Runs the command.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let project = Project::open()?;
    let files = if args.locks.is_empty() {
        all(&project)?
    } else {
        fetch(&project, &args.locks)?
    };
    if args.json {
        talk::json(&files)?;
    }
    Ok(())
}

/// A file that is there, and right.
#[derive(Debug, serde::Serialize)]
pub(crate) struct File {
    path: PathBuf,
    version: String,
    sha256: String,
    /// Whether it was there before.
    was_there: bool,
}

/// Fetches what the project's lock files name.
pub(crate) fn all(project: &Project) -> anyhow::Result<Vec<File>> {
    let locks: Vec<_> = LOCKS.iter().map(|lock| project.root.join(lock)).collect();
    fetch(project, &locks)
}

/// Fetches what a lock file names, and says where one of its files is.
pub(crate) fn locked(project: &Project, lock: &Path, name: &Path) -> anyhow::Result<PathBuf> {
    let items = lock::read(&[lock])?;
    let Some(item) = items.iter().find(|item| Path::new(&item.name) == name) else {
        let names: Vec<_> = items.iter().map(|item| item.name.as_str()).collect();
        bail!(
            "{} does not lock {}: it has {}",
            lock.display(),
            name.display(),
            names.join(", ")
        );
    };
    let dir = folder(project);
    Ok(one(item, &dir, &mirrors()?)?.path)
}

fn folder(project: &Project) -> PathBuf {
    project.target.join("download")
}

fn fetch(project: &Project, locks: &[PathBuf]) -> anyhow::Result<Vec<File>> {
    let mirrors = mirrors()?;
    let dir = folder(project);
    let items = lock::read(locks)?;
    items.iter().map(|item| one(item, &dir, &mirrors)).collect()
}

/// A place that is asked before the lock file's.
enum Mirror {
    Folder(PathBuf),
    Address(String),
}

fn mirrors() -> anyhow::Result<Vec<Mirror>> {
    let Some(given) = std::env::var_os(MIRROR) else {
        return Ok(Vec::new());
    };
    // A folder whose name has a comma in it.
    if Path::new(&given).is_dir() {
        return Ok(vec![Mirror::Folder(given.into())]);
    }
    let given = given.to_string_lossy().into_owned();
    let one = |text: &str| {
        if lock::is_address(text) {
            return Ok(Mirror::Address(text.trim_end_matches('/').to_owned()));
        }
        ensure!(
            Path::new(text).is_dir(),
            "{MIRROR} names {text}, which is no folder: unset it, or name folders or addresses with the files, with commas between"
        );
        Ok(Mirror::Folder(text.into()))
    };
    given.split(',').map(str::trim).map(one).collect()
}

/// Gets one file, from the first place that has it.
fn one(item: &Item, dir: &Path, mirrors: &[Mirror]) -> anyhow::Result<File> {
    let path = dir.join(&item.name);
    let was_there = digest(&path)? == Some(item.sha256);
    let from = if was_there {
        "is there".to_owned()
    } else {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        get(item, &path, mirrors)?
    };
    talk::say(&format!("{} {}: {from}", item.name, item.version));
    Ok(File {
        path,
        version: item.version.clone(),
        sha256: item.sha256.hex(),
        was_there,
    })
}

fn get(item: &Item, path: &Path, mirrors: &[Mirror]) -> anyhow::Result<String> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut refused = Vec::new();
    let mut addresses = Vec::new();
    for mirror in mirrors {
        match mirror {
            Mirror::Address(base) => addresses.push(format!("{base}/{}", item.name)),
            Mirror::Folder(folder) => {
                let from = folder.join(&item.name);
                let Some(found) = digest(&from)? else {
                    continue;
                };
                if found != item.sha256 {
                    refused.push(format!(
                        "{} has the sha256 {}, its lock says {}: replace it, or unset {MIRROR}",
                        from.display(),
                        found.hex(),
                        item.sha256.hex()
                    ));
                    continue;
                }
                fs::copy(&from, &part)
                    .with_context(|| format!("cannot copy {}", from.display()))?;
                put(&part, path)?;
                return Ok("from the mirror".to_owned());
            }
        }
    }
    addresses.extend(item.addresses.iter().cloned());
    for (at, address) in addresses.iter().enumerate() {
        match from(item, address, &part) {
            Ok(()) => {
                put(&part, path)?;
                for reason in refused {
                    talk::say(&reason);
                }
                let is_first = at == 0 && mirrors.is_empty();
                return Ok(if is_first {
                    "fetched".to_owned()
                } else {
                    format!("fetched from {address}")
                });
            }
            Err(error) => refused.push(format!("{error:#}")),
        }
    }
    bail!(
        "{}; try again, or put {} into a folder and name that in {MIRROR}",
        refused.join("; "),
        item.name
    )
}

/// Gets a file from an address; what has come of it stays for the next attempt, what is wrong does not.
fn from(item: &Item, address: &str, part: &Path) -> anyhow::Result<()> {
    let mut begun = part.exists();
    loop {
        // All of it may be there, from an attempt that was cut off at its very end.
        if !begun || digest(part)? != Some(item.sha256) {
            fetch::fetch(&item.name, address, part)
                .with_context(|| format!("cannot fetch {address}"))?;
        }
        let found = digest(part)?.context("a transfer leaves a file")?;
        if found == item.sha256 {
            return Ok(());
        }
        fs::remove_file(part).with_context(|| format!("cannot remove {}", part.display()))?;
        // What was there before may have been wrong: once more, from its beginning.
        if !std::mem::take(&mut begun) {
            bail!(
                "{address} answers with a file of sha256 {}, its lock says {}: ask its publisher, or correct the lock",
                found.hex(),
                item.sha256.hex()
            );
        }
    }
}

/// The digest of a file, if it is there.
fn digest(path: &Path) -> anyhow::Result<Option<Digest>> {
    let context = || format!("cannot read {}", path.display());
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(context),
    };
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer).with_context(context)? {
            0 => return Ok(Some(hasher.finish())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

/// Whole or not at all, whenever the machine stops.
fn put(part: &Path, path: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    fs::File::open(part)
        .and_then(|file| file.sync_all())
        .with_context(context)?;
    fs::rename(part, path).with_context(context)
}
